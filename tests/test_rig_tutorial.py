"""The commands of docs/rig.md, run as they stand but with a small budget; killed at any moment, they end the same."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from samba_rl import RigTask
from samba_rl.data.journal import Journal
from samba_rl.improve.experts import MixturePolicy, fresh_policy
from samba_rl.improve.policies import PolicySettings
from samba_rl.runs.policy_file import policy_record
from tests.cli.commands import DONE
from tests.runs.killing import KILLED, Nursery, nursery
from tests.runs.systems import cost, edge
from tests.traces import double, seeded

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "rig.md").read_text(encoding="utf-8")
SMALL = ["--preset", "smoke"]
FEW = 2
"""Trials of a test, instead of the eight of the page."""


def tutorial() -> list[list[str]]:
    """Return the commands of the page in order, up to the final policy, with the loop written out."""
    blocks = re.findall(r"```console\n(.*?)```", PAGE.split("## The policy file")[0], flags=re.S)
    lines, body = [], []
    for line in "".join(blocks).splitlines():
        mark, _, command = line.partition(" ")
        if mark == ">":
            body.append(command.strip())
        elif not command.startswith("for "):
            lines.append(command)
        else:
            lines.append("LOOP")
        if command == "done":
            at, inside = lines.index("LOOP"), [one for one in body if one != "done"]
            lines[at : at + 1] = inside * (FEW - 1)
    assert len(body) == 4 and "LOOP" not in lines
    return [shlex.split(line) for line in lines]


def small(command: list[str]) -> list[str]:
    """Return the command that makes the run with a budget of seconds."""
    if command[:2] != ["samba-rl", "new"]:
        return command
    kept = command[: command.index("--imagination.iterations")]
    kept[kept.index("--real-samples") + 1] = str(25 * FEW)
    return [*kept, *SMALL]


@pytest.fixture(scope="module")
def runs() -> Iterator[Nursery]:
    with nursery() as made:
        yield made


def follow(runs: Nursery, folder: Path, moments: dict[int, dict[str, Any]]) -> tuple[list[int], int]:
    """Follow the tutorial in a folder; kill the commands of these numbers at these moments, and repeat them.

    Returns the calls that each command of samba-rl made to the disk, and how many commands were killed.
    """
    folder.mkdir()
    for name in ("rig.py", "cart.py"):
        shutil.copy(ROOT / "examples" / "rig" / name, folder)
    calls: list[int] = []
    killed = 0
    for command in map(small, tutorial()):
        if command[0] == "python":
            done = subprocess.run([sys.executable, *command[1:]], cwd=folder, check=False, capture_output=True)
            assert done.returncode in (0, 3), done.stderr
            continue
        when = moments.get(len(calls), {})
        ended = runs.run("command", folder, arguments=command[1:], **when)
        if ended["code"] == KILLED:
            killed += 1
            again = command[1] != "new" or not (folder / "runs" / "cart" / "config.json").exists()
            ended = runs.run("command", folder, arguments=command[1:]) if again else {"code": 0, "calls": 0}
        assert ended["code"] in DONE, command
        calls.append(ended["calls"])
    return calls, killed


def assert_same(folder: Path, reference: Path) -> None:
    """Nothing is lost, and the policies are the same to the last bit."""
    for name in ("next.policy", "final.policy", "final.csv", "trial.csv", "runs/cart/policy.npz", "runs/cart/real.csv"):
        assert (folder / name).read_bytes() == (reference / name).read_bytes(), name
    ours, theirs = (Journal.read(each / "runs" / "cart" / "real.journal").digest for each in (folder, reference))
    assert ours == theirs
    rows = []
    for each in (folder, reference):
        lines = (each / "runs" / "cart" / "metrics.jsonl").read_text().splitlines()
        rows.append([{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines])
    assert rows[0] == rows[1]


@pytest.fixture(scope="module")
def whole(runs: Nursery, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """The folder of a tutorial that nothing disturbed, and the calls of each command."""
    folder = tmp_path_factory.mktemp("tutorial") / "whole"
    return folder, follow(runs, folder, {})[0]


def test_the_commands_of_the_page_lead_to_a_policy(whole: tuple[Path, list[int]]) -> None:
    folder, calls = whole
    verbs = [command[1] for command in tutorial() if command[0] == "samba-rl"]
    assert verbs == ["new", "tell", "ask", "tell", "status", *["ask", "tell"] * (FEW - 1), "ask"]
    assert len(calls) == len(verbs)
    record = json.loads((folder / "final.policy").read_text())
    assert record["format"] == "samba-rl policy" and record["observation"]["names"] == [
        "position",
        "velocity",
        "before",
    ]
    summary = json.loads((folder / "runs" / "cart" / "summary.json").read_text())
    assert summary["earlier_samples"] == 100 and summary["real_samples"] <= 25 * FEW


def example_rig() -> Any:
    """Return rig.py of the example as a module."""
    spec = importlib.util.spec_from_file_location("rig", ROOT / "examples" / "rig" / "rig.py")
    assert spec is not None and spec.loader is not None
    rig = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rig)
    return rig


def test_the_rig_draws_an_expert_for_each_episode() -> None:
    settings = PolicySettings(experts=2, apart=0, gate_hidden=(3,), std=1e-6)
    policy = fresh_policy(double([-4.0]), double([4.0]), torch.ones(2), torch.ones(2), settings, seeded(0), 1)
    assert isinstance(policy, MixturePolicy)
    policy.gate.weights.fill_(5.0)
    task = RigTask(["a", "b"], ["force"], low=-4, high=4, cost=cost, safety=edge, horizon=5, dt=0.1, name="two")
    record = json.loads(json.dumps(policy_record(task, policy, 0, {})))
    first, later, noise, rig = [0.3, -0.8], [2.0, 1.0], random.Random(0), example_rig()
    chance = float(policy.exact_logits(double([first])).softmax(-1)[0, 1])
    actions = policy.actor.act(double([[*later, 1.0, 0.0], [*later, 0.0, 1.0]]))[:, 0].tolist()
    assert 0.1 < chance < 0.9 and abs(actions[0] - actions[1]) > 1e-3
    taken = []
    for _ in range(400):
        controller = rig.controller(record, noise)
        controller(0, first)
        forces = [controller(step, later) for step in (1, 2)]
        assert forces[0] == pytest.approx(forces[1], abs=1e-4)  # the same expert for all of the episode
        taken.append(min((0, 1), key=lambda k: abs(actions[k] - forces[0])))
        assert forces[0] == pytest.approx(actions[taken[-1]], abs=1e-4)
    assert sum(taken) / 400 == pytest.approx(chance, abs=0.1)


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_the_exported_policy_runs_in_a_controller_in_c(runs: Nursery, whole: tuple[Path, list[int]]) -> None:
    folder, _ = whole
    shutil.copy(ROOT / "examples" / "rig" / "loop.c", folder)
    (block,) = re.findall(r"```console\n(.*?)```", PAGE.split("## The policy in C")[1].split("\n## ")[0], flags=re.S)
    export, compile_, drive = [shlex.split(line)[1:] for line in block.splitlines()]
    assert runs.run("command", folder, arguments=export[1:])["code"] == 0
    subprocess.run(compile_, cwd=folder, check=True)
    subprocess.run([sys.executable, *drive[1:]], cwd=folder, check=False)
    rows = [line.split(",") for line in (folder / "c.csv").read_text().splitlines()[1:]]
    taken = [row for row in rows if row[-1]]
    assert len(taken) > 3
    policy = json.loads((folder / "final.policy").read_text())
    policy["std"] = [0.0]
    still = example_rig().controller(policy, random.Random(0))
    for row in taken:
        assert float(row[-1]) == pytest.approx(still(0, [float(each) for each in row[1:4]]), abs=1e-6)


def disturbed(calls: list[int], seed: int) -> dict[int, dict[str, Any]]:
    """Draw a moment to die for about half of the commands: inside a write, or after some time."""
    draw, moments = random.Random(seed), {}
    for number, most in enumerate(calls):
        if most and draw.random() < 0.6:
            inside = draw.random() < 0.7
            moments[number] = {"call": draw.randint(1, most)} if inside else {"seconds": draw.uniform(0.01, 1.0)}
    return moments


def test_commands_that_are_killed_lose_nothing(runs: Nursery, whole: tuple[Path, list[int]], tmp_path: Path) -> None:
    reference, calls = whole
    _, killed = follow(runs, tmp_path / "run", disturbed(calls, 1))
    assert killed >= 3
    assert_same(tmp_path / "run", reference)


@pytest.mark.slow
def test_thirty_moments(runs: Nursery, whole: tuple[Path, list[int]], tmp_path: Path) -> None:
    reference, calls = whole
    killed, seed = 0, 2
    while killed < 30:
        killed += follow(runs, tmp_path / str(seed), disturbed(calls, seed))[1]
        assert_same(tmp_path / str(seed), reference)
        seed += 1


def test_the_page_shows_the_files_of_the_example() -> None:
    shown = re.search(r"```python\n(from samba_rl import Quantity.*?)```", PAGE, flags=re.S)
    assert shown is not None
    names: dict[str, Any] = {}
    exec(shown[1], names)
    own: dict[str, Any] = {}
    exec((ROOT / "examples" / "rig" / "cart.py").read_text(), own)
    one, other = names["task"](), own["task"]()
    assert [getattr(one, field) for field in ("states", "actions", "horizon", "dt", "name")] == [
        getattr(other, field) for field in ("states", "actions", "horizon", "dt", "name")
    ]
    assert os.path.exists(ROOT / "examples" / "rig" / "rig.py")
