"""Figure of the return that can be had at each limit, and of how far the data support it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from samba_rl.agents.advice import FAR, Advice
from samba_rl.report.style import (
    BLUE,
    FONT_SIZE,
    GREEN,
    INK,
    VERMILION,
    legend_above,
    name_axes,
    new_panels,
    plain,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def advice(found: Advice) -> Figure:
    """Draw the return of each policy at the smallest limit that it passes, and its distance from the data below it."""
    figure, (above, below) = new_panels((2.9, 1.1), f"{found.system}: what return can be had at which limit")
    _draw_returns(above, found)
    _draw_support(below, found)
    right = 1.08 * max([*(one.bound for one in found.points), *(limit for limit in found.asked)])
    for axes in (above, below):
        axes.set_xlim(0, right or 1.0)
    name_axes(below, x=f"limit ξ on {found.constrained}", y="far from\nthe data")
    return figure


def _draw_returns(axes: Axes, found: Advice) -> None:
    frontier = found.frontier
    floor, edge = frontier[0].bound, 2 * max(one.bound for one in found.points) + 1
    axes.axvspan(0, floor, color=VERMILION, alpha=0.12, linewidth=0, label="no policy found")
    bounds = np.array([*(one.bound for one in frontier), edge])
    returns = np.array([*(one.mean_return for one in frontier), frontier[-1].mean_return])
    errors = np.array([*(one.return_error for one in frontier), frontier[-1].return_error])
    axes.fill_between(bounds, returns - errors, returns + errors, step="post", color=BLUE, alpha=0.15, linewidth=0)
    axes.step(bounds, returns, where="post", color=BLUE, linewidth=1.6, label="best return at a limit (± 1 s.d.)")
    for i, one in enumerate(found.points):
        # From the estimated value of the constraint to the upper bound on it, which is the limit that it passes.
        label = "a policy: value, and 95 % bound" if i == 0 else ""
        axes.plot([one.value, one.bound], [one.mean_return] * 2, color="0.55", linewidth=1.0, zorder=1)
        axes.plot(one.value, one.mean_return, "o", markersize=4, markerfacecolor="white", color="0.55")
        axes.plot(one.bound, one.mean_return, "o", markersize=5, color=INK, label=label)
    axes.axvline(found.proposed_limit, color=GREEN, linestyle="--", label=f"proposed ξ = {found.proposed_limit:g}")
    words = ", ".join(f"{limit:g}" for limit in sorted(found.asked))
    for i, limit in enumerate(found.asked):
        label = "" if i else f"asked: ξ = {words}"
        axes.axvline(limit, color="0.35", linestyle=":", linewidth=1.2, label=label)
    name_axes(axes, y="return of an episode\n[negative cost]")
    handles, labels = axes.get_legend_handles_labels()
    legend_above(axes, [handle for handle, label in zip(handles, labels, strict=True) if label], columns=2)


def _draw_support(axes: Axes, found: Advice) -> None:
    for one in found.points:
        far = 100 * one.far
        axes.plot([one.bound] * 2, [0, far], color=VERMILION if one.far > FAR else INK, linewidth=2.5)
        axes.plot(one.bound, far, "o", markersize=4, color=VERMILION if one.far > FAR else INK)
    axes.axhline(100 * FAR, color=VERMILION, linestyle=":", linewidth=1.0)
    axes.text(0.005, 100 * FAR, plain("a guess above this"), fontsize=FONT_SIZE - 2, va="bottom",
              transform=axes.get_yaxis_transform(), color=VERMILION)  # fmt: skip
    axes.set_ylim(0, max(1.6 * 100 * FAR, *(108 * one.far for one in found.points)))
    axes.yaxis.set_major_formatter("{x:.0f} %")
