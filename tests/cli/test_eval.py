"""`samba-rl eval`."""

import json
import re
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

    first = figures("--seed", "0")
    wanted = {"TV", "TC", "steps", "return_mean", "safety_quartiles", "cvar", "alpha", "limit"}
    assert wanted <= first.keys() and first["limit"] == 0.75 and first["alpha"] == 0.9
    again = json.loads(json.dumps(load_run(smoke_run).evaluate(300, seed=0).to_json()))
    assert figures("--seed", "0") == first == again
    assert figures("--seed", "1") != first and figures("--deterministic")["deterministic"] is True
    assert main(["eval", str(smoke_run), "--steps", "300"]) == 0
    text = capsys.readouterr().out
    assert "TV, unsafe steps per 10,000" in text and "with noise" in text
    assert "± is half of the 95 % interval" in text and re.search(r"mean return .* -\d+\.\d\d ± \d+\.\d\d", text)


def test_every_evaluation_has_fresh_starts_that_can_be_repeated(
    smoke_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def evaluated(*arguments: str) -> dict[str, object]:
        assert main(["eval", str(smoke_run), "--json", "--episodes", "7", *arguments]) == 0
        found: dict[str, object] = json.loads(capsys.readouterr().out)
        return found

    one, other = evaluated(), evaluated()
    assert one["episodes"] == 7 and one["seed"] != other["seed"] and one["return_mean"] != other["return_mean"]
    assert evaluated("--seed", str(one["seed"])) == one


def test_mistakes_get_one_line(smoke_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        ([str(tmp_path)], "holds no run: it has no config.json"),
        ([str(smoke_run), "--steps", "0"], "steps = 0: must be at least 1 and at most 1e9"),
        ([str(smoke_run), "--episodes", "0"], "episodes = 0: must be at least 1 and at most 1e7"),
        ([str(smoke_run), "--episodes", "3", "--steps", "9"], "--steps 9 --episodes 3: give one of the two"),
        ([str(smoke_run), "--task", LINE], "is a run on 'safe-pendulum', not on 'line'"),
    ):
        assert message in error_of(["eval", *arguments], capsys)
