"""Files of a run: written through the command line, and compared with the run's policy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from samba_rl import UserError
from samba_rl.cli import main
from samba_rl.export import compare, describe, write
from samba_rl.improve.policies import GaussianPolicy
from samba_rl.runs import Run, load_run, train
from tests.cli.commands import error_of
from tests.line import Line
from tests.threads import one_thread


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    with one_thread():
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    with one_thread():
        return train("safe-pendulum", "ppo", preset="smoke", seed=3, out=tmp_path_factory.mktemp("runs") / "run")


def home(run: Run) -> str:
    assert run.folder is not None
    return str(run.folder)


def test_a_description_is_the_policy_of_the_run(run: Run) -> None:
    policy = describe(run)
    seen = run.task.observe(run.data.transitions.x)
    assert isinstance(run.policy, GaussianPolicy)
    assert np.abs(policy(seen.numpy()).action - run.policy.act(seen.numpy())).max() < 1e-12
    assert policy.observations == ("cos θ", "sin θ", "θ̇") and policy.provenance["learner"] == "ppo"
    monitor = policy(seen.numpy()).monitor
    assert monitor is not None and float((monitor > 1).mean()) < 0.01
    assert policy.monitor is not None and len(policy.monitor.points) == 200
    assert isinstance(run.policy, GaussianPolicy)
    assert policy.std.tolist() == run.policy.std.tolist() and policy.dt == 0.05


@pytest.mark.parametrize("suffix", [".c", ".h", ".npz", ".json", ".onnx"])
def test_an_exported_file_passes_its_check(
    run: Run, suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if suffix == ".onnx":
        pytest.importorskip("onnx")
    path = tmp_path / f"policy{suffix}"
    assert main(["export", home(run), str(path), "--check", str(path), "--points", "50", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["passed"] and found["observations"] == 10_000 and found["files"] == [str(path)]
    assert max(found["action"], found["monitor"]) < (1e-5 if suffix == ".onnx" else 1e-12)


def test_a_changed_file_fails_its_check(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "policy.json"
    write(describe(run), path)
    value = json.loads(path.read_text())
    value["layers"][-1]["bias"][0] += 0.01
    path.write_text(json.dumps(value))
    assert main(["export", home(run), "--check", str(path)]) == 1
    assert "a different policy" in capsys.readouterr().out
    # The bias moves the mean by up to 0.01 half widths, which is 0.005 of the range.
    assert 0.003 < compare(run, path).action <= 0.005
    assert not compare(run, path).within(1e-5) and compare(run, path).within(0.01)


def test_a_file_for_another_system_is_refused(run: Run, tmp_path: Path) -> None:
    with one_thread():
        other = train(Line(), "ppo", preset="smoke", seed=0)
    for suffix in (".json", ".h"):
        write(describe(other), tmp_path / f"line{suffix}")
        with pytest.raises(UserError, match=r"line\.(json|h) (has the observations|is for observations of 1 numbers)"):
            compare(run, tmp_path / f"line{suffix}")


def test_a_planner_says_why_it_cannot_be_exported() -> None:
    with one_thread():
        planner = train(Line(), "planet", preset="smoke", seed=0)
    with pytest.raises(UserError, match="cannot be exported: it is a planner, which searches"):
        describe(planner)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no file was given"),
        (["policy.xml"], "its name must end in .onnx, .c, .h, .npz, .json"),
        (["no-such-folder/policy.h"], "cannot be written"),
        (["--check", "missing.json"], "cannot be read"),
        (["policy.h", "--points", "1"], "points = 1: must be at least 2"),
        (["--check", "policy.h", "--tolerance", "nan"], "tolerance = nan: must be at least 0"),
        (["{run}/next.json"], "is a file of the run itself"),
        (["{run}/policy.npz"], "is a file of the run itself"),
        (["--check", "{run}/policy.npz"], "is the policy of a run's folder, which only samba_rl reads"),
    ],
)
def test_mistakes_are_explained(
    arguments: list[str],
    words: str,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert words in error_of(["export", home(run), *(one.format(run=home(run)) for one in arguments)], capsys)
    load_run(home(run))  # the run is still whole
