"""The page of one run, written into its folder when it ends: without scripts, and small enough for each to have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from samba_rl.benchmark.collect import from_files
from samba_rl.data.files import replacing
from samba_rl.report.cards import card
from samba_rl.report.output import figure_bytes, writing
from samba_rl.report.page import SVG, Media, to_html
from samba_rl.report.report import page_of
from samba_rl.report.verdicts import verdicts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from samba_rl.runs import Run

TITLES = {
    "learning-curve": "Learning curve", "safety": "Safety while learning", "state-space": "States that were visited",
    "experts": "Experts of the policy",
}  # fmt: skip
"""Titles of a run's figures by name, in the order of the page."""


def write_run_page(run: Run, path: Path, figures: Mapping[str, Figure], *, film: bool) -> None:
    """Write the page of a finished run, from its files and its figures; one more episode is run if it is to be filmed.

    No rig is ever run for it.
    """
    assert run.folder is not None
    seen = from_files(run.folder)
    one = replace(seen, run=run, title=run.task.title)
    if one.result is None and not one.problem:
        one = replace(one, problem="it was not evaluated")
    judged = verdicts([one])
    drawn = [Media(SVG, figure_bytes(figures[name], "svg"), title) for name, title in TITLES.items() if name in figures]
    shown = card(judged[0], 0, 1 if film and run.task.parallel else 0)
    if not film:
        shown = replace(shown, no_clip="the run was not evaluated, so the system was not run for a film either")
    page = page_of([one], judged, [replace(shown, plot=None, pictures=drawn)])
    content = to_html(page).encode()
    with writing(path), replacing(path, own=True) as file:
        file.write(content)
