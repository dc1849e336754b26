import importlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from samba_rl import UserError
from samba_rl.data import DataSet, Schema
from tests.data.examples import SCHEMA, full, same, steps


@pytest.fixture
def minari(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("h5py")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return pytest.importorskip("minari")


def test_minari_reads_what_was_written(minari: Any) -> None:
    data = full({6: 3, 2: 2}, ends=(2,))
    data.to_minari("cart/real-v3", action_bounds=([-9.0], [9.0]), env="Pendulum-v1", author="me")
    dataset = minari.load_dataset("cart/real-v3")
    first, second = dataset.iterate_episodes()
    t = data.transitions
    assert np.array_equal(first.observations, [*t.x[:3], t.x_next[2]]) and np.array_equal(first.actions, t.u[:3])
    assert np.array_equal(second.rewards, -t.cost[3:])
    assert first.terminations.tolist() == [False] * 3 and first.truncations.tolist() == [False, False, True]
    assert second.terminations.tolist() == [False, True] and second.truncations.tolist() == [False, False]
    assert np.array_equal(first.infos["safety"][1:], t.safety[:3]) and first.infos["safety"].shape == (4, 2)
    assert np.array_equal(first.infos["violation"][1:], t.violation[:3]) and first.infos["cost"].shape == (4,)
    assert dataset.action_space.high.tolist() == [9] and dataset.observation_space.shape == (2,)
    assert dataset.env_spec.id == "Pendulum-v1" and dataset.storage.metadata["author"] == {"me"}
    assert "cart/real-v3" in minari.list_local_datasets()
    assert importlib.import_module("minari.namespace").list_local_namespaces() == ["cart"]


def test_overwriting_must_be_requested(minari: Any, tmp_path: Path) -> None:
    full({0: 3}).to_minari("real-v0")
    with pytest.raises(UserError, match=r"'real-v0' already exists at .*; give another id or overwrite=True"):
        full({0: 5}).to_minari("real-v0")
    assert len(DataSet.from_minari("real-v0")) == 3
    full({0: 5}).to_minari("real-v0", overwrite=True)
    assert len(DataSet.from_minari("real-v0")) == 5
    full({0: 5}).to_minari("group-v0/real-v0")
    with pytest.raises(UserError, match=r"'group-v0' already exists at .*; it is not a dataset"):
        full({0: 5}).to_minari("group-v0", overwrite=True)
    assert sorted(os.listdir(tmp_path)) == ["group-v0", "real-v0"]


@pytest.mark.parametrize("failing", ["update_episodes", "first move", "second move"])
def test_a_failed_write_leaves_the_old_dataset(
    minari: Any, failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full({0: 3}).to_minari("real-v0")
    storage = importlib.import_module("minari.dataset._storages.hdf5_storage").HDF5Storage
    write, move, moves = storage.update_episodes, os.replace, [failing == "first move", failing == "second move"]

    def half(self: Any, episodes: Any) -> None:
        write(self, episodes[:1])
        raise OSError("no space left on device")

    def moving(source: Any, target: Any) -> None:
        if moves and moves.pop(0):
            raise OSError("no space left on device")
        move(source, target)

    if failing == "update_episodes":
        monkeypatch.setattr(storage, "update_episodes", half)
    monkeypatch.setattr(os, "replace", moving)
    with pytest.raises(OSError, match="no space left"):
        full({0: 5, 1: 5}).to_minari("real-v0", overwrite=True)
    assert os.listdir(tmp_path) == ["real-v0"] and os.environ["MINARI_DATASETS_PATH"] == str(tmp_path)
    assert same(DataSet.from_minari("real-v0").transitions, steps({0: 3}))


def test_bad_exports(minari: Any, tmp_path: Path) -> None:
    data = full({3: 4})
    top = float(data.transitions.u.max())
    row = int(data.transitions.u.argmax())
    for message, request in (
        (rf"episode 3, step {row}: 'torque' is {top!r}, outside", {"action_bounds": ([-9.0], [np.nextafter(top, -9)])}),
        ("action_bounds has 2 lows and 1 highs for 1 actions", {"action_bounds": ([-1.0, 1.0], [9.0])}),
        ("to_minari has no argument 'autor'; did you mean 'author'", {"autor": "me"}),
        ("env = 'Nowhere-v0' cannot be created", {"env": "Nowhere-v0"}),
        ("'real' is not a Minari dataset id", {"dataset_id": "real"}),
        ("'../real-v0' is not a Minari dataset id", {"dataset_id": "../real-v0"}),
    ):
        arguments: dict[str, Any] = {"dataset_id": "real-v0", **request}
        with pytest.raises(UserError, match=message):
            data.to_minari(**arguments)
    assert os.listdir(tmp_path) == []


def foreign(minari: Any, **changes: Any) -> str:
    """Write a dataset of two float32 episodes as another program would, and return its id."""
    spaces = importlib.import_module("gymnasium.spaces")
    buffer = importlib.import_module("minari.data_collector").EpisodeBuffer
    box = spaces.Box(-9, 9, (2,), np.float32)
    rng = np.random.default_rng(0)
    episodes = [
        {
            "observations": rng.normal(size=(n + 1, 2)).astype(np.float32),
            "actions": rng.normal(size=(n, 2)).astype(np.float32),
            "rewards": np.arange(n),
            "terminations": np.array([False] * (n - 1) + [True]),
            "truncations": np.zeros(n, bool),
        }
        for n in (3, 4)
    ]
    episodes[1] |= changes.pop("second", {})
    request = {"observation_space": box, "action_space": box} | changes
    minari.create_dataset_from_buffers("other/set-v0", [buffer(**episode) for episode in episodes], **request)
    return "other/set-v0"


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_foreign_dataset(minari: Any) -> None:
    name = foreign(minari)
    with pytest.raises(
        UserError, match=r"'other/set-v0' has no safety costs; give safety=, a function \(states reached"
    ):
        DataSet.from_minari(name)
    data = DataSet.from_minari(name, safety=lambda x, u: x[:, 0].abs() + u[:, 1])
    t = data.transitions
    assert data.schema == Schema(("x0", "x1"), ("u0", "u1"), ("c0",)) and t.episode.tolist() == [0] * 3 + [1] * 4
    first = minari.load_dataset(name)[0]
    assert first.observations.dtype == np.float32 and np.array_equal(t.x[:3], first.observations[:-1].astype(float))
    assert t.cost.tolist() == [0, -1, -2, 0, -1, -2, -3] and t.terminated.nonzero()[:, 0].tolist() == [2, 6]
    assert torch.equal(t.safety[:, 0], t.x_next[:, 0].abs() + t.u[:, 1]) and torch.equal(t.violation, t.safety > 0)
    named = Schema(("a", "b"), ("c", "d"), ("e", "f"))
    two = DataSet.from_minari(name, schema=named, safety=lambda x, u: x, violation=lambda x, u: u > 1)
    assert two.schema == named and torch.equal(two.transitions.violation, two.transitions.u > 1)
    for message, request in (
        (r"safety of 7 steps has shape \[7, 1\]; .* needs \[7, 2\]", {"schema": named, "safety": lambda x, u: x[:, 0]}),
        (
            r"safety= returned \[3\] for 7 steps; it must return a tensor \[7\] or \[7, m\]",
            {"safety": lambda x, u: x[:3, 0]},
        ),
        ("safety= returned list for 7 steps", {"safety": lambda x, u: x.tolist()}),
        ("episode 0, step 0: 'safety:c0' is inf", {"safety": lambda x, u: x[:, 0] / 0.0 * x[:, 0]}),
        ("violation is of type torch.float64", {"safety": lambda x, u: x, "violation": lambda x, u: x}),
    ):
        with pytest.raises(UserError, match=message):
            DataSet.from_minari(name, **request)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"observations": np.zeros((4, 2))}, "episode 1: 4 observations for 4 steps; there must be 5"),
        ({"truncations": np.array([False, True, False, False])}, "episode 1: truncated at step 1 of 4"),
        ({"terminations": np.array([True, False, False, False])}, "episode 1 is terminated at step 0"),
        ({"actions": np.full((4, 2), np.nan)}, "episode 1, step 0: 'u:u0' is nan"),
        (
            {"infos": {"safety": np.zeros((5, 1)), "violation": np.zeros((5, 1), bool)}},
            "safety costs in only 1 of 2 episodes",
        ),
    ],
)
def test_broken_foreign_datasets(minari: Any, second: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=rf"'other/set-v0'.*{message}"):
        DataSet.from_minari(foreign(minari, second=second), safety=lambda x, u: x)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_only_vectors_are_accepted(minari: Any) -> None:
    spaces = importlib.import_module("gymnasium.spaces")
    box = spaces.Box(-9, 9, (2,), np.float32)
    buffer = importlib.import_module("minari.data_collector").EpisodeBuffer
    parts = {"rewards": [0.0], "terminations": [True], "truncations": [False]}
    for name, space, values, observed in (
        (
            "dict-v0",
            spaces.Dict({"goal": box}),
            {"goal": np.zeros((2, 2), np.float32)},
            "observations in a Dict",
        ),
        (
            "image-v0",
            spaces.Box(-9, 9, (2, 2)),
            np.zeros((2, 2, 2), np.float32),
            r"observations in a Box \(2, 2\)",
        ),
        ("cell-v0", spaces.Discrete(3), np.zeros(2, np.int64), "observations in a Discrete"),
    ):
        episode = buffer(observations=values, actions=np.zeros((1, 2), np.float32), **parts)
        minari.create_dataset_from_buffers(name, [episode], observation_space=space, action_space=box)
        with pytest.raises(UserError, match=f"'{name}' has {observed}.*; a data set holds vectors"):
            DataSet.from_minari(name, safety=lambda x, u: x)


def test_bad_imports(minari: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no Minari dataset 'real-v0' at .*; no datasets are stored there"):
        DataSet.from_minari("real-v0")
    full({0: 3}).to_minari("real-v0")
    with pytest.raises(UserError, match=r"there is no Minari dataset 'real-v1' at .*did you mean 'real-v0'"):
        DataSet.from_minari("real-v1")
    with pytest.raises(UserError, match="'real' is not a Minari dataset id"):
        DataSet.from_minari("real")
    with pytest.raises(UserError, match="has safety costs of its own; leave safety= and violation= out"):
        DataSet.from_minari("real-v0", safety=lambda x, u: x)
    with pytest.raises(UserError, match="leave schema= out"):
        DataSet.from_minari("real-v0", schema=Schema(("a", "b"), ("u",), ("c", "d")))
    metadata = tmp_path / "real-v0" / "data" / "metadata.json"
    metadata.write_text(metadata.read_text().replace('"total_steps": 3', '"total_steps": 4'))
    with pytest.raises(UserError, match="'real-v0' has 3 steps, but its metadata says 4"):
        DataSet.from_minari("real-v0")
    (tmp_path / "real-v0" / "data" / "main_data.hdf5").write_bytes(b"torn")
    with pytest.raises(UserError, match="Minari dataset 'real-v0' cannot be read: OSError"):
        DataSet.from_minari("real-v0")


def test_combined_datasets_keep_their_numbers(minari: Any) -> None:
    full({4: 3}).to_minari("a-v0")
    full({2: 2}).to_minari("b-v0")
    minari.combine_datasets([minari.load_dataset("a-v0"), minari.load_dataset("b-v0")], "both-v0")
    both = DataSet.from_minari("both-v0", schema=SCHEMA)
    assert same(both.transitions, full({4: 3}).append(steps({2: 2})).transitions)
    minari.combine_datasets([minari.load_dataset("a-v0"), minari.load_dataset("a-v0")], "twice-v0")
    with pytest.raises(UserError, match=r"'twice-v0': episode 4 has step 0 in place of step 3"):
        DataSet.from_minari("twice-v0", schema=SCHEMA)
