"""Checks of a run's specification before the real system is touched, and the earlier data that it starts with."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from samba_rl.agents.agent import schema_of
from samba_rl.agents.settings import Settings
from samba_rl.data import DataSet
from samba_rl.data.plain import from_plain, to_plain
from samba_rl.errors import UserError, did_you_mean
from samba_rl.runs.session import About
from samba_rl.tasks.task import Task
from samba_rl.types import Transitions

ROW_EXAMPLE = "LEARNERS['samba'].with_zeta(Entropy())"
ROW_CHOICES = ("zeta", "rule", "traces", "objectives", "constraint.kind")
"""Names of choices that a learner's row makes, which users may look for among the settings."""


def changed(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """Return the settings with some fields changed and checked; a dict changes a group in part."""
    if not isinstance(settings, Settings):
        raise UserError(f"settings is {settings!r}; give what make_settings(task, learner) returns")
    known = {part.name for part in dataclasses.fields(settings)}
    constraint = changes.get("constraint")
    kind = ["constraint.kind"] if isinstance(constraint, Mapping) and "kind" in constraint else []
    for name in (*changes, *kind):
        if name in ROW_CHOICES:
            raise UserError(f"'{name}' is a choice of the learner, not a setting: give a row, such as {ROW_EXAMPLE}")
        if name not in known:
            raise UserError(f"train has no argument or setting '{name}'; {did_you_mean(name, known)}")
    _check_numbers(changes, "")
    result: Settings = from_plain(type(settings), _merged(to_plain(settings), to_plain(dict(changes))), "settings")
    return result


def _merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    both = {name: isinstance(old.get(name), dict) and isinstance(value, dict) for name, value in new.items()}
    return {**old, **{name: _merged(old[name], value) if both[name] else value for name, value in new.items()}}


def _check_numbers(changes: object, path: str) -> None:
    """Raise a `UserError` if any of the changes is NaN, which plain values cannot tell from None."""
    if dataclasses.is_dataclass(changes) and not isinstance(changes, type):
        changes = vars(changes)
    if isinstance(changes, Mapping):
        for name, value in changes.items():
            _check_numbers(value, f"{path}.{name}" if path else str(name))
    elif isinstance(changes, tuple | list):
        for i, value in enumerate(changes):
            _check_numbers(value, f"{path}.{i}")
    elif isinstance(changes, float) and math.isnan(changes):
        raise UserError(f"{path} = nan: must be a number")


def check(task: Task, about: About, earlier: Transitions | None, *, resuming: bool = False) -> None:
    """Raise a `UserError` if anything is wrong with the specification of a run."""
    settings, row = about.settings, about.row
    if not isinstance(about.seed, int) or not 0 <= about.seed < 2**63:
        raise UserError(f"seed = {about.seed!r}; it must be a whole number from 0 to 2⁶³ - 1")
    _check_device(about.device)
    settings.constraints(row, task.constraints)  # raises if a limit does not fit the system or the update
    if row.source.imagines:
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
        raise UserError("first.samples = 0 without earlier data: there is nothing to start from; give one of the two")


def _check_device(device: str) -> None:
    try:
        kind = torch.device(device).type
    except RuntimeError as error:
        raise UserError(f"device = '{device}' is unknown; give cpu or cuda") from error
    if kind not in ("cpu", "cuda"):
        raise UserError(f"device = '{device}' is not supported; give cpu or cuda")
    index = torch.device(device).index or 0
    if kind == "cuda" and index >= torch.cuda.device_count():
        found = torch.cuda.device_count()
        raise UserError(f"device = '{device}', but PyTorch sees {found} CUDA device{'s' * (found != 1)}; give cpu")


def earlier_transitions(task: Task, data: DataSet | str | None) -> Transitions | None:
    """Return real transitions measured before the run, with their columns in the system's order."""
    if data is None:
        return None
    if isinstance(data, DataSet):
        found, where = data, "the given data set"
    else:
        where, suffix = data, Path(data).suffix.lower()
        if suffix not in (".csv", ".parquet"):
            raise UserError(f"cannot read earlier data from '{data}'; give a .csv or .parquet file")
        found = DataSet.from_csv(data) if suffix == ".csv" else DataSet.from_parquet(data)
    if not len(found):
        raise UserError(f"{where} has no transitions; omit it")
    return in_order_of(task, found, where).transitions


def in_order_of(task: Task, data: DataSet, where: str) -> DataSet:
    """Return the data with its columns in the task's order."""
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
