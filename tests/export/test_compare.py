"""Files of a run: written through the command line, and compared with the run's policy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from samba_rl import UserError
from samba_rl.cli import main
from samba_rl.export import compare, describe, write
from samba_rl.improve.experts import MixturePolicy
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


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with two experts and a gate that has learned a little."""
    with one_thread():
        experts = {"experts": 2, "apart": 1, "gate_hidden": [4]}
        where = tmp_path_factory.mktemp("runs") / "several"
        made = train("safe-pendulum", "samba", preset="smoke", seed=3, policy=experts, out=where)
    assert isinstance(made.policy, MixturePolicy) and not made.policy.gate.apart
    return made


def words(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


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


def test_the_description_of_several_experts_is_what_the_policy_does_without_noise(several: Run) -> None:
    policy, described = several.policy, describe(several)
    assert isinstance(policy, MixturePolicy) and described.experts == 2 and len(described.centre) == 3
    random = np.random.default_rng(0)
    first, later = (described.centre + 2 * described.scale * random.normal(size=(1000, 3)) for _ in range(2))
    acting, still = policy.begin(1000), policy.still().begin(1000)
    assert np.abs(acting.act(first) - described(first).action).max() < 1e-12
    found = described(later, first)
    assert np.abs(acting.act(later) - found.action).max() < 1e-12
    assert found.expert is not None and 0.02 < found.expert.mean() < 0.98
    # What evaluations without noise do: the same in float32.
    still(torch.from_numpy(first), torch.Generator())
    chosen = policy.gate.logits(policy.first_inputs(torch.from_numpy(first))).argmax(-1).numpy()
    assert (chosen == found.expert).mean() > 0.999
    action = still(torch.from_numpy(later), torch.Generator()).clamp(-2, 2).numpy()
    assert np.abs(action - found.action)[chosen == found.expert].max() < 1e-5
    assert described.std.tolist() == policy.std.tolist()
    monitor = described(later).monitor
    assert monitor is not None and np.isfinite(monitor).all()


@pytest.mark.parametrize("suffix", [".c", ".h", ".npz", ".json", ".onnx"])
def test_a_file_of_several_experts_passes_its_check(several: Run, suffix: str, tmp_path: Path) -> None:
    if suffix == ".onnx":
        pytest.importorskip("onnx")
    path = tmp_path / f"policy{suffix}"
    write(describe(several), path)
    found, tolerance = compare(several, path), 1e-5 if suffix == ".onnx" else 1e-12
    assert found.choice is not None and found.monitor is not None
    assert max(found.action, found.monitor, found.choice) < tolerance


def test_a_file_whose_gate_chooses_otherwise_fails_its_check(
    several: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "policy.json"
    assert main(["export", home(several), str(path), "--check", str(path)]) == 0
    assert "an expert is chosen that the gate rates at most 0.0e+00 below the best" in words(capsys)
    write(describe(several), path)
    value = json.loads(path.read_text())
    value["gate"][-1]["bias"][0] += 10.0
    path.write_text(json.dumps(value))
    found = compare(several, path)
    assert found.action < 1e-12 < 1e-3 < (found.choice or 0) and not found.within(1e-5)
    assert main(["export", home(several), "--check", str(path)]) == 1
    assert "a different policy" in words(capsys)


def test_a_file_with_another_number_of_experts_is_refused(run: Run, several: Run, tmp_path: Path) -> None:
    for suffix in (".json", ".h"):
        write(describe(run), tmp_path / f"one{suffix}")
        write(describe(several), tmp_path / f"two{suffix}")
        with pytest.raises(UserError, match="has a single expert; the policy of the run has 2"):
            compare(several, tmp_path / f"one{suffix}")
        with pytest.raises(UserError, match="has other experts; the policy of the run has 1 "):
            compare(run, tmp_path / f"two{suffix}")


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
