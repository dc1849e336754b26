"""`samba-rl train`."""

import json
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from samba_rl import load_run
from samba_rl.agents.settings import ModelBasedSettings, Settings
from samba_rl.agents.words import to_words
from samba_rl.cli import main
from samba_rl.cli.options import Options
from samba_rl.cli.train import parsed_train
from samba_rl.data import DataSet
from samba_rl.improve.constraints import Chance, Expectation
from samba_rl.improve.limits import ConstraintSettings, FurtherConstraint
from samba_rl.improve.updates.rules import TrustRegion
from samba_rl.learners import LEARNERS, Learner
from samba_rl.models.zeta import Bootstrap, Entropy, LeaveOneOut
from samba_rl.presets import make_settings
from samba_rl.tasks.task import Task
from tests.cli.commands import DONE, LINE, QUICK, ROOT, error_of
from tests.line import Line

# Whole runs -----------------------------------------------------------------------------------------------------------


def test_train_writes_a_run_with_pictures_and_events(smoke_run: Path) -> None:
    names = {path.name for path in smoke_run.iterdir()}
    assert {"config.json", "metrics.jsonl", "real.csv", "policy.npz", "summary.json", "evaluation.json"} <= names
    assert {"learning-curve.png", "state-space.png", "safety.png"} <= names
    assert any("tfevents" in name for name in names)
    evaluation = json.loads((smoke_run / "evaluation.json").read_text())
    assert evaluation["with_noise"]["steps"] >= 10_000 and evaluation["without_noise"]["deterministic"]
    run = load_run(smoke_run)
    assert run.seed == 2 and run.settings == make_settings("safe-pendulum", "samba", "smoke")


def test_train_says_how_it_goes_and_what_to_do_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert (
        main(["train", LINE, "--preset", "smoke", "--real-samples", "80", "--no-pictures", "--out", str(out)]) in DONE
    )
    text = capsys.readouterr().out
    lines = [line for line in text.splitlines() if line.startswith("trial ")]
    assert len(lines) == 3 and "60/80 real samples" in lines[0] and "80/80 real samples" in lines[2]
    assert all(word in lines[1] for word in ("return", "TV", "TC", "CVaR", "limit 0.75", "λ_π", "λ_CVaR", "surprise"))
    assert f"samba-rl eval {out} --task {LINE}" in text and f"samba-rl render {out}" in text
    assert f"tensorboard --logdir {out}" in text and "without noise" in text and "Traceback" not in text
    steps = json.loads((out / "evaluation.json").read_text())["with_noise"]["steps"]
    assert steps == 10_000
    assert main(["eval", str(out), "--task", LINE, "--steps", "50"]) == 0
    assert main(["eval", str(out), "--steps", "50"]) == 2
    assert "not one of the paper's systems; give the system" in capsys.readouterr().err


def test_without_a_folder_one_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        short = ["--preset", "smoke", "--real-samples", "70", *QUICK]
        assert main(["train", LINE, "--learner", "ppilco", "--seed", "5", *short]) == 0
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"line-ppilco-5", "line-ppilco-5-2"}


def test_earlier_data_and_ablations(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert main(["train", LINE, "--preset", "smoke", "--out", str(first), *QUICK]) in DONE
    more = ["--data", str(first / "real.csv"), "--first.samples", "0", "--real-samples", "20", "--zeta", "none"]
    limit = ["--constraint.kind", "expectation", "--constraint.limit", "0.5", "--multiplier.slack", "None"]
    assert main(["train", LINE, "--preset", "smoke", "--out", str(second), *QUICK, *more, *limit]) in DONE
    run = load_run(second, Line())
    before = len(DataSet.from_csv(first / "real.csv"))
    assert run.summary["earlier_samples"] == before and len(run.data) == before + 20
    assert run.row == replace(LEARNERS["samba"].with_zeta(None), constraint=Expectation)
    assert isinstance(run.settings, ModelBasedSettings) and run.settings.constraint == ConstraintSettings(limit=0.5)
    assert run.settings.multiplier.slack is None


def test_logs_are_read_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        rows = "\n".join(f"{i},{-3 + 0.1 * i},{0.1 * (i % 3)}" for i in range(20))
        (tmp_path / f"{name}.csv").write_text(f"t,place,push\n{rows}\n")
    out, files = tmp_path / "run", [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]
    short = ["--preset", "smoke", "--learner", "ppilco", "--first.samples", "0", "--real-samples", "10", *QUICK]
    mapped = ["--columns", "time=t,x=place,u=push"]
    assert main(["train", LINE, "--out", str(out), *short, "--data", *files, *mapped]) == 0
    text = capsys.readouterr().out
    assert "b.csv: 1 episode, 19 steps; cost, safety:edge, violation:edge by the task's functions" in text
    assert "2 earlier episodes with 38 steps" in text and "in the 95 % interval" in text
    report = json.loads((out / "earlier.json").read_text())
    assert report["steps"] == 38 and report["held_out"]["learned"] == 19
    config = json.loads((out / "config.json").read_text())
    assert config["settings"]["first"]["data"] == ",".join(files)
    assert load_run(out, Line()).summary["earlier_samples"] == 38


def test_without_its_packages_train_goes_on_and_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib" or "samba_rl.report" in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("samba_rl.cli.display.available", lambda: False)
    out = str(tmp_path / "run")
    assert main(["train", LINE, "--preset", "smoke", "--no-evaluation", "--out", out]) in DONE
    text = capsys.readouterr().out
    assert "pip install 'samba-rl[tensorboard]'" in text and "pip install 'samba-rl[figures]'" in text
    assert not list((tmp_path / "run").glob("*.png")) and not list((tmp_path / "run").glob("*tfevents*"))


# Arguments ------------------------------------------------------------------------------------------------------------


def parsed(*arguments: str) -> tuple[Task, Options]:
    task, options = parsed_train(list(arguments)).args  # type: ignore[attr-defined]
    return task, options


def options_of(*arguments: str) -> tuple[str, Settings]:
    """The system's name and the settings that the arguments make."""
    task, options = parsed(*arguments)
    return task.name, options.settings


def test_defaults_are_those_of_the_system_the_learner_and_the_preset() -> None:
    for system in ("safe-pendulum", "safe-fetch-reach"):
        for learner in ("samba", "ppilco"):
            for preset in ("default", "paper"):
                expected = system, make_settings(system, learner, preset)
                assert options_of(system, "--learner", learner, f"--preset={preset}") == expected
                # Wherever the system stands.
                assert options_of("--seed", "1", "--learner", learner, "--preset", preset, system) == expected


def test_the_value_of_a_flag_is_not_mistaken_for_the_system() -> None:
    expected = make_settings("safe-fetch-reach")
    assert isinstance(expected, ModelBasedSettings)
    name, settings = options_of("--constraint.of", "safe-pendulum", "safe-fetch-reach")
    assert name == "safe-fetch-reach"
    assert settings == replace(expected, constraint=replace(expected.constraint, of="safe-pendulum"))


def test_further_limits_are_numbered() -> None:
    _, settings = options_of(
        "safe-pendulum", "--more-constraints.0.kind", "chance", "--more-constraints.0.limit", "0.1",
        "--more-constraints.1.kind=expectation",
    )  # fmt: skip
    assert isinstance(settings, ModelBasedSettings)
    assert settings.more_constraints == (
        FurtherConstraint(kind="chance", limit=0.1), FurtherConstraint(kind="expectation"),
    )  # fmt: skip


def help_of(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The help text without its frames, on one line."""
    with pytest.raises(SystemExit) as exit_:
        main(["train", *arguments, "--help"])
    assert exit_.value.code == 0
    return " ".join(re.sub("[│╭╮╰╯─]", "", capsys.readouterr().out).split())


def test_help_shows_the_defaults_of_the_system(capsys: pytest.CaptureFixture[str]) -> None:
    for system, samples in (("safe-pendulum", 1600), ("safe-fetch-reach", 5000)):
        text = help_of([system, "--preset", "paper"], capsys)
        assert f"Budget of real steps, the first trials included. (in [1, 1e9]) (default: {samples})" in text
    text = help_of([], capsys)
    assert "SYSTEM" in text and "--imagination.trajectories INT" in text and "--no-pictures" in text


@pytest.mark.parametrize(
    ("learner", "zeta", "rule", "kind"),
    [
        ("samba", "information", "proximal", "cvar"),
        ("ppilco", "none", "proximal", "none"),
        ("cpo", "none", "projection", "expectation"),
        ("planet-rs", "none", "none", "none"),
    ],
)
def test_help_shows_the_choices_of_the_learner(
    learner: str, zeta: str, rule: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = help_of(["safe-pendulum", "--learner", learner], capsys)
    for flag, choices, default in (
        ("--zeta", "{none,information,loo,loo-observed,bootstrap,entropy}", zeta),
        ("--rule", "{proximal,trust-region,projection,none}", rule),
        ("--constraint.kind", "{cvar,expectation,chance,none}", kind),
    ):
        found = re.search(rf"{flag} {re.escape(choices)} .*?\(default: ([\w-]+)\)", text)
        assert found is not None and found[1] == default


SAMBA = LEARNERS["samba"]


@pytest.mark.parametrize(
    ("flags", "row"),
    [
        ([], SAMBA),
        (["--zeta", "information", "--rule", "proximal", "--constraint.kind", "cvar"], SAMBA),
        (["--zeta", "entropy"], SAMBA.with_zeta(Entropy())),
        (["--zeta=bootstrap"], SAMBA.with_zeta(Bootstrap())),
        (["--zeta", "none"], LEARNERS["sppilco"]),
        (["--rule", "trust-region"], replace(SAMBA, update=TrustRegion())),
        (["--constraint.kind", "chance"], replace(SAMBA, constraint=Chance)),
        (["--zeta", "none", "--constraint.kind", "none"], LEARNERS["ppilco"]),
        (["--learner", "ppilco", "--constraint.kind", "cvar", "--zeta", "information"], SAMBA),
        (["--learner", "trpo", "--rule", "projection", "--constraint.kind", "expectation"], LEARNERS["cpo"]),
    ],
)
def test_flags_change_the_row(flags: list[str], row: Learner) -> None:
    _, options = parsed("safe-pendulum", *flags)
    assert options.row == row
    assert options.settings == make_settings("safe-pendulum", row)


def test_the_preset_of_the_paper_seeks_what_the_paper_does() -> None:
    _, options = parsed("safe-pendulum", "--preset", "paper")
    assert options.row == SAMBA.with_zeta(LeaveOneOut())
    _, options = parsed("safe-pendulum", "--preset", "paper", "--zeta", "entropy")
    assert options.row == SAMBA.with_zeta(Entropy())
    _, options = parsed("safe-pendulum", "--preset", "paper", "--learner", "sppilco")
    assert options.row == LEARNERS["sppilco"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--zeta", "entropy"], {"zeta": "entropy", "objectives": ["cost", "information"]}),
        (["--zeta", "none"], {"zeta": "none", "objectives": ["cost"]}),
        (["--rule", "trust-region"], {"update": "trust-region"}),
        (["--constraint.kind", "chance"], {"constraint": "chance"}),
    ],
)
def test_a_run_has_the_row_that_its_flags_make(flags: list[str], words: dict[str, object], tmp_path: Path) -> None:
    out = tmp_path / "run"
    short = ["--preset", "smoke", "--real-samples", "70", "--feasibility-iterations", "0", *QUICK]
    assert main(["train", LINE, "--out", str(out), *short, *flags]) in DONE
    config = json.loads((out / "config.json").read_text())
    assert config["learner"] == "samba" and config["row"] == {**to_words(SAMBA), **words}
    assert to_words(load_run(out, Line()).row) == config["row"]


def test_the_commands_that_the_docs_show_can_be_given() -> None:
    text = (ROOT / "docs" / "command-line.md").read_text()
    commands = re.findall(r"^\$ samba-rl train (.*?)(?:\s+#.*)?$", text, flags=re.M)
    assert len(commands) >= 3
    for command in commands:
        command = command.split(" > ")[0]
        if ".py:" not in command and "--config" not in command:
            parsed_train(shlex.split(command))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no system was given; name one of safe-pendulum,"),
        (["safe-pendulun"], "no system is called 'safe-pendulun'; did you mean 'safe-pendulum'?"),
        (["Pendulum-v1"], "(for your own, give file.py:function)"),
        (["none.py:f"], "there is no file none.py"),
        (["math:nothing"], "math has no function 'nothing'"),
        (["os:getcwd"], "os:getcwd returned a str; it must return a Task"),
        (["safe-pendulum", "safe-fetch-reach"], "Unrecognized options: safe-fetch-reach"),
        (["safe-pendulum", "--learner", "sanba"], "no learner is called 'sanba'; did you mean 'samba'?"),
        (["safe-pendulum", "--preset", "papers"], "no preset is called 'papers'; did you mean 'paper'?"),
        (["safe-pendulum", "--constraint.limt", "3"], "--constraint.limit"),
        (["safe-pendulum", "--constraint.limit", "low"], "could not convert string to float: 'low'"),
        (["safe-pendulum", "--constraint.limit", "-1"], "constraint.limit = -1.0: must be at least 0 and at most 1e12"),
        (["safe-pendulum", "--zeta", "lo"], "invalid choice 'lo' for argument '--zeta'"),
        (["safe-pendulum", "--learner", "ppo", "--zeta", "loo"], "information on real trials"),
        (["safe-pendulum", "--learner", "planet", "--zeta", "loo"], "give cost, alone or with safety"),
        (["safe-pendulum", "--learner", "planet", "--rule", "proximal"], "update 'proximal' on a latent model"),
        (
            ["safe-pendulum", "--learner", "planet", "--constraint.kind", "cvar"],
            "a planner on a latent model",
        ),
        (["safe-pendulum", "--rule", "none"], "update 'none' on a GP model"),
        (["safe-pendulum", "--learner", "cpo", "--constraint.kind", "none"], "'projection' keeps to a limit"),
        (["safe-pendulum", "--learner", "ppo", "--weights.spread", "True"], "--weights.spread"),
        (["safe-pendulum", "--more-constraints.1.limit", "1"], "number the limits from 0"),
        (["safe-pendulum", "--real-samples", "29", "--first.samples", "20"], "too small for safe-pendulum"),
        (["safe-pendulum", "--threads", "0"], "threads = 0: must be at least 1 and at most 1000"),
        (["safe-pendulum", "--device", "cuda:99"], "device = 'cuda:99', but PyTorch sees"),
        (["safe-pendulum", "--data", "none.csv"], "'none.csv' cannot be read"),
        (["safe-pendulum", "--out", "/dev/null/x"], "/dev/null/x cannot be written: Not a directory"),
    ],
)
def test_mistakes_get_one_line(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in error_of(["train", *arguments], capsys)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_holds_a_run_is_refused(smoke_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = error_of(["train", "safe-pendulum", "--out", str(smoke_run)], capsys)
    assert f"{smoke_run} already holds a run; continue it with: samba-rl resume {smoke_run}" in error
