"""Episodes that were measured outside of this program: checked, and as traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor

from samba_rl.errors import UserError
from samba_rl.tasks.task import Task
from samba_rl.types import Fault, Traces

SLACK = 1e-6
"""Share of its range by which an action may leave it, because a log rounds."""


class Episode(NamedTuple):
    """An episode that was measured elsewhere, with T steps."""

    x: Tensor
    """States, from the first to the one that the last step reached [T + 1, nx]."""
    u: Tensor
    """Actions, inside their bounds [T, nu]."""
    terminated: bool = False
    """Whether the system itself ended the episode."""
    measured: Mapping[str, Tensor] = {}
    """Measured costs of the steps, where the task has no function for them: `cost` [T], `safety` [T, m] and
    `violation` [T, m]."""


@final
@dataclass(frozen=True)
class TrialLog:
    """The episodes of a file, or of arrays."""

    name: str
    """Name of the file, for messages."""
    episodes: tuple[Episode, ...]
    """The episodes, in order."""
    unused: tuple[str, ...] = ()
    """Columns of the file that were not used."""


def check_arrays(task: Task, x: Tensor, u: Tensor, *, terminated: bool) -> TrialLog:
    """Return an episode with states x [T + 1, nx] and actions u [T, nu]; raise a `UserError` if anything is wrong."""
    nx, nu = len(task.states), len(task.actions)
    if x.dim() != 2 or u.dim() != 2 or not len(u) or x.shape != (len(u) + 1, nx) or u.shape[1] != nu:
        raise UserError(
            f"states of shape {list(x.shape)} and actions of shape {list(u.shape)}; for T steps of {task.name} give "
            f"[T + 1, {nx}] and [T, {nu}]"
        )
    if measured_columns(task):
        raise UserError(f"{task.name} measures its cost or its safety cost; tell its trials as files, with columns")
    for what, values, quantities in (("state", x, task.states), ("action", u, task.actions)):
        low, high = (
            torch.tensor([getattr(q, side) for q in quantities], dtype=torch.float64) for side in ("low", "high")
        )
        slack = SLACK * (high - low) if what == "action" else torch.zeros(())
        bad = ~((values >= low - slack) & (values <= high + slack))  # NaN is nowhere
        if bad.any():
            step, column = (int(i) for i in bad.nonzero()[0])
            one = quantities[column]
            raise UserError(
                f"{what} {step}: '{one.name}' is {values[step, column].item():g}; it must be a number in "
                f"{one.low:g}..{one.high:g}"
            )
    if not bool(x.isfinite().all()):
        step, column = (int(i) for i in (~x.isfinite()).nonzero()[0])
        raise UserError(f"state {step}: '{task.states[column].name}' is not finite")
    return TrialLog("the arrays", (Episode(x, task.clip(u), terminated),))


def measured_columns(task: Task) -> dict[str, list[list[str]]]:
    """Return the names of the columns that a log must have because the task has no function for them.

    A task measures its cost or its safety cost if its function refuses.
    """
    x = torch.zeros(1, len(task.states), dtype=torch.float64)
    u = task.clip(torch.zeros(1, len(task.actions), dtype=torch.float64))
    columns: dict[str, list[list[str]]] = {}
    try:
        task._cost(x, u)
    except UserError:
        columns["cost"] = [["cost"]]
    try:
        task._violation(x, u, task.safety(x, u))
    except UserError:
        bare: list[list[str]] = [["safety"] if len(task.constraints) == 1 else [] for _ in task.constraints]
        columns["safety"] = [[*one, f"safety:{name}"] for one, name in zip(bare, task.constraints, strict=True)]
        columns["violation"] = [[f"violation:{name}"] for name in task.constraints]
    return columns


def traces_of(task: Task, episodes: Sequence[Episode], steps: int | None = None) -> Traces:
    """Return the traces of episodes with room for so many `steps` (None: as many as the longest has)."""
    most = max(len(one.u) for one in episodes) if steps is None else steps
    parts = []
    for one in episodes:
        count = len(one.u)
        cost, safety, violation = _charges(task, one)
        x = torch.cat([one.x, one.x[-1:].expand(most - count, -1)])
        u = _padded(one.u, most)
        parts.append(
            Traces(
                x=x[None],
                observation=task.observe(x[:-1])[None],
                u=u[None],
                cost=_padded(cost, most)[None],
                safety=_padded(safety, most)[None],
                violation=_padded(violation, most)[None],
                active=(torch.arange(most) < count)[None],
                terminated=torch.tensor([one.terminated]),
                wanted=u[None],
            )
        )
    return Traces.joined(parts)


def cut_short(task: Task, episodes: Sequence[Episode]) -> tuple[Fault, ...]:
    """Return a fault for each episode that ended before its time without saying that the system ended it."""
    return tuple(
        Fault(number, len(one.u), f"{task.name}: the episode was stopped at step {len(one.u)}", stopped=True)
        for number, one in enumerate(episodes)
        if len(one.u) < task.horizon and not one.terminated
    )


def _charges(task: Task, one: Episode) -> tuple[Tensor, Tensor, Tensor]:
    """Return cost [T], safety cost [T, m] and violation [T, m] of the steps of an episode."""
    before, after = one.x[:-1], one.x[1:]
    at = before if task.cost_of == "departure" else after
    cost = one.measured["cost"] if "cost" in one.measured else task._cost(at, one.u)
    safety = one.measured["safety"] if "safety" in one.measured else task.safety(after, one.u)
    if "violation" in one.measured:
        return cost, safety, one.measured["violation"]
    return cost, safety, safety > 0 if "safety" in one.measured else task._violation(after, one.u, safety)


def _padded(values: Tensor, steps: int) -> Tensor:
    """Return values [T, ...] followed by zeros, `steps` in all."""
    full = values.new_zeros(steps, *values.shape[1:])
    full[: len(values)] = values
    return full
