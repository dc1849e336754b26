"""Figure of a policy of several experts: which one acts from which start, and what each of them costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Generator, Tensor

from samba_rl.improve.experts import MixturePolicy
from samba_rl.models.world import ModelSource
from samba_rl.report.learning import heading
from samba_rl.report.style import CYCLE, from_zero, legend_above, name_axes, new_panels
from samba_rl.types import Traces

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from samba_rl.runs import Run

EPISODES = 1000
"""Number of imagined episodes."""
BINS = 12
"""Number of parts of equal width into which starts are divided."""


class Expert(NamedTuple):
    """What one expert does on average."""

    share: float
    """Share of the episodes in which it acts."""
    return_mean: float
    """Mean return of these episodes; NaN if there is none."""
    safety_mean: float
    """Mean safety cost of these episodes; NaN if there is none."""

    def in_words(self, number: int) -> str:
        """Describe the expert for a legend."""
        name = f"expert {number}: {self.share:.0%} of the starts"
        return name if self.share == 0 else f"{name}, return {self.return_mean:.3g}, safety {self.safety_mean:.3g}"


def imagined(run: Run, policy: MixturePolicy, episodes: int = EPISODES) -> tuple[Traces, Tensor]:
    """Imagine episodes of a policy on the run's last model; return them with the expert of each [B]."""
    first = None if run.task.pure_start else run.data.transitions.x[run.data.transitions.step == 0]
    traces = ModelSource(run.model, starts=first)(policy, episodes, Generator().manual_seed(run.seed))
    return traces, policy.chosen(traces)


def summarised(traces: Traces, chosen: Tensor, count: int) -> list[Expert]:
    """Return what each of `count` experts does, from traces and the expert of each [B]."""
    rows = []
    for number in range(count):
        own = chosen == number
        returns, safety = traces.returns[own], traces.safety_costs.sum(-1)[own]
        rows.append(Expert(float(own.double().mean()), float(returns.mean()), float(safety.mean())))
    return rows


def telling(starts: Tensor, chosen: Tensor) -> int:
    """Return the column of start observations [B, no] along which the chosen expert [B] varies most."""
    spread = []
    for column in starts.unbind(1):
        shares = [chosen[part].double() for part in torch.chunk(column.argsort(), BINS)]
        means = torch.stack([share.mean() for share in shares])
        spread.append(float(means.var()) if float(column.max() - column.min()) > 0 else -1.0)
    return int(torch.tensor(spread).argmax())


def experts(run: Run) -> Figure:
    """Draw the share of each expert along the most telling start observation, and below it the safety costs."""
    policy = run.policy
    assert isinstance(policy, MixturePolicy)
    count = policy.gate.experts
    traces, chosen = imagined(run, policy)
    starts = traces.observation[:, 0, :-count].double()
    column = telling(starts, chosen)
    place, safety = starts[:, column], traces.safety_costs.sum(-1)
    figure, (above, below) = new_panels((1.7, 2.4), heading(run))
    edges = torch.linspace(float(place.min()), float(place.max()), BINS + 1, dtype=place.dtype)
    totals = torch.histogram(place, edges).hist.clamp(min=1)
    bottom = torch.zeros(BINS, dtype=place.dtype)
    for number, expert in enumerate(summarised(traces, chosen, count)):
        own, colour = chosen == number, CYCLE[number % len(CYCLE)][0]
        share = torch.histogram(place[own], edges).hist / totals
        label = expert.in_words(number + 1)
        above.bar(edges[:-1], share, edges.diff(), bottom, align="edge", color=colour, edgecolor="white", label=label)
        below.plot(place[own], safety[own], "os^Dv"[number % 5], color=colour, markersize=2.5, alpha=0.6)
        bottom += share
    quantity = run.task.observations[column]
    name_axes(above, y="share of the\nepisodes")
    unit = f" [{quantity.unit}]" if quantity.unit else ""
    name_axes(below, x=f"{quantity.name} at the start{unit}", y="safety cost of an\nimagined episode")
    above.set_ylim(0, 1)
    from_zero(below, safety.tolist())
    legend_above(above, columns=1)
    return figure
