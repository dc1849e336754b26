"""Fan chart of a trial to come: what the model expects of it, with quantiles, against the hazard and the limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from samba_rl.errors import UserError, did_you_mean
from samba_rl.improve.constraints import Chance, Constraint
from samba_rl.report.style import BLUE, INK, VERMILION, legend_above, name_axes, new_panels, plain
from samba_rl.report.views import Span, axis_label, view
from samba_rl.tasks.render import drawing
from samba_rl.tasks.task import Task
from samba_rl.types import Traces, Transitions

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BANDS = ((0.99, 0.12), (0.9, 0.2), (0.5, 0.3))
"""Shares of the trajectories that the bands of a fan hold in their middle, and how opaque the bands are."""
UNSAFE = "#{:02x}{:02x}{:02x}".format(*drawing.UNSAFE)
"""Colour of the unsafe region."""
UNSAFE_FROM = 0.05
"""Least safety cost, as a share of the largest, from which on steps are drawn as unsafe."""
MOST_REAL = 20
"""Largest number of real episodes that are drawn."""


@dataclass(frozen=True)
class _Component:
    """A coordinate of the state over time."""

    label: str
    imagined: Tensor
    """Values [B, T + 1]; NaN after the end of an episode."""
    real: Tensor
    """Values [N, T' + 1]; NaN after the end of an episode."""
    unsafe: tuple[Span, ...] = ()
    """Ranges in which the system is unsafe."""


def forecast(
    task: Task,
    imagined: Traces,
    constraints: tuple[Constraint, ...],
    title: str,
    *,
    real: Traces | None = None,
    real_label: str = "real trial",
    components: Sequence[str] = (),
) -> Figure:
    """Draw components of the state, the safety cost of each step and the constrained amounts so far, as fans.

    Args:
        task: The system.
        imagined: Trajectories of the policy of the trial, as the model imagines them.
        constraints: Limits on the safety costs.
        title: Title of the figure.
        real: Episodes of the trial once it has been made, to be drawn on top.
        real_label: Description of these episodes in the legend.
        components: Names of state components; empty: the most telling ones.
    """
    if real is not None:
        real = _some(real, MOST_REAL)
    shown = _chosen(task, imagined, real, components) if components else _telling(task, imagined, real)
    names = task.constraints
    figure, panels = new_panels([1.5] * (len(shown) + len(names) + len(constraints)), title)
    time = np.asarray(task.dt * np.arange(imagined.x.shape[1]), dtype=np.float64)
    rest = iter(panels)
    for one in shown:
        _draw_component(next(rest), time, one)
    for column, name in enumerate(names):
        _draw_safety(next(rest), time[1:], imagined, real, column, name)
    for constraint in constraints:
        _draw_constraint(next(rest), time[1:], imagined, real, constraint)
    name_axes(panels[-1], x="time [s]", y=panels[-1].get_ylabel())
    panels[-1].set_xlim(0, float(time[-1]))
    _legend(panels[0], "" if real is None else real_label)
    return figure


def _some(traces: Traces, count: int) -> Traces:
    """Return the first trajectories."""
    return Traces(**{name: value[:count] for name, value in vars(traces).items() if value is not None})


def episodes(task: Task, steps: Transitions, numbers: Sequence[int]) -> Traces:
    """Return real episodes of these numbers as traces, each padded to the longest."""
    chosen = [steps.episode == number for number in numbers]
    longest = max(int(rows.sum()) for rows in chosen)

    def padded(values: Tensor, *, repeat: bool = False) -> Tensor:
        rows = []
        for each in chosen:
            own = values[each]
            rest = own[-1:].expand(longest - len(own), *own.shape[1:])
            rows.append(torch.cat([own, rest if repeat else torch.zeros_like(rest)]))
        return torch.stack(rows)

    x, u = padded(steps.x, repeat=True), padded(steps.u)
    after = padded(steps.x_next, repeat=True)
    active = padded(torch.ones(len(steps), dtype=torch.bool))
    ended = padded(steps.terminated).any(1)
    return Traces(
        x=torch.cat([x[:, :1], after], dim=1),
        observation=torch.stack([task.observe(one) for one in x]),
        u=u,
        cost=padded(steps.cost),
        safety=padded(steps.safety),
        violation=padded(steps.violation),
        active=active,
        terminated=ended,
        wanted=u,
    )


# Components of the state ----------------------------------------------------------------------------------------------


def _chosen(task: Task, imagined: Traces, real: Traces | None, names: Sequence[str]) -> list[_Component]:
    known = [quantity.name for quantity in task.states]
    found = []
    for name in names:
        if name not in known:
            raise UserError(f"{task.name} has no state component '{name}'; {did_you_mean(name, known)}")
        column = known.index(name)
        values = [_over_time(traces, traces.x[..., column]) for traces in (imagined, real) if traces is not None]
        found.append(_Component(axis_label(task.states[column]), values[0], _or_nothing(values)))
    return found


def _telling(task: Task, imagined: Traces, real: Traces | None) -> list[_Component]:
    """Return the coordinates in which the states of the system are drawn elsewhere, too."""
    seen = view(task, imagined.transitions())
    found = []
    for column, label in enumerate(seen.labels):
        angle = seen.is_angle and column == 0
        values = []
        for traces in (imagined, real):
            if traces is not None:
                flat = seen.place(traces.x.reshape(-1, traces.x.shape[-1]))[:, column]
                places = flat.reshape(traces.x.shape[:2])
                values.append(_over_time(traces, _unwrapped(places) if angle else places))
        everything = torch.cat([one.flatten() for one in values])
        unsafe = () if seen.unsafe is None or column else _repeated(seen.unsafe, everything, around=angle)
        found.append(_Component(label, values[0], _or_nothing(values), unsafe))
    return found


def _or_nothing(values: list[Tensor]) -> Tensor:
    return values[1] if len(values) > 1 else values[0][:0]


def _over_time(traces: Traces, values: Tensor) -> Tensor:
    """Return values [B, T + 1] of the states, NaN after the end of an episode."""
    there = torch.cat([torch.ones_like(traces.active[:, :1]), traces.active], dim=1)
    return torch.where(there, values.double(), torch.nan)


def _of_steps(traces: Traces, values: Tensor) -> Tensor:
    """Return values [B, T] of the steps, NaN after the end of an episode."""
    return torch.where(traces.active, values.double(), torch.nan)


def _unwrapped(degrees: Tensor) -> Tensor:
    """Return angles [B, T + 1] without jumps at ±180°."""
    steps = torch.diff(degrees, dim=1)
    steps = steps - 360 * (steps / 360).round()
    return torch.cat([degrees[:, :1], degrees[:, :1] + steps.cumsum(1)], dim=1)


def _repeated(span: Span, values: Tensor, *, around: bool) -> tuple[Span, ...]:
    """Return the unsafe range; of an angle, every copy of it that lies within the values."""
    if not around:
        return (span,)
    finite = values[values.isfinite()]
    low, high = float(finite.min()), float(finite.max())
    copies = [(span[0] + 360 * turn, span[1] + 360 * turn) for turn in range(-20, 21)]
    return tuple(copy for copy in copies if copy[1] >= low and copy[0] <= high) or (span,)


# Panels ---------------------------------------------------------------------------------------------------------------


def _draw_component(axes: Axes, time: NDArray[np.float64], one: _Component) -> None:
    _fan(axes, time, one.imagined)
    for values in one.real.numpy():
        axes.plot(time[: len(values)], values[: len(time)], color=VERMILION, linewidth=1.1)
    low, high = axes.get_ylim()
    for start, end in one.unsafe:
        axes.axhspan(start, end, color=UNSAFE, alpha=0.35, linewidth=0)
    spans = [end for span in one.unsafe for end in span]
    axes.set_ylim(min([low, *spans]), max([high, *spans]))
    name_axes(axes, y=one.label)


def _draw_safety(
    axes: Axes, time: NDArray[np.float64], imagined: Traces, real: Traces | None, column: int, name: str
) -> None:
    """Draw the safety cost of each step, and from where on it means that the system is unsafe."""
    cost, bad = _of_steps(imagined, imagined.safety[..., column]), imagined.violation[..., column]
    _fan(axes, time, cost)
    unsafe = _of_steps(imagined, bad.double()).nanmean(0)
    axes.plot(time, unsafe.numpy(), color=INK, linestyle=":", linewidth=1.3)
    if real is not None:
        for values in _of_steps(real, real.safety[..., column]).numpy():
            axes.plot(time[: len(values)], values[: len(time)], color=VERMILION, linewidth=1.1)
    known = cost.nan_to_num()
    top = max(1.0, float(known.max()))
    if bool(bad.any()) and not bool(bad.all()):
        # Where any cost at all is unsafe, the band would cover everything, and the dotted line says enough.
        least = float(known[bad].min())
        if least >= max(float(known[~bad].max()), UNSAFE_FROM * top):
            axes.axhspan(least, 1.05 * top, color=UNSAFE, alpha=0.35, linewidth=0)
    axes.set_ylim(-0.03 * top, 1.05 * top)
    name_axes(axes, y=f"{name} cost\nof a step")


def _draw_constraint(
    axes: Axes, time: NDArray[np.float64], imagined: Traces, real: Traces | None, constraint: Constraint
) -> None:
    """Draw the amounts so far, the value of the constraint on them, and the limit."""
    amounts = _so_far(imagined, constraint)
    if not isinstance(constraint, Chance):
        _fan(axes, time, amounts)
    values = [float(constraint.value(column)) for column in amounts.T]
    axes.plot(time, values, color=INK, linewidth=1.6, label=plain(f"{constraint.in_words()}: {values[-1]:.3g}"))
    axes.axhline(constraint.limit, color=INK, linestyle="--", linewidth=1.2, label=f"limit {constraint.limit:g}")
    measured: list[NDArray[np.float64]] = [] if real is None else [*_so_far(real, constraint).numpy()]
    for row in measured:
        axes.plot(time[: len(row)], row[: len(time)], color=VERMILION, linewidth=1.1)
    highest = [constraint.limit, *values, *(float(row.max()) for row in measured)]
    if not isinstance(constraint, Chance):
        highest.append(float(amounts[:, -1].quantile(0.995)))
    axes.set_ylim(-0.04 * max(highest), 1.08 * max(highest) or 1.0)
    name_axes(axes, y="share so far" if isinstance(constraint, Chance) else f"{constraint.name} cost\nso far")
    legend_above(axes, columns=2)


def _so_far(traces: Traces, constraint: Constraint) -> Tensor:
    """Return the constrained amount of each trajectory up to each step [B, T]."""
    columns, steps = [], torch.arange(traces.cost.shape[1])
    for last in steps.tolist():
        past = (steps <= last)[None, :, None]
        cut = replace(traces, safety=traces.safety * past, violation=traces.violation & past)
        columns.append(constraint.amounts(cut).double())
    return torch.stack(columns, dim=1)


def _fan(axes: Axes, time: NDArray[np.float64], values: Tensor) -> None:
    """Draw bands of quantiles of values [B, T] and their median."""
    # Trajectories that have ended are left out; a step that none reaches is not drawn.
    reached = ~values.isnan().all(0)
    known, at = values[:, reached], time[: values.shape[1]][reached.numpy()]
    for share, opacity in BANDS:
        low, high = (known.nanquantile(level, dim=0).numpy() for level in ((1 - share) / 2, (1 + share) / 2))
        axes.fill_between(at, low, high, color=BLUE, alpha=opacity, linewidth=0)
    axes.plot(at, known.nanmedian(dim=0).values.numpy(), color=BLUE, linewidth=1.5)


def _legend(axes: Axes, real_label: str) -> None:
    from matplotlib.artist import Artist
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    entries: list[Artist] = [Line2D([], [], color=BLUE, linewidth=1.5, label="median")]
    opacity = 0.0
    for share, own in BANDS:
        opacity = 1 - (1 - opacity) * (1 - own)
        entries.append(Patch(color=BLUE, alpha=opacity, linewidth=0, label=f"{100 * share:g} %"))
    entries.append(Line2D([], [], color=INK, linestyle=":", linewidth=1.3, label="share unsafe"))
    entries.append(Patch(color=UNSAFE, alpha=0.35, linewidth=0, label="unsafe"))
    if real_label:
        entries.append(Line2D([], [], color=VERMILION, linewidth=1.1, label=real_label))
    legend_above(axes, entries, columns=4 if real_label else 6, handle_length=1.4)
