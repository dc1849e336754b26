"""What is checked before a run begins, while nothing real has happened; and the earlier data that it begins with."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from samba_rl.agents.agent import schema_of
from samba_rl.data import DataSet
from samba_rl.data.plain import from_plain, to_plain
from samba_rl.errors import UserError, did_you_mean
from samba_rl.improve.constraints import Constraint, make_constraints
from samba_rl.learners import Settings
from samba_rl.tasks.task import Task
from samba_rl.types import Transitions


def changed(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """The settings with some fields changed (a dict changes a group in part); every value fits its field's type."""
    known = {part.name for part in dataclasses.fields(Settings)}
    for name in changes:
        if name not in known:
            raise UserError(f"train has no argument or setting '{name}'; {did_you_mean(name, known)}")
    result: Settings = from_plain(Settings, _merged(to_plain(settings), to_plain(dict(changes))), "settings")
    return result


def _merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    both = {name: isinstance(old.get(name), dict) and isinstance(value, dict) for name, value in new.items()}
    return {**old, **{name: _merged(old[name], value) if both[name] else value for name, value in new.items()}}


def check(
    task: Task, settings: Settings, seed: int, device: str, earlier: Transitions | None, *, resuming: bool = False
) -> None:
    """Say what is wrong while nothing has happened yet."""
    if not 0 <= seed < 2**63:
        raise UserError(f"seed = {seed}; give a whole number of at least 0 (and below 2⁶³)")
    _check_device(device)
    limits = len(constraints_of(task, settings))
    if settings.rule == "projection" and limits != 1:
        raise UserError(
            f"the rule 'projection' keeps to exactly one limit, but {task.name} has {limits}; name one safety cost "
            "with constraint.of, or take the rule 'trust-region'"
        )
    if settings.traces == "model":
        try:
            x = torch.zeros(1, len(task.states), dtype=torch.float64)
            task.charge(x, torch.zeros(1, len(task.actions), dtype=torch.float64), x)
        except UserError as error:
            raise UserError(f"{error}. Learning on a model needs the cost and the safety cost as functions") from error
    horizon, first = task.horizon, settings.first.samples
    rounded = -(-first // horizon) * horizon
    if max(rounded, horizon) > settings.real_samples:
        raise UserError(
            f"real_samples = {settings.real_samples} is too small for {task.name}: its episodes have {horizon} steps"
            + (f", and first.samples = {first} means {rounded}" if rounded else "")
            + f"; give at least {rounded + horizon}"
        )
    if first == 0 and earlier is None and not resuming:
        raise UserError("first.samples = 0 and no earlier data: there is nothing to begin with; give one of the two")


def _check_device(device: str) -> None:
    try:
        kind = torch.device(device).type
    except RuntimeError as error:
        raise UserError(f"device = '{device}' is not known; give cpu or cuda") from error
    if kind not in ("cpu", "cuda"):
        raise UserError(f"device = '{device}' is not supported; give cpu or cuda")
    index = torch.device(device).index or 0
    if kind == "cuda" and index >= torch.cuda.device_count():
        found = torch.cuda.device_count()
        raise UserError(f"device = '{device}', but PyTorch sees {found} CUDA device{'s' * (found != 1)}; give cpu")


def earlier_transitions(task: Task, data: DataSet | str | None) -> Transitions | None:
    """Real transitions from before the run, in the order of the system's columns."""
    if data is None:
        return None
    if isinstance(data, DataSet):
        found, where = data, "the given data set"
    else:
        where, suffix = data, Path(data).suffix.lower()
        if suffix not in (".csv", ".parquet"):
            raise UserError(f"'{data}' as earlier data: give a .csv or .parquet file")
        found = DataSet.from_csv(data) if suffix == ".csv" else DataSet.from_parquet(data)
    if not len(found):
        raise UserError(f"{where} has no transitions; leave it out")
    return in_order_of(task, found, where).transitions


def in_order_of(task: Task, data: DataSet, where: str) -> DataSet:
    """The data with its columns in the task's order."""
    wanted = schema_of(task)
    if data.schema == wanted:
        return data
    columns = {}
    for kind in ("states", "actions", "constraints"):
        due, found = getattr(wanted, kind), getattr(data.schema, kind)
        if sorted(due) != sorted(found):
            raise UserError(
                f"{where} does not fit {task.name}: its {kind} are {', '.join(found)}; expected {', '.join(due)}"
            )
        columns[kind] = [found.index(name) for name in due]
    old = data.transitions
    return DataSet.empty(wanted).append(
        replace(
            old,
            x=old.x[:, columns["states"]],
            u=old.u[:, columns["actions"]],
            x_next=old.x_next[:, columns["states"]],
            safety=old.safety[:, columns["constraints"]],
            violation=old.violation[:, columns["constraints"]],
        )
    )


def constraints_of(task: Task, settings: Settings) -> tuple[Constraint, ...]:
    """The limits that the settings put on the system's safety costs."""
    return make_constraints((settings.constraint, *settings.more_constraints), task.constraints)
