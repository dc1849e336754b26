"""`samba-rl train` as its users meet it, and what follows it: eval and render."""

import json
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from samba_rl import load_run
from samba_rl.cli import main
from samba_rl.cli.training import parsed_train
from samba_rl.data import DataSet
from samba_rl.improve.constraints import ConstraintSettings
from samba_rl.learners import Settings, make_settings
from tests.line import Line
from tests.threads import one_thread

ROOT = Path(__file__).parent.parent.parent
LINE = f"{ROOT / 'tests' / 'line.py'}:make_line"
QUICK = ["--no-pictures", "--no-evaluation", "--feasibility-iterations", "0"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A smoke run from the command line."""
    out = tmp_path_factory.mktemp("cli") / "run"
    with one_thread():
        assert main(["train", "safe-pendulum", "--preset", "smoke", "--seed", "2", "--out", str(out)]) == 0
    return out


def options_of(*arguments: str) -> tuple[str, Settings]:
    """The system's name and the settings that the arguments make."""
    task, options = parsed_train(list(arguments)).args  # type: ignore[attr-defined]
    return task.name, options.settings


# From one end to the other --------------------------------------------------------------------------------------------


def test_train_writes_a_run_with_pictures_and_events(folder: Path) -> None:
    names = {path.name for path in folder.iterdir()}
    assert {"config.json", "metrics.jsonl", "real.csv", "policy.npz", "summary.json", "evaluation.json"} <= names
    assert {"learning-curve.png", "state-space.png", "safety.png"} <= names
    assert any("tfevents" in name for name in names)
    evaluation = json.loads((folder / "evaluation.json").read_text())
    assert evaluation["with_noise"]["steps"] >= 10_000 and evaluation["without_noise"]["deterministic"]
    run = load_run(folder)
    assert run.seed == 2 and run.settings == make_settings("safe-pendulum", "samba", "smoke")


def test_train_says_how_it_goes_and_what_to_do_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert main(["train", LINE, "--preset", "smoke", "--real-samples", "80", "--no-pictures", "--out", str(out)]) == 0
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
    assert "none of the paper's systems; give the system" in capsys.readouterr().err


def test_eval_prints_the_figures(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def figures(*arguments: str) -> dict[str, object]:
        assert main(["eval", str(folder), "--json", "--steps", "300", *arguments]) == 0
        (line,) = capsys.readouterr().out.splitlines()
        found: dict[str, object] = json.loads(line)
        return found

    first = figures()
    wanted = {"TV", "TC", "steps", "return_mean", "safety_quartiles", "cvar", "alpha", "limit"}
    assert wanted <= first.keys() and first["limit"] == 0.75 and first["alpha"] == 0.9
    assert figures() == first == json.loads(json.dumps(load_run(folder).evaluate(300).to_json()))
    assert figures("--seed", "1") != first and figures("--deterministic")["deterministic"] is True
    assert main(["eval", str(folder), "--steps", "300"]) == 0
    text = capsys.readouterr().out
    assert "TV, steps in the unsafe region" in text and "with noise" in text


@pytest.mark.parametrize(("name", "start"), [("film.gif", b"GIF89a"), ("film.mp4", b"\x00\x00\x00")])
def test_render_films_the_policy(folder: Path, tmp_path: Path, name: str, start: bytes) -> None:
    if name.endswith("mp4"):
        pytest.importorskip("imageio_ffmpeg")
    assert main(["render", str(folder), str(tmp_path / "new" / name), "--episodes", "1", "--seed", "4"]) == 0
    assert (tmp_path / "new" / name).read_bytes().startswith(start)


def test_a_system_of_ones_own_is_filmed(tmp_path: Path) -> None:
    assert main(["train", LINE, "--preset", "smoke", "--out", str(tmp_path / "run"), *QUICK]) == 0
    film = str(tmp_path / "film.gif")
    assert main(["render", str(tmp_path / "run"), film, "--task", LINE, "--episodes", "2", "--stochastic"]) == 0


def test_without_a_folder_one_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert (
            main(
                [
                    "train",
                    LINE,
                    "--learner",
                    "ppilco",
                    "--preset",
                    "smoke",
                    "--seed",
                    "5",
                    "--real-samples",
                    "70",
                    *QUICK,
                ]
            )
            == 0
        )
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"line-ppilco-5", "line-ppilco-5-2"}


def test_earlier_data_and_ablations(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert main(["train", LINE, "--preset", "smoke", "--out", str(first), *QUICK]) == 0
    more = ["--data", str(first / "real.csv"), "--first.samples", "0", "--real-samples", "20", "--zeta", "none"]
    limit = ["--constraint.kind", "expectation", "--constraint.limit", "0.5", "--multiplier.slack", "None"]
    assert main(["train", LINE, "--preset", "smoke", "--out", str(second), *QUICK, *more, *limit]) == 0
    run = load_run(second, Line())
    before = len(DataSet.from_csv(first / "real.csv"))
    assert run.summary["earlier_samples"] == before and len(run.data) == before + 20
    assert run.settings.zeta == "none" and run.settings.constraint == ConstraintSettings("expectation", 0.5)
    assert run.settings.multiplier.slack is None


# Arguments ------------------------------------------------------------------------------------------------------------


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
    name, settings = options_of("--constraint.of", "safe-pendulum", "safe-fetch-reach")
    assert name == "safe-fetch-reach"
    assert settings == replace(expected, constraint=replace(expected.constraint, of="safe-pendulum"))


def test_further_limits_are_numbered() -> None:
    _, settings = options_of(
        "safe-pendulum", "--more-constraints.0.kind", "chance", "--more-constraints.0.limit", "0.1",
        "--more-constraints.1.kind=expectation",
    )  # fmt: skip
    assert settings.more_constraints == (
        ConstraintSettings("chance", 0.1), ConstraintSettings("expectation"),
    )  # fmt: skip


def test_help_shows_the_defaults_of_the_system(capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for arguments in (["safe-pendulum", "--preset", "paper"], ["safe-fetch-reach", "--preset", "paper"], []):
        with pytest.raises(SystemExit) as exit_:
            main(["train", *arguments, "--help"])
        assert exit_.value.code == 0
        texts.append(" ".join(re.sub("[│╭╮╰╯─]", "", capsys.readouterr().out).split()))
    assert "Real steps to spend at most, the first ones included. (default: 1600)" in texts[0]
    assert "Real steps to spend at most, the first ones included. (default: 5000)" in texts[1]
    assert "SYSTEM" in texts[2] and "--imagination.trajectories INT" in texts[2] and "--no-pictures" in texts[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "train which system? Name one of safe-pendulum,"),
        (["safe-pendulun"], "no system is called 'safe-pendulun'; did you mean 'safe-pendulum'?"),
        (["Pendulum-v1"], "(one of your own: file.py:function)"),
        (["none.py:f"], "there is no file none.py"),
        (["math:nothing"], "math has no function 'nothing'"),
        (["os:getcwd"], "os:getcwd gave a str; it must give a Task"),
        (["safe-pendulum", "safe-fetch-reach"], "Unrecognized options: safe-fetch-reach"),
        (["safe-pendulum", "--learner", "sanba"], "no learner is called 'sanba'; did you mean 'samba'?"),
        (["safe-pendulum", "--preset", "papers"], "no preset is called 'papers'; did you mean 'paper'?"),
        (["safe-pendulum", "--constraint.limt", "3"], "--constraint.limit"),
        (["safe-pendulum", "--constraint.limit", "low"], "could not convert string to float: 'low'"),
        (["safe-pendulum", "--constraint.limit", "-1"], "a constraint's limit is -1.0; give a number of at least 0"),
        (["safe-pendulum", "--zeta", "lo"], "invalid choice 'lo' for argument '--zeta'"),
        (["safe-pendulum", "--more-constraints.1.limit", "1"], "number the limits from 0 on"),
        (["safe-pendulum", "--real-samples", "29", "--first.samples", "20"], "too small for safe-pendulum"),
        (["safe-pendulum", "--threads", "0"], "--threads 0: at least 1 is needed"),
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
    assert main(["train", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.startswith("samba-rl: ") and error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_mistakes_about_runs_get_one_line(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        (
            ["train", "safe-pendulum", "--out", str(folder)],
            f"{folder} holds a run already; go on with it: samba-rl resume",
        ),
        (["eval", str(tmp_path)], "holds no run: there is no config.json"),
        (["eval", str(folder), "--steps", "0"], "an evaluation of 0 steps; at least 1 is needed"),
        (["eval", str(folder), "--task", LINE], "is a run on 'safe-pendulum', not on 'line'"),
        (["render", str(folder), str(tmp_path / "film.avi")], "its name must end in .mp4 or .gif"),
        (["render", str(folder), str(tmp_path / "film.gif"), "--episodes", "0"], "--episodes 0: at least 1 is needed"),
        (["render", str(folder)], "FILM"),
    ):
        assert main(arguments) == 2
        error = capsys.readouterr().err
        assert message in error and error.startswith("samba-rl: ") and error.count("\n") == 1


def test_without_its_packages_train_goes_on_and_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib" or "samba_rl.report" in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("samba_rl.cli.training.available", lambda: False)
    out = str(tmp_path / "run")
    assert main(["train", LINE, "--preset", "smoke", "--no-evaluation", "--out", out]) == 0
    text = capsys.readouterr().out
    assert "pip install 'samba-rl[tensorboard]'" in text and "pip install 'samba-rl[figures]'" in text
    assert not list((tmp_path / "run").glob("*.png")) and not list((tmp_path / "run").glob("*tfevents*"))


def test_the_commands_that_the_docs_show_can_be_given() -> None:
    text = (ROOT / "docs" / "command-line.md").read_text()
    commands = re.findall(r"^\$ samba-rl train (.*?)(?:\s+#.*)?$", text, flags=re.M)
    assert len(commands) >= 3
    for command in commands:
        if ".py:" not in command:
            parsed_train(shlex.split(command))
