"""The command line as a whole: help, and mistakes in one line."""

import pytest

from samba_rl.cli import main
from tests.cli.commands import error_of, samba_rl


def test_help_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["--help"])
    text = capsys.readouterr().out
    assert exit_.value.code == 0
    for word in ("train", "eval", "render", "tasks", "check-env", "rollout", "every real trial is expensive"):
        assert word in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rollout", "safe-pendulun"], "no system is called 'safe-pendulun'; did you mean 'safe-pendulum'?"),
        (["rollout", "safe-pendulum", "--episodes", "0"], "episodes = 0: must be at least 1 and at most 1e7"),
        (["rollout", "safe-fetch-reach", "--workers", "-2"], "workers = -2: must be at least 0 and at most 1000"),
        (["rollout", "safe-pendulum", "--episodes", "2", "--out", "/dev/null/x"], "cannot write /dev/null/x"),
        (["check-env", "X-v0", "--safety", "nofunction"], "write module:function or file.py:function"),
        (["check-env", "X-v0", "--safety", "none.py:f"], "there is no file none.py"),
        (["check-env", "X-v0", "--safety", "no_such_module:f"], "the module 'no_such_module'"),
        (["check-env", "X-v0", "--cost", "math:nothing"], "math has no function 'nothing'"),
        ([], "Expected one of {train, resume,"),
        (["rol"], "no command is called 'rol'; did you mean 'rollout'?"),
        (["rollout"], "Missing from samba-rl rollout: SYSTEM"),
        (["rollout", "safe-pendulum", "--epsodes", "3"], "--epsodes, 3; perhaps you meant --episodes; see samba-rl"),
        (["train", "x" * 300 + ".py:f"], "File name too long"),
        (["eval", "x" * 300], "File name too long"),
        (["runs", "x" * 300], "File name too long"),
        (["report", "x" * 300], "File name too long"),
        (["figures", "curves", "--results", "x" * 300], "File name too long"),
        (["eval", "x", "--steps", str(2**63)], f"steps = {2**63}: must be at least 1 and at most 1e9"),
        (
            ["report", "--title", "\ud800"],
            "title = '\\ud800': must be text without null characters and lone surrogates",
        ),
        (["verify", "\ud800"], "run = '\\ud800': must be a name that a file can have"),
        (["verify", "\n"], "\\n holds no run"),
        (["benchmark", "smoke", "--limits", "nan"], "limits.0 = nan: must be at least 0 and at most 1e12"),
        (["benchmark", "smoke", "--budget-scale", "inf"], "budget_scale = inf: must be above 0 and at most 1000"),
        (["check-env", "X-v0", "--horizon", "0"], "horizon = 0: must be at least 1"),
        (["rollout", "safe-pendulum", "--seed", "-1"], "seed = -1: must be at least 0"),
        (["rollout", "safe-pendulum", "--seed", "x"], "Error parsing --seed: invalid literal for int()"),
    ],
)
def test_mistakes_get_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in error_of(arguments, capsys)


def test_a_mistake_is_one_line_of_the_program_too() -> None:
    result = samba_rl("rollout", "safe-pendulum", "--epsodes", "3")
    assert result.returncode == 2 and "--episodes" in result.stderr and result.stderr.count("\n") == 1
