"""A few seconds of fuzzing a run's files; `fuzz_files.fuzz` runs for as long as you like."""

from __future__ import annotations

import random
from pathlib import Path

from tests.fuzz.cases import Words, cases
from tests.fuzz.fuzz_files import DAMAGE, fuzz


def test_damaged_files_are_refused_or_harmless() -> None:
    assert fuzz(2.0, seed=0) == []


def test_every_kind_of_damage_changes_a_file(tmp_path: Path) -> None:
    for number, damage in enumerate(dict.fromkeys(DAMAGE)):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = folder / "a"
        path.write_bytes(b"0123456789" * 20)
        (folder / "b").write_bytes(b"other")
        said = damage(path, random.Random(1))
        regular = path.is_file() and not path.is_symlink() and path.stat().st_size < 10**6
        assert said and not (regular and path.read_bytes() == b"0123456789" * 20), damage.__name__


def test_failures_are_reported_with_what_repeats_them() -> None:
    def case(draw: random.Random, words: Words) -> None:
        words(f"drew {draw.randrange(10)}")
        raise KeyError("lost\nit")

    (first, second) = cases(0.0, 7, case, least=2)
    assert first == cases(0.0, 7, case)[0] and first.startswith("seed 7, case 0 (drew ")
    assert first.endswith("KeyError: 'lost\\nit'") and second.startswith("seed 7, case 1 (drew ")
