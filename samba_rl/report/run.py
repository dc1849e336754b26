"""Figures of one run, written to a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from samba_rl.errors import UserError
from samba_rl.improve.experts import MixturePolicy
from samba_rl.report.experts import experts
from samba_rl.report.learning import heading, learning_curve
from samba_rl.report.output import save_figure
from samba_rl.report.safety import safety
from samba_rl.report.state_space import state_space

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from samba_rl.runs import Run


def run_figures(run: Run) -> dict[str, Figure]:
    """Draw a run's learning curve, the states that it visited and its safety; return the figures by name.

    A policy of several experts has a figure of them too.
    """
    if not run.trials or not len(run.data):
        raise UserError("the run has no real trial yet, so there is nothing to draw; wait for the first")
    figures = {
        "learning-curve": learning_curve(run),
        "state-space": state_space(run.task, run.data.transitions, heading(run)),
        "safety": safety(run),
    }
    if isinstance(run.policy, MixturePolicy):
        figures["experts"] = experts(run)
    return figures


def run_pictures(run: Run, folder: Path, *, pdf: bool = False, svg: bool = False) -> list[Path]:
    """Write learning-curve.png, state-space.png and safety.png, and if asked the same as PDF and SVG; return the paths.

    A policy of several experts has experts.png too.
    """
    suffixes = (".png", *[".pdf"] * pdf, *[".svg"] * svg)
    return write_figures(run_figures(run), folder, suffixes)


def write_figures(figures: Mapping[str, Figure], folder: Path, suffixes: Sequence[str] = (".png",)) -> list[Path]:
    """Write figures to a folder, each under its name with every suffix; return the paths."""
    paths = [folder / f"{name}{suffix}" for name in figures for suffix in suffixes]
    for path in paths:
        save_figure(figures[path.stem], path)
    return paths
