"""Figures of one run, written to a folder."""

from __future__ import annotations

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
    from samba_rl.runs import Run


def run_pictures(run: Run, folder: Path, *, pdf: bool = False) -> list[Path]:
    """Write learning-curve.png, state-space.png and safety.png, and with `pdf` also PDFs; return the paths.

    A policy of several experts has experts.png too.
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
    written = []
    for name, figure in figures.items():
        for suffix in (".png", ".pdf") if pdf else (".png",):
            written.append(folder / f"{name}{suffix}")
            save_figure(figure, written[-1])
    return written
