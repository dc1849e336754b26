"""A command that runs the episodes: what it measures counts, however it ends."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from samba_rl import RigTask
from samba_rl.data.journal import Journal
from samba_rl.errors import Paused, UserError
from samba_rl.improve.policies import UniformPolicy
from samba_rl.runs import Run, resume, train
from samba_rl.runs.rig import CommandRig, filled, parsed_command
from samba_rl.types import Traces
from tests.runs.systems import same_policy
from tests.runs.test_waiting import rig
from tests.threads import one_thread
from tests.traces import seeded

RIG = """
import json, random, sys, time
policy, out, mode = json.load(open(sys.argv[1])), sys.argv[2], open(sys.argv[3]).read()
calls = open(sys.argv[3] + ".calls", "a"); calls.write(sys.argv[1] + "\\n"); calls.close()
noise, x = random.Random(policy["provenance"]["seed"]), -2.0
with open(out, "w") as log:
    log.write("x,u\\n")
    for step in range(10):
        if mode == f"stop {step}":
            sys.exit("the guard tripped")
        if mode == f"hang {step}":
            log.flush(); time.sleep(60)
        if mode == f"wrong {step}":
            x = float("nan")
        u = policy["sequence"][step][0] if "sequence" in policy else max(-1, min(1, 0.3 + noise.gauss(0, 0.5)))
        log.write(f"{x!r},{u!r}\\n")
        x += u
    log.write(f"{x!r},\\n")
"""
SMOKE: dict[str, Any] = {"preset": "smoke", "real_samples": 20, "first": {"samples": 10}, "episodes": 1}


def command_in(folder: Path) -> str:
    """Write the rig to a folder and return the command that runs it."""
    (folder / "rig.py").write_text(RIG)
    (folder / "mode").write_text("")
    return f"'{sys.executable}' '{folder / 'rig.py'}' {{policy}} {{trial}} '{folder / 'mode'}'"


@pytest.fixture
def command(tmp_path: Path) -> str:
    return command_in(tmp_path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path]:
    """A run that nothing has disturbed, and the folder of its rig. Not to be changed."""
    folder = tmp_path_factory.mktemp("whole")
    with one_thread():
        return train(rig(), rig=command_in(folder), out=folder / "run", **SMOKE), folder


def steps(folder: Path, trial: int) -> int:
    record = Journal.read(folder / "real.journal").find(trial, 0)
    assert record is not None and isinstance(record.steps, Traces)
    return record.steps.steps


def test_the_command_makes_every_trial(whole: tuple[Run, Path]) -> None:
    run, folder = whole
    assert run.summary["real_samples"] == 20
    assert len((folder / "mode.calls").read_text().splitlines()) == 2
    kinds = [json.loads((folder / "run" / "trials" / f"000{k}-0.policy").read_text())["format"] for k in (0, 1)]
    assert kinds == ["samba-rl actions", "samba-rl policy"]


def test_the_command_gets_the_gate_of_several_experts(command: str, tmp_path: Path) -> None:
    with one_thread():
        run = train(rig(), rig=command, out=tmp_path / "run", policy={"experts": 2, "gate_hidden": [3]}, **SMOKE)
    assert run.summary["real_samples"] == 20
    record = json.loads((tmp_path / "run" / "trials" / "0001-0.policy").read_text())
    assert record["version"] == 2 and len(record["gate"][-1]["bias"]) == 2 and len(record["std"]) == 1
    assert len(record["observation"]["centre"]) == 1 and len(record["layers"][0]["weight"][0]) == 3
    # The experts are still apart: only the last one makes real trials.
    assert record["gate"][-1]["bias"] == [-1000.0, 0.0]


def test_an_emergency_stop_counts_and_pauses_the_run(command: str, tmp_path: Path) -> None:
    with one_thread():
        (tmp_path / "mode").write_text("stop 5")
        with pytest.raises(
            Paused, match=r"stopped at step 4: the command ended with exit code 1 \(the guard tripped\)"
        ):
            train(rig(), rig=command, out=tmp_path / "run", **SMOKE)
        assert steps(tmp_path / "run", 0) == 4
        (tmp_path / "mode").write_text("stop 0")  # before the first step: nothing to learn from
        with pytest.raises(Paused, match="stopped at step 0"):
            resume(tmp_path / "run", rig(), rig=command)
        (tmp_path / "mode").write_text("")
        with pytest.raises(UserError, match=r"a command runs its episodes; give it: --rig"):
            resume(tmp_path / "run", rig())
        run = resume(tmp_path / "run", rig(), rig=command)
    assert run.summary["real_samples"] == 14 and steps(tmp_path / "run", 2) == 10


def test_a_command_that_hangs_is_ended(command: str, tmp_path: Path) -> None:
    (tmp_path / "mode").write_text("hang 3")
    with one_thread(), pytest.raises(Paused, match="stopped at step 2: the command took more than 2 s"):
        train(rig(), rig=command, out=tmp_path / "run", real={"timeout": 2.0}, **SMOKE)
    assert steps(tmp_path / "run", 0) == 2


def test_a_log_with_a_mistake_stops_the_run_and_can_be_corrected(command: str, tmp_path: Path) -> None:
    (tmp_path / "mode").write_text("wrong 9")
    log = tmp_path / "run" / "trials" / "0000-0.csv"
    with one_thread():
        with pytest.raises(UserError, match=rf"'{re.escape(str(log))}', line 11, column 'x': nan.*Correct the file"):
            train(rig(), rig=command, out=tmp_path / "run", **SMOKE)
        assert len(Journal.read(tmp_path / "run" / "real.journal")) == 0
        log.write_text("\n".join(log.read_text().splitlines()[:10]) + "\n")
        (tmp_path / "mode").write_text("")
        resume(tmp_path / "run", rig(), rig=command)
    assert steps(tmp_path / "run", 0) == 8
    assert len((tmp_path / "mode.calls").read_text().splitlines()) == 2  # the first episode was not repeated


def test_what_the_rig_wrote_before_the_program_was_killed_is_taken_in(
    command: str, tmp_path: Path, whole: tuple[Run, Path]
) -> None:
    due, folder = whole
    with one_thread():
        (tmp_path / "mode").write_text("hang 3")
        with pytest.raises(Paused):
            train(rig(), rig=command, out=tmp_path / "run", real={"timeout": 2.0}, **SMOKE)
        # Killed after the command had ended and before its log was read.
        (tmp_path / "run" / "trials" / "0000-0.csv").write_bytes(
            (folder / "run" / "trials" / "0000-0.csv").read_bytes()
        )
        (tmp_path / "run" / "real.journal").write_bytes(b"samba_rl journal, format 1\n")
        for name in ("metrics.jsonl", "real.csv"):
            (tmp_path / "run" / name).write_bytes(b"")
        for path in (tmp_path / "run" / "checkpoints").rglob("*.*"):
            path.unlink()
        (tmp_path / "mode").write_text("")
        run = resume(tmp_path / "run", rig(), rig=command)
    assert same_policy(run, due)


class Killed(BaseException):
    """The program is killed."""


def test_a_command_that_outlives_the_program_is_not_joined_by_another(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of them would drive the same rig."""
    started: list[subprocess.Popen[bytes]] = []

    def killed(process: subprocess.Popen[bytes]) -> bytes:
        started.append(process)
        raise Killed

    (tmp_path / "mode").write_text("hang 3")
    (tmp_path / "run").mkdir()
    episode = UniformPolicy((-1.0,), (1.0,)), 0, 0, seeded(0)
    with monkeypatch.context() as patch:
        patch.setattr("samba_rl.runs.rig._ended", killed)
        with pytest.raises(Killed):
            CommandRig(command, rig(), tmp_path / "run", timeout=2.0)(*episode)
    with pytest.raises(UserError, match=r"started for '.*0000-0.csv' still runs; wait until it has ended"):
        CommandRig(command, rig(), tmp_path / "run")(*episode)
    started[0].kill()
    started[0].communicate()
    record = CommandRig(command, rig(), tmp_path / "run")(*episode)
    assert isinstance(record.steps, Traces) and record.steps.steps == 2  # what it wrote until then
    assert len((tmp_path / "mode.calls").read_text().splitlines()) == 1


@pytest.mark.parametrize("name", ["", "0000-0.policy", "0000-0.csv", ".lock"])
def test_no_link_in_the_folder_of_trials_is_followed(name: str, command: str, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    trials = tmp_path / "run" / "trials"
    (trials if name else trials.parent).mkdir(parents=True)
    if name:
        elsewhere.write_text("mine")
    else:
        elsewhere.mkdir()
    (trials / name).symlink_to(elsewhere)
    episode = UniformPolicy((-1.0,), (1.0,)), 0, 0, seeded(0)
    if name == "0000-0.policy":  # replaced, and the link with it
        CommandRig(command, rig(), tmp_path / "run")(*episode)
        assert not (trials / name).is_symlink()
    else:
        with pytest.raises((UserError, OSError), match="symbolic link"):
            CommandRig(command, rig(), tmp_path / "run")(*episode)
    assert elsewhere.read_text() == "mine" if name else not any(elsewhere.iterdir())


def test_a_pipe_in_the_place_of_a_log_is_not_waited_for(command: str, tmp_path: Path) -> None:
    (tmp_path / "run" / "trials").mkdir(parents=True)
    os.mkfifo(tmp_path / "run" / "trials" / "0000-0.csv")
    episode = UniformPolicy((-1.0,), (1.0,)), 0, 0, seeded(0)
    with pytest.raises(UserError, match=r"it is not a regular file\. Correct the file, or remove it"):
        CommandRig(command, rig(), tmp_path / "run")(*episode)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("./run_trial {policy}", r"does not say where \{trial\} goes"),
        ("./run_trial '{policy} {trial}", "cannot be read: No closing quotation"),
        ("./no-such-program {policy} {trial}", "cannot be run: .*No such file.*correct --rig"),
    ],
)
def test_a_command_that_cannot_be_is_refused(tmp_path: Path, command: str, words: str) -> None:
    with one_thread(), pytest.raises(UserError, match=words):
        train(rig(), rig=command, out=tmp_path / "run", **SMOKE)
    assert not (tmp_path / "run" / "config.json").exists()


def test_a_rig_needs_a_folder_and_a_policy_that_a_file_can_hold(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="needs a folder"):
        train(rig(), rig="./run {policy} {trial}", out=None, **SMOKE)
    with pytest.raises(UserError, match="whose policy is a network"):
        train(rig(), "planet", rig="./run {policy} {trial}", out=tmp_path / "run")


def test_a_task_without_a_world_needs_a_command(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="runs outside of this program"):
        train(rig(), out=tmp_path / "run", **SMOKE)
    assert isinstance(rig(), RigTask) and not (tmp_path / "run").exists()


def test_both_names_are_filled_in() -> None:
    words = parsed_command("ssh lab 'run {policy}' --out={trial}")
    assert filled(words, Path("a b"), Path("c")) == ["ssh", "lab", "run a b", "--out=c"]
