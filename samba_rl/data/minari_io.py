"""Transitions as Minari datasets."""

from __future__ import annotations

import dataclasses
import importlib
import os
import secrets
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from samba_rl.data.files import needed
from samba_rl.data.schema import FIELDS, Schema, blocks, exact, room, step_in_words
from samba_rl.errors import UserError, did_you_mean
from samba_rl.types import Transitions

Bounds: TypeAlias = tuple[Sequence[float], Sequence[float]]
"""Lows [nu] and highs [nu] of the actions."""
OfSteps: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""Maps states reached [N, nx] and actions [N, nu] to values [N] or [N, m]."""

_ABOUT = ("author", "author_email", "algorithm_name", "code_permalink", "description")


def write_minari(
    dataset_id: str,
    schema: Schema,
    steps: Transitions,
    *,
    env: str | None,
    action_bounds: Bounds | None,
    overwrite: bool,
    about: Mapping[str, str],
) -> None:
    """Write a Minari dataset: see `DataSet.to_minari`."""
    minari = _minari()
    for key in about:
        if key not in _ABOUT:
            raise UserError(f"to_minari has no argument '{key}'; {did_you_mean(key, _ABOUT)}")
    gymnasium = importlib.import_module("gymnasium")
    low, high = _bounds(schema, steps, action_bounds)
    spaces = {
        "observation_space": gymnasium.spaces.Box(-np.inf, np.inf, (len(schema.states),), np.float64),
        "action_space": gymnasium.spaces.Box(low, high, low.shape, np.float64),
    }
    buffers = [_to_episode(steps, rows) for rows in blocks(steps.episode)]
    with _new_minari_dataset(dataset_id, overwrite=overwrite), warnings.catch_warnings():
        # Minari warns about every entry of `about` that is missing.
        warnings.simplefilter("ignore", UserWarning)
        try:
            made = minari.create_dataset_from_buffers(
                dataset_id, buffers, env=env, data_format="hdf5", **spaces, **about
            )
        except gymnasium.error.Error as error:
            raise UserError(f"to_minari: env = {env!r} cannot be created: {error}") from error
        made.storage.update_metadata({"samba_rl": dataclasses.asdict(schema)})


def read_minari(
    where: str, dataset_id: str, *, schema: Schema | None, safety: OfSteps | None, violation: OfSteps | None
) -> tuple[Schema, Transitions]:
    """Read a Minari dataset: see `DataSet.from_minari`; `where` names it in errors."""
    names, episodes = _load_minari(where, dataset_id)
    if names is not None and schema not in (None, names):
        raise UserError(f"{where} has the columns {names}, not {schema}; leave schema= out")
    schema = names if schema is None else schema
    own = [_has_safety(episode) for episode in episodes]
    if any(own) and not all(own):
        raise UserError(f"{where} has safety costs in only {own.count(True)} of {len(own)} episodes; split it first")
    if any(own) and (safety is not None or violation is not None):
        raise UserError(f"{where} has safety costs of its own; leave safety= and violation= out")
    if not all(own) and safety is None:
        raise UserError(
            f"{where} has no safety costs; give safety=, a function (states reached [N, nx], actions [N, nu]) -> "
            "[N] or [N, m]"
        )
    if not episodes:
        if schema is None:
            raise UserError(f"{where} has neither episodes nor column names; give schema=")
        return schema, room(schema, 0)
    steps = _from_episodes(where, episodes, safety, violation)
    if schema is None:
        widths = (("x", steps.x), ("u", steps.u), ("c", steps.safety))
        schema = Schema(*(tuple(f"{letter}{i}" for i in range(values.shape[1])) for letter, values in widths))
    return schema, steps


def _minari() -> Any:
    needed("h5py", "h5py", "Minari")
    return needed("minari", "minari", "Minari")


def _bounds(schema: Schema, steps: Transitions, given: Bounds | None) -> tuple[Any, Any]:
    """Return the lows and highs of the actions [nu]; raise UserError if an action lies outside."""
    names = schema.actions
    low, high = given or ((-np.inf,) * len(names), (np.inf,) * len(names))
    if not len(low) == len(high) == len(names):
        raise UserError(f"to_minari: action_bounds has {len(low)} lows and {len(high)} highs for {len(names)} actions")
    for i, name in enumerate(names):
        u = steps.u[:, i]
        outside = ~((u >= low[i]) & (u <= high[i]))
        if outside.any():
            row = int(outside.nonzero()[0])
            raise UserError(
                f"to_minari: {step_in_words(steps, row)}: '{name}' is {u[row].item()!r}, outside "
                f"action_bounds {low[i]}..{high[i]}; widen them"
            )
    return np.array(low, np.float64), np.array(high, np.float64)


def _to_episode(steps: Transitions, rows: slice) -> Any:
    """Return Minari's buffer of one episode."""

    def after_reset(values: Tensor) -> Any:
        return torch.cat([torch.zeros_like(values[:1]), values]).numpy()

    terminated = steps.terminated[rows]
    truncated = torch.zeros_like(terminated)
    truncated[-1] = ~terminated[-1]
    return importlib.import_module("minari.data_collector").EpisodeBuffer(
        observations=torch.cat([steps.x[rows], steps.x_next[rows][-1:]]).numpy(),
        actions=steps.u[rows].numpy(),
        rewards=(-steps.cost[rows]).numpy(),
        terminations=terminated.numpy(),
        truncations=truncated.numpy(),
        infos={
            "cost": after_reset(steps.safety[rows].sum(1)),
            "safety": after_reset(steps.safety[rows]),
            "violation": after_reset(steps.violation[rows]),
            "episode": steps.episode[rows][[0]].expand(len(terminated) + 1).numpy(),
        },
    )


def _minari_path(dataset_id: str) -> Path:
    """Return the folder of a dataset in Minari's storage."""
    try:
        importlib.import_module("minari.dataset.minari_dataset").parse_dataset_id(dataset_id)
    except (TypeError, ValueError) as error:
        raise UserError(f"'{dataset_id}' is not a Minari dataset id; give one like 'pendulum/real-v0'") from error
    return Path(importlib.import_module("minari.storage.datasets_root_dir").get_dataset_path(dataset_id))


@contextmanager
def _new_minari_dataset(dataset_id: str, *, overwrite: bool) -> Iterator[None]:
    """Have Minari write to a temporary folder, and move the dataset to its place once it is whole and on disk."""
    target = _minari_path(dataset_id)
    if target.exists() and not (overwrite and (target / "data").is_dir()):
        way = "it is not a dataset, so give another id" if overwrite else "give another id or overwrite=True"
        raise UserError(f"to_minari: '{dataset_id}' already exists at '{target}'; {way}")
    # Minari ignores folders whose names begin with a dot.
    aside = target.parents[dataset_id.count("/")] / f".samba-{secrets.token_hex(8)}"
    old = aside / "old"
    aside.mkdir()
    try:
        with _environment("MINARI_DATASETS_PATH", str(aside)):
            yield
        for path in aside.rglob("*.*"):
            with open(path, "rb+") as file:
                os.fsync(file.fileno())
        namespaces, namespace = importlib.import_module("minari.namespace"), dataset_id.rpartition("/")[0]
        if namespace and namespace not in namespaces.list_local_namespaces():
            namespaces.create_namespace(namespace)
        if target.exists():
            os.replace(target, old)
        os.replace(aside / dataset_id, target)
    finally:
        if old.exists() and not target.exists():
            os.replace(old, target)
        shutil.rmtree(aside)


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
        os.environ.update({} if before is None else {name: before})


def _load_minari(where: str, dataset_id: str) -> tuple[Schema | None, list[Any]]:
    """Return the column names of a dataset, if it has them, and its episodes."""
    minari, box = _minari(), importlib.import_module("gymnasium.spaces").Box
    path = _minari_path(dataset_id)
    if not (path / "data").exists():
        known = list(minari.list_local_datasets())
        hint = did_you_mean(dataset_id, known) if known else "no datasets are stored there"
        raise UserError(f"there is no {where} at '{path}'; {hint}")
    try:
        dataset = minari.load_dataset(dataset_id)
        episodes = list(dataset.iterate_episodes())
        names = dataset.storage.metadata.get("samba_rl")
        schema = None if names is None else Schema(**names)
        found, due = sum(map(len, episodes)), dataset.total_steps
    except Exception as error:
        # Each storage raises errors of its own.
        raise UserError(f"{where} cannot be read: {type(error).__name__}: {error}") from error
    if found != due:
        raise UserError(f"{where} has {found} steps, but its metadata says {due}; restore or write it again")
    for what, space in (("observations", dataset.observation_space), ("actions", dataset.action_space)):
        if not isinstance(space, box) or len(space.shape) != 1:
            raise UserError(
                f"{where} has {what} in a {type(space).__name__} {space.shape or ''}; a data set holds vectors (a "
                "one-dimensional Box), so flatten them and write a new dataset first"
            )
    return schema, episodes


def _from_episodes(where: str, episodes: list[Any], safety: OfSteps | None, violation: OfSteps | None) -> Transitions:
    """Return the transitions of Minari's episodes, with their own safety costs or those of the functions."""
    parts: dict[str, list[Tensor]] = {name: [] for name in FIELDS}
    highest = -1
    for episode in episodes:
        part = _from_episode(f"{where}, episode {episode.id}", episode, highest + 1)
        highest = max([highest, *part["episode"].tolist()])
        for name, values in part.items():
            parts[name].append(values)
    columns = {name: torch.cat(values) for name, values in parts.items() if values}
    if safety is not None:
        reached, actions = columns["x_next"], columns["u"]
        costs = _judge("safety", safety, reached, actions)
        unsafe = costs > 0 if violation is None else _judge("violation", violation, reached, actions)
        columns |= {"safety": costs, "violation": unsafe}
    return Transitions(**columns)


def _from_episode(where: str, episode: Any, number: int) -> dict[str, Tensor]:
    """Return the columns of one of Minari's episodes, numbered `number` unless it has a number of its own."""

    def taken(what: str, values: Any, rows: int, dtype: torch.dtype) -> Tensor:
        if len(values) != rows:
            raise UserError(f"{where}: {len(values)} {what} for {n} steps; there must be {rows}")
        try:
            tensor = torch.from_numpy(np.array(values))
        except TypeError as error:
            raise UserError(f"{where}: {what} cannot be read: {error}") from error
        return exact(f"{where}: {what}", tensor, dtype)

    n, infos = len(episode.rewards), episode.infos or {}
    states = taken("observations", episode.observations, n + 1, torch.float64)
    truncated = taken("truncations", episode.truncations, n, torch.bool)
    if truncated[:-1].any():
        raise UserError(f"{where}: truncated at step {int(truncated.nonzero()[0])} of {n}; only the last step may be")
    columns = {
        "x": states[:-1],
        "u": taken("actions", episode.actions, n, torch.float64),
        "x_next": states[1:],
        "cost": -taken("rewards", episode.rewards, n, torch.float64),
        "terminated": taken("terminations", episode.terminations, n, torch.bool),
        "episode": torch.full((n,), number, device="cpu"),
        "step": torch.arange(n, device="cpu"),
    }
    if "episode" in infos:
        columns["episode"] = taken("infos 'episode'", infos["episode"], n + 1, torch.int64)[1:]
    if _has_safety(episode):
        columns["safety"] = _by_constraint(taken("infos 'safety'", infos["safety"], n + 1, torch.float64)[1:])
        columns["violation"] = _by_constraint(taken("infos 'violation'", infos["violation"], n + 1, torch.bool)[1:])
    return columns


def _has_safety(episode: Any) -> bool:
    return {"safety", "violation"} <= set(episode.infos or {})


def _by_constraint(values: Tensor) -> Tensor:
    """Reshape [N] to [N, 1]; leave [N, m] as it is."""
    return values[:, None] if values.dim() == 1 else values


def _judge(what: str, function: OfSteps, x: Tensor, u: Tensor) -> Tensor:
    """Apply a user's function to the steps, and check that it returns [N] or [N, m]: [N, m]."""
    values = function(x, u)
    if not isinstance(values, Tensor) or values.dim() not in (1, 2) or len(values) != len(x):
        shape = list(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise UserError(
            f"{what}= returned {shape} for {len(x)} steps; it must return a tensor [{len(x)}] or [{len(x)}, m]"
        )
    return _by_constraint(values)
