"""Exported files give the actions of the policy, and files that are none are explained."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from samba_rl import SafePendulum, UserError
from samba_rl.export.description import Description
from samba_rl.export.formats import FORMATS, write
from samba_rl.improve.experts import MixturePolicy, fresh_policy
from samba_rl.improve.policies import GaussianPolicy, PolicySettings
from samba_rl.runs.policy_file import policy_record, write_record
from tests.export.policies import a_policy, observations
from tests.traces import seeded

SUFFIXES = sorted(FORMATS)
PLAIN = (".json", ".npz")


def needs(suffix: str) -> None:
    if suffix == ".onnx":
        pytest.importorskip("onnx")


def test_the_description_is_the_network_within_the_bounds() -> None:
    policy = a_policy(hidden=())
    ((weight, bias),) = policy.layers
    x = np.array([1.3, 0.0004, -5.2])
    raw = weight @ np.array([0.15, 0.4, -0.4]) + bias
    wanted = np.array([0.0, 0.4]) + np.array([2.0, 0.3]) * 1.1 * np.tanh(raw / 1.1)
    found = policy(x[None])
    assert found.action[0] == pytest.approx(np.clip(wanted, [-2, 0.1], [2, 0.7]), rel=1e-12)
    assert policy.monitor is not None and found.monitor is not None
    nearest = min(np.linalg.norm((x - point) / policy.monitor.scale) for point in policy.monitor.points)
    assert found.monitor[0] == pytest.approx(nearest / 0.25, rel=1e-12)


def test_the_expert_that_the_gate_rates_highest_at_the_start_acts_by_its_own_inputs() -> None:
    policy = a_policy(hidden=(), experts=3)
    ((gate_weight, gate_bias),) = policy.gate
    ((weight, bias),) = policy.layers
    x, chosen = np.array([[1.3, 0.0004, -5.2]]), set()
    for first in observations(policy, 50):
        normal = (first - policy.centre) / policy.scale
        expert = int(np.argmax(gate_weight @ normal + gate_bias))
        raw = weight[:, :3] @ np.array([0.15, 0.4, -0.4]) + weight[:, 3 + expert] + bias
        wanted = np.array([0.0, 0.4]) + np.array([2.0, 0.3]) * 1.1 * np.tanh(raw / 1.1)
        found = policy(x, first[None])
        assert found.expert is not None and found.expert.tolist() == [expert]
        assert found.action[0] == pytest.approx(np.clip(wanted, [-2, 0.1], [2, 0.7]), rel=1e-12)
        chosen.add(expert)
    assert chosen == {0, 1, 2}


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("hidden", [(7, 5), ()])
def test_a_file_keeps_the_expert_that_the_first_observation_chose(
    suffix: str, hidden: tuple[int, ...], tmp_path: Path
) -> None:
    needs(suffix)
    policy, path = a_policy(experts=3, hidden=hidden), tmp_path / f"policy{suffix}"
    write(policy, path)
    x, first = observations(policy), observations(policy, seed=2)
    loaded = FORMATS[suffix].load(path)
    found, due = loaded(x, first), policy(x, first)
    assert found.expert is not None and due.expert is not None
    assert np.unique(due.expert).tolist() == [0, 1, 2]
    here = policy(x).expert  # what these observations would have chosen, had they been the first
    assert here is not None and float((here != due.expert).mean()) > 0.2
    same = found.expert == due.expert
    # In float32 a choice between two that are rated alike may differ.
    assert same.all() or (suffix == ".onnx" and same.mean() > 0.999)
    assert np.abs(found.action - due.action)[same].max() < (2e-5 if suffix == ".onnx" else 1e-12)
    assert found.monitor is not None and due.monitor is not None
    assert np.abs(found.monitor / due.monitor - 1).max() < 2e-5
    alone = loaded(x[:200]).expert
    assert alone is not None and float((alone == here[:200]).mean()) > 0.99


@pytest.mark.parametrize(
    ("suffix", "digest"),
    [(".h", "92f52c80244123fc"), (".json", "68c28959a69633ce")],
)
def test_files_with_a_single_expert_are_what_they_have_always_been(suffix: str, digest: str) -> None:
    assert hashlib.sha256(FORMATS[suffix].encode(a_policy(), "policy")).hexdigest()[:16] == digest


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("squash", [1.1, None])
def test_a_file_gives_the_actions_and_the_monitor_of_the_policy(
    suffix: str, squash: float | None, tmp_path: Path
) -> None:
    needs(suffix)
    policy, path = a_policy(squash=squash), tmp_path / f"policy{suffix}"
    write(policy, path)
    x = observations(policy)
    found, due = FORMATS[suffix].load(path)(x), policy(x)
    # ONNX computes in float32.
    tolerance = 2e-5 if suffix == ".onnx" else 1e-12
    assert np.abs(found.action - due.action).max() < tolerance
    assert found.monitor is not None and due.monitor is not None
    assert np.abs(found.monitor / due.monitor - 1).max() < tolerance
    assert (found.action >= policy.low).all() and (found.action <= policy.high).all()
    assert (due.action == policy.high).any() and (due.action == policy.low).any()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_policy_without_monitor_or_hidden_layers_can_be_written(suffix: str, tmp_path: Path) -> None:
    needs(suffix)
    policy, path = a_policy(hidden=(), monitor=False), tmp_path / f"1 käfer{suffix}"
    write(policy, path)
    x = observations(policy, 50)
    found = FORMATS[suffix].load(path)(x)
    assert found.monitor is None and np.abs(found.action - policy(x).action).max() < 1e-5


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("experts", [1, 3])
def test_the_same_policy_gives_the_same_bytes(suffix: str, experts: int) -> None:
    needs(suffix)
    one, other = (FORMATS[suffix].encode(a_policy(experts=experts), "policy") for _ in range(2))
    assert one == other


@pytest.mark.parametrize("suffix", PLAIN)
@pytest.mark.parametrize("experts", [1, 3])
def test_plain_files_keep_every_number_and_name(suffix: str, experts: int, tmp_path: Path) -> None:
    policy, path = a_policy(experts=experts), tmp_path / f"policy{suffix}"
    write(policy, path)
    found = FORMATS[suffix].load(path)
    assert isinstance(found, Description)
    assert found.observations == policy.observations and found.actions == policy.actions
    assert found.provenance == policy.provenance and found.squash == policy.squash
    assert found.dt == 0.02
    for name in ("centre", "scale", "low", "high", "std"):
        assert getattr(found, name).tolist() == getattr(policy, name).tolist()
    for mine, its in zip((*policy.gate, *policy.layers), (*found.gate, *found.layers), strict=True):
        assert mine.weight.tolist() == its.weight.tolist() and mine.bias.tolist() == its.bias.tolist()


def test_json_has_the_documented_layout() -> None:
    value = json.loads(FORMATS[".json"].encode(a_policy(), "policy"))
    assert list(value) == [
        "format", "version", "observation", "action", "dt", "layers", "activation", "std", "monitor", "provenance"
    ]  # fmt: skip
    assert value["format"] == "samba-rl policy" and value["version"] == 1 and value["activation"] == "tanh"
    assert value["action"] == {
        "names": ["force", "torque"], "low": [-2.0, 0.1], "high": [2.0, 0.7], "squash": 1.1
    }  # fmt: skip
    assert [len(layer["bias"]) for layer in value["layers"]] == [7, 5, 2]
    several = json.loads(FORMATS[".json"].encode(a_policy(experts=3), "policy"))
    assert several["version"] == 2 and set(several) - set(value) == {"gate"}
    assert [len(layer["bias"]) for layer in several["gate"]] == [7, 5, 3]
    assert len(several["layers"][0]["weight"][0]) == 3 + 3  # a column for each expert


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("damage", ["empty", "other", "cut", "missing", "folder"])
def test_files_that_are_no_policy_are_explained(suffix: str, damage: str, tmp_path: Path) -> None:
    needs(suffix)
    policy, path = a_policy(), tmp_path / f"policy{suffix}"
    write(policy, path)
    packed = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage != "missing":
        path.write_bytes({"empty": b"", "other": b'{"a": 1}\n', "cut": packed[: len(packed) // 2]}[damage])
    with pytest.raises(UserError, match=r"policy\."):
        FORMATS[suffix].load(path)(observations(policy, 3))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 3}, "has version 3; this version of samba_rl reads versions 1 and 2"),
        ({"version": 2}, "it has no 'gate'"),
        ({"version": 2, "gate": [{"weight": [[1, 2, 3], [1, 2, 3]], "bias": [0, 0]}]}, r"weight 0 is \[7, 3\]; .* 5\]"),
        ({"version": 2, "gate": [{"weight": [[1, 2], [1, 2]], "bias": [0, 0]}]}, r"gate's weight 0 is \[2, 2\]"),
        ({"activation": "relu"}, "activation is 'relu'; only 'tanh' is known"),
        ({"layers": []}, "its network gives 3 numbers for 2 actions"),
        ({"std": [1.0]}, r"std is \[1\]; expected \[2\]"),
        ({"std": ["a", "b"]}, "damaged"),
        ({"dt": 0}, "or dt is not positive"),
        ({"action": None}, "'action' is not a group"),
        ({"monitor": {"points": [], "scale": [1, 1, 1], "radius": 1}}, r"points is \[0\]; expected"),
        ({"observation": {"names": ["x"], "centre": [0], "scale": [1]}}, r"weight 0 is \[7, 3\]; expected \[7, 1\]"),
    ],
)
def test_json_that_makes_no_sense_is_explained(change: dict[str, object], words: str, tmp_path: Path) -> None:
    value = json.loads(FORMATS[".json"].encode(a_policy(), "policy"))
    path = tmp_path / "policy.json"
    path.write_text(json.dumps({**value, **change}))
    with pytest.raises(UserError, match=words):
        FORMATS[".json"].load(path)


def test_a_pickle_in_an_npz_file_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "policy.npz"
    np.savez(path, format=np.array([{}], dtype=object))
    with pytest.raises(UserError, match="damaged or no policy file"):
        FORMATS[".npz"].load(path)


def test_the_policy_file_of_a_trial_with_several_experts_is_read_like_an_exported_one(tmp_path: Path) -> None:
    task, settings = SafePendulum(), PolicySettings(experts=3, apart=0, gate_hidden=(5,))
    centre, scale = task.observation_scale(torch.zeros(1, 2, dtype=torch.float64))
    policy = fresh_policy(*task.action_bounds(), centre, scale, settings, seeded(3), 1)
    assert isinstance(policy, MixturePolicy)
    policy.gate.weights.fill_(10.0)
    write_record(tmp_path / "next.json", policy_record(task, policy, 0, {"trial": 3}))
    found = FORMATS[".json"].load(tmp_path / "next.json")
    assert isinstance(found, Description) and found.experts == 3
    first, x = np.random.default_rng(0).normal(size=(2, 500, 3)) * 2
    acting = policy.begin(500)
    assert np.abs(acting.act(first) - found(first).action).max() < 1e-12
    assert np.abs(acting.act(x) - found(x, first).action).max() < 1e-12
    assert len(np.unique(found.ratings(first).argmax(1))) > 1
    # In trials the expert is drawn, by the logits in the file.
    assert found.ratings(first) == pytest.approx(policy.exact_logits(torch.from_numpy(first)).numpy(), abs=1e-12)
    assert found.std == pytest.approx(policy.std.detach().numpy())


def test_the_policy_file_of_a_trial_is_read_like_an_exported_one(tmp_path: Path) -> None:
    """`samba-rl ask` writes the same layout, without a monitor."""
    task = SafePendulum()
    centre, scale = task.observation_scale(torch.zeros(1, 2, dtype=torch.float64))
    policy = GaussianPolicy(*task.action_bounds(), centre, scale, PolicySettings(), seeded(3))
    write_record(tmp_path / "next.json", policy_record(task, policy, 0, {"trial": 3}))
    found = FORMATS[".json"].load(tmp_path / "next.json")
    assert isinstance(found, Description) and found.monitor is None and found.dt == task.dt
    assert found.observations == tuple(one.name for one in task.observations)
    x = np.random.default_rng(0).normal(size=(500, 3)) * 4
    assert np.abs(found(x).action - policy.act(x)).max() < 1e-12
    assert found.std == pytest.approx(policy.std.detach().numpy())
