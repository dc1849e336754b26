"""Checks of a run's specification before the real system is touched, and the earlier data that it starts with."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from samba_rl.agents.agent import schema_of
from samba_rl.agents.first import Controller
from samba_rl.agents.settings import PolicyGradientSettings, Settings
from samba_rl.data import DataSet
from samba_rl.data.plain import from_plain, to_plain
from samba_rl.errors import UserError, did_you_mean
from samba_rl.runs.rig import parsed_command
from samba_rl.runs.session import About
from samba_rl.tasks.task import Measured, Task, no_costs_yet
from samba_rl.types import Transitions

ROW_EXAMPLE = "LEARNERS['samba'].with_zeta(Entropy())"
ROW_CHOICES = ("zeta", "rule", "traces", "objectives", "constraint.kind")
"""Names of choices that a learner's row makes, which users may look for among the settings."""
PROBES = 5
"""Number of states on which a task's functions are tried before the real system is."""


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


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings named as on the command line, such as constraint.limit, as groups for `changed`."""
    groups: dict[str, Any] = {}
    for name, value in flat.items():
        *path, last = name.split(".")
        group = groups
        for part in path:
            group = group.setdefault(part, {})
        group[last] = value
    return groups


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
    check_functions(task)
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


def check_functions(task: Task) -> None:
    """Raise a `UserError` that names a function of the task with results of a wrong type or shape, or never finite."""
    x, u = _probes(task)
    recent = no_costs_yet(task, x)
    functions: dict[str, Callable[[], Tensor]] = {
        "cost": lambda: task.cost(x, u),
        "safety": lambda: task.safety(x, u),
        "violation": lambda: task.violation(x, u),
        "done": lambda: task.done(x, recent),
    }
    for what, function in functions.items():
        try:
            values = function()
        except Measured:
            continue
        # A few states may lie where a cost has no value, but not all of them.
        if not bool(values.reshape(len(x), -1).isfinite().all(1).any()):
            at = ", ".join(f"{value:.3g}" for value in x[0].tolist())
            raise UserError(
                f"{task.name}: the {what} function returned {values.flatten()[0].item()} for the state [{at}], and NaN "
                f"or infinity for {len(x) - 1} others; a cost must be a finite number"
            )


def _probes(task: Task) -> tuple[Tensor, Tensor]:
    """Return a few states [B, nx] near the middle of their ranges (or zero) and actions [B, nu] to try functions on."""
    generator = Generator().manual_seed(0)
    columns = []
    for quantity in task.states:
        noise = torch.randn(PROBES, generator=generator, dtype=torch.float64)
        finite = math.isfinite(quantity.low) and math.isfinite(quantity.high)
        middle = (quantity.low + quantity.high) / 2 if finite else 0.0
        columns.append((middle + noise).clamp(quantity.low, quantity.high))
    low, high = task.action_bounds()
    u = low + (high - low) * torch.rand(PROBES, len(task.actions), generator=generator, dtype=torch.float64)
    return torch.stack(columns, dim=1), u


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


def controller_of(function: Callable[[Tensor], Tensor] | None) -> Controller | None:
    """Return the policy that a user's own controller is."""
    return None if function is None else Controller(function)


def check_elsewhere(settings: Settings, how: str) -> None:
    """Raise a `UserError` if a run cannot have its trials made outside of this program; `how` names the way."""
    if not isinstance(settings, PolicyGradientSettings):
        raise UserError(
            f"{how} needs a policy that a file can hold, and a planner is none; give a learner whose policy is a "
            "network, such as samba"
        )
    if settings.first.stop is not None:
        raise UserError(
            f"first.stop = {settings.first.stop:g}: with {how}, this program does not see a step before the episode is "
            "over; leave it out, and let the rig stop by itself"
        )


def check_rig(
    command: str, settings: Settings, out: str | Path | None, controller: Callable[[Tensor], Tensor] | None
) -> None:
    """Raise a `UserError` if a run cannot be driven by a command."""
    parsed_command(command)
    if controller is not None:
        raise UserError(
            "a command cannot be given a controller of yours; run it yourself, and give what it measured with --data "
            "and --first.samples 0"
        )
    if out is None:
        raise UserError("rig needs a folder for the files that go in and out; give out")
    check_elsewhere(settings, "a command")
