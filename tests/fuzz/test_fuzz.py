"""The fuzzers, for a few seconds each, and the program that runs them."""

from __future__ import annotations

import copy

import pytest

from tests.fuzz.__main__ import fuzzer, main, names
from tests.fuzz.fuzz_commands import Commands
from tests.fuzz.fuzz_settings import out_of_range, usual_settings
from tests.threads import one_thread

SECONDS = 3.0
"""Time of each fuzzer."""


@pytest.mark.parametrize("name", names())
def test_the_fuzzers_find_nothing(name: str) -> None:
    with one_thread():
        assert fuzzer(name)(SECONDS, 0) == []


def test_fuzzers_try_the_same_cases_for_the_same_seed() -> None:
    draws = [Commands(seed).command() for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]


def test_what_a_fuzzer_looks_for_is_found() -> None:
    settings = copy.deepcopy(usual_settings("samba"))
    assert out_of_range(settings) == ""
    object.__setattr__(settings.first, "samples", -1)
    assert out_of_range(settings) == "accepted, but first.samples is out of range"


def test_the_program_names_its_fuzzers_and_its_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "--seconds", "0", "--seed", "7"]) == 0
    assert capsys.readouterr().out.splitlines() == ["settings: seed 7", "settings: no failures (0 s)"]
    with pytest.raises(SystemExit):
        main(["none"])
    assert "no fuzzer is called none; there are " in capsys.readouterr().err


def test_failures_are_printed_and_counted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("tests.fuzz.fuzz_settings.fuzz", lambda seconds, seed: [f"ζ {seconds:g} {seed}"])
    assert main(["settings", "--seconds", "4", "--seed", "7"]) == 1
    assert capsys.readouterr().out.splitlines()[1:] == [
        "  \\u03b6 4 7", "settings: 1 failures; repeat with: settings --seed 7 (0 s)",
    ]  # fmt: skip
