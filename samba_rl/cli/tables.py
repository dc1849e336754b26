"""Tables of results for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from samba_rl.cli.text import duration, text

if TYPE_CHECKING:
    from samba_rl.runs import Run
    from samba_rl.runs.evaluation import Evaluation

FEASIBLE = {True: "can be met", False: "looks infeasible", None: "not examined"}


def summary_table(title: str, run: Run) -> Table:
    """Return a table of the results of a run."""
    summary = run.summary
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("real samples (episodes)", f"{summary['real_samples']:,} ({summary['episodes']:,})")
    table.add_row("unsafe steps while learning (TV)", f"{summary['learning_TV']:,}")
    table.add_row("safety cost while learning (TC)", f"{summary['learning_TC']:,.1f}")
    table.add_row("mean return of the last trials", f"{summary['return_last_trials']:.2f}")
    for limit in summary["constraints"]:
        least = "" if limit["least"] is None else f", least on the model {limit['least']:.3g}"
        table.add_row(
            f"limit on {text(limit['constraint'])}", f"{limit['limit']:g}: {FEASIBLE[limit['feasible']]}{least}"
        )
    phases = ", ".join(f"{name} {seconds:.0f}" for name, seconds in summary["seconds_by_phase"].items())
    table.add_row("time", f"{duration(summary['seconds'])} ({phases})")
    return table


def evaluation_table(title: str, *evaluations: Evaluation) -> Table:
    """Return a table of evaluations side by side."""
    table = Table(title=title, title_justify="left")
    first = evaluations[0]
    table.add_column(f"evaluation, seed {first.seed}")
    for each in evaluations:
        table.add_column("without noise" if each.deterministic else "with noise", justify="right")
    table.add_row("steps (episodes)", *(f"{e.steps:,} ({e.episodes:,})" for e in evaluations))
    table.add_row("mean return (negative cost)", *(f"{e.return_mean:.2f} ± {e.return_std:.2f}" for e in evaluations))
    table.add_row("TV, steps in the unsafe region", *(f"{e.TV:,}" for e in evaluations))
    table.add_row("TC, total safety cost", *(f"{e.TC:,.1f}" for e in evaluations))
    table.add_row(
        "safety cost per episode, quartiles",
        *(" / ".join(f"{value:.2f}" for value in e.safety_quartiles) for e in evaluations),
    )
    for i, one in enumerate(first.constraints):
        table.add_row(f"{one.words}, limit {one.limit:g}", *(f"{e.constraints[i].value:.3g}" for e in evaluations))
    if not first.constraints:
        table.add_row(f"CVaR {first.alpha:g} of the safety cost per episode", *(f"{e.cvar:.3g}" for e in evaluations))
    return table
