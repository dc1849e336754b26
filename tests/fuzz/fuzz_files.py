"""Fuzzing of a run's files: damaged, cut, swapped, replaced by links, pipes and huge files.

Whatever is done to the files of a run: what is read is what was written, or it is refused with a message. A damaged
interrupted run continues to the same end or is refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from samba_rl.errors import Stopped, UserError
from samba_rl.runs import Run, load_run, resume, train
from samba_rl.runs.listing import overview
from samba_rl.runs.verify import repair, verify
from tests.fuzz.cases import Words, Wrong, cases
from tests.line import Line
from tests.runs.interrupted import same
from tests.threads import one_thread

HOW: dict[str, Any] = {"preset": "smoke", "seed": 1, "real_samples": 40, "episodes": 1, "first": {"samples": 20}}
HUGE = 2**41
"""Size of a file that has no content, in bytes."""


def flipped(path: Path, draw: random.Random) -> str:
    """Flip one bit."""
    content = bytearray(path.read_bytes())
    if not content:
        return "nothing to flip"
    place, bit = draw.randrange(len(content)), draw.randrange(8)
    content[place] ^= 1 << bit
    path.write_bytes(content)
    return f"bit {bit} of byte {place} flipped"


def cut(path: Path, draw: random.Random) -> str:
    """Cut the end off."""
    size = draw.randint(0, max(0, path.stat().st_size - 1))
    os.truncate(path, size)
    return f"cut to {size} bytes"


def zeroed(path: Path, draw: random.Random) -> str:
    """Overwrite a part with zeros, as a disk may after a power cut."""
    content = bytearray(path.read_bytes())
    start = draw.randint(0, len(content))
    end = min(len(content), start + draw.choice([1, 16, 512, 4096]))
    content[start:end] = bytes(end - start)
    path.write_bytes(content)
    return f"bytes {start} to {end} zeroed"


def noise(path: Path, draw: random.Random) -> str:
    """Replace the content by random bytes."""
    path.write_bytes(draw.randbytes(draw.choice([0, 1, 100, 5000])))
    return "random bytes"


def extended(path: Path, draw: random.Random) -> str:
    """Add something at the end."""
    with path.open("ab") as file:
        file.write(draw.choice([b"\0" * 100, b"x", b"\n", b"{}\n", draw.randbytes(50)]))
    return "extended"


def edited(path: Path, draw: random.Random) -> str:
    """Change a number or a word in a text."""
    content = path.read_bytes()
    places = [i for i, byte in enumerate(content) if 48 <= byte <= 57]
    if not places:
        return "no digit to edit"
    place = draw.choice(places)
    path.write_bytes(content[:place] + draw.choice([b"9", b"-", b"e9", b"null", b'"', b"[" * 3000]) + content[place:])
    return f"edited at byte {place}"


def missing(path: Path, draw: random.Random) -> str:
    """Remove the file."""
    path.unlink()
    return "removed"


def pipe(path: Path, draw: random.Random) -> str:
    """Put a pipe in its place, which nobody writes to."""
    path.unlink()
    os.mkfifo(path)
    return "a pipe"


def device(path: Path, draw: random.Random) -> str:
    """Put a link to an endless device in its place."""
    path.unlink()
    path.symlink_to(draw.choice(["/dev/zero", "/dev/null", "/nowhere", path.name]))
    return f"a link to {os.readlink(path)}"


def folder(path: Path, draw: random.Random) -> str:
    """Put a folder in its place."""
    path.unlink()
    path.mkdir()
    return "a folder"


def huge(path: Path, draw: random.Random) -> str:
    """Make it huge."""
    os.truncate(path, HUGE)
    return "huge"


def swapped(path: Path, draw: random.Random) -> str:
    """Swap it with another file of the run."""
    others = [each for each in files(path.parent) if each != path]
    if not others:
        return "nothing to swap with"
    other, third = draw.choice(others), path.with_name("third")
    path.rename(third)
    other.rename(path)
    third.rename(other)
    return f"swapped with {other.name}"


DAMAGE: tuple[Callable[[Path, random.Random], str], ...] = (
    flipped, flipped, flipped, cut, cut, zeroed, noise, extended, edited, edited, missing, pipe, device, folder, huge,
    swapped,
)  # fmt: skip


def files(home: Path) -> list[Path]:
    """Return the files of a run, in order; the lock and the metrics' cache of others are none."""
    return sorted(path for path in home.rglob("*") if path.is_file() and path.name != ".lock")


def fuzz(seconds: float, seed: int) -> list[str]:
    """Damage copies of runs for some seconds; return the failures, one line each."""
    with one_thread(), prepared() as runs, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cases(seconds, seed, lambda draw, words: one_case(runs, draw, words), least=3)


@contextlib.contextmanager
def prepared() -> Iterator[dict[str, tuple[Path, Path, Run]]]:
    """Make, for a learner with a model and one without, a finished and an interrupted run, and the finished result."""
    with tempfile.TemporaryDirectory() as home:
        made = {}
        for learner in ("samba", "ppo"):
            done, half = Path(home) / f"{learner}-done", Path(home) / f"{learner}-half"
            run = train(Line(), learner, out=done, checkpoint_every=0.0, **HOW)
            heard: list[object] = []

            def enough(heard: list[object] = heard) -> bool:
                return len(heard) >= 3

            with contextlib.suppress(Stopped):
                train(
                    Line(), learner, out=half, log=heard.append, stop=enough,
                    checkpoint_every=0.0, **HOW,
                )  # fmt: skip
            made[learner] = done, half, run
        yield made


def crafted(copy: Path, draw: random.Random, words: Words) -> None:
    """Replace an entry of the configuration, and remove what its checksum is compared with."""
    shutil.rmtree(copy / "checkpoints")
    config = json.loads((copy / "config.json").read_text())
    name = draw.choice([*sorted(config.keys() - {"settings"}), "new"])
    values: list[Any] = [
        None,
        True,
        -1,
        0,
        10**6,
        10**30,
        1.5,
        "",
        "x" * 300,
        "\x1b[2J",
        "../..",
        [],
        {},
        [[[]]],
        "cuda",
    ]
    value = draw.choice(values)
    words(f"config.json: {name} = {str(value)[:20]!r}")
    (copy / "config.json").write_text(json.dumps({**config, name: value}))
    resume(copy, Line(), checkpoint_every=60.0)


def one_case(runs: dict[str, tuple[Path, Path, Run]], draw: random.Random, words: Words) -> None:
    """Damage a copy of a run, and read it in every way."""
    learner, finished = draw.choice(sorted(runs)), draw.random() < 0.6
    done, half, due = runs[learner]
    with tempfile.TemporaryDirectory() as home:
        copy = Path(home) / "run"
        shutil.copytree(done if finished else half, copy)
        if not finished and draw.random() < 0.15:
            crafted(copy, draw, words)
            return
        before = {path: path.read_bytes() for path in files(copy)}
        for _ in range(draw.choice([1, 1, 2])):
            usable = [path for path in files(copy) if not path.is_symlink()]
            path = draw.choice(usable)
            words(f"{learner} {'finished' if finished else 'interrupted'}: {path.relative_to(copy)}")
            words(draw.choice(DAMAGE)(path, draw))
        changed = {path for path, content in before.items() if not is_same(path, content)}
        overview(copy)
        with contextlib.suppress(UserError):
            verify(copy)
        if finished:
            check_finished(copy, due, {path.name for path in changed if path.parent == copy})
        else:
            check_interrupted(copy, due)


def is_same(path: Path, content: bytes) -> bool:
    """Return whether a file has that content, without reading a pipe or a huge file."""
    regular = path.is_file() and not path.is_symlink() and path.stat().st_size == len(content)
    return regular and path.read_bytes() == content


def check_finished(copy: Path, due: Run, changed: set[str]) -> None:
    """Check that a finished run is refused if a file was changed, and else what it was; then that it can be mended."""
    sealed = {"config.json", "real.journal", "metrics.jsonl", "real.csv", "model.state", "policy.npz", "summary.json"}
    try:
        found = load_run(copy, Line())
    except UserError as error:
        if not changed:
            raise Wrong(f"an undamaged run is refused: {error}") from error
        if "\n" in str(error):
            raise Wrong(f"the message has several lines: {error}") from error
    else:
        if changed & sealed and not same(found, due):
            raise Wrong(f"{sorted(changed)} changed, and another result was loaded")
        if changed & sealed:
            raise Wrong(f"{sorted(changed)} changed, and nobody noticed")
    try:
        after = repair(copy, Line())
    except UserError:
        return
    if not after.damaged and not same(load_run(copy, Line()), due):
        raise Wrong("it was repaired to another result")


def check_interrupted(copy: Path, due: Run) -> None:
    """Check that an interrupted run goes on to the same end, or is refused."""
    run = resume(copy, Line(), checkpoint_every=60.0)
    if not same(run, due):
        raise Wrong("it was resumed to another end")
    if not torch.equal(run.data.transitions.x, due.data.transitions.x):
        raise Wrong("its data are others")
