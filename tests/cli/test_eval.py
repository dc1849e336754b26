"""`samba-rl eval`."""

import json
from pathlib import Path

import pytest

from samba_rl import load_run
from samba_rl.cli import main
from tests.cli.commands import LINE, error_of


def test_eval_prints_the_figures(smoke_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def figures(*arguments: str) -> dict[str, object]:
        assert main(["eval", str(smoke_run), "--json", "--steps", "300", *arguments]) == 0
        (line,) = capsys.readouterr().out.splitlines()
        found: dict[str, object] = json.loads(line)
        return found

    first = figures()
    wanted = {"TV", "TC", "steps", "return_mean", "safety_quartiles", "cvar", "alpha", "limit"}
    assert wanted <= first.keys() and first["limit"] == 0.75 and first["alpha"] == 0.9
    assert figures() == first == json.loads(json.dumps(load_run(smoke_run).evaluate(300).to_json()))
    assert figures("--seed", "1") != first and figures("--deterministic")["deterministic"] is True
    assert main(["eval", str(smoke_run), "--steps", "300"]) == 0
    text = capsys.readouterr().out
    assert "TV, steps in the unsafe region" in text and "with noise" in text


def test_mistakes_get_one_line(smoke_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        ([str(tmp_path)], "holds no run: it has no config.json"),
        ([str(smoke_run), "--steps", "0"], "cannot evaluate 0 steps; at least 1 is needed"),
        ([str(smoke_run), "--task", LINE], "is a run on 'safe-pendulum', not on 'line'"),
    ):
        assert message in error_of(["eval", *arguments], capsys)
