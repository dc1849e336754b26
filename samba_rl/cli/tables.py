"""Tables of results for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from samba_rl.cli.text import duration, text

if TYPE_CHECKING:
    from samba_rl.runs import Run
    from samba_rl.runs.evaluation import Evaluation

FEASIBLE = {True: "can be met", False: "looks infeasible", None: "not examined"}
COLOURS = {"kept": "green", "unclear": "yellow", "broken": "bold red"}
"""Colours of what a measurement says of a limit."""
PER_STEPS = 10_000
"""Number of steps to which TV and TC are scaled."""


def summary_table(title: str, run: Run) -> Table:
    """Return a table of the results of a run."""
    summary = run.summary
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("real samples (episodes)", f"{summary['real_samples']:,} ({summary['episodes']:,})")
    table.add_row("unsafe steps while learning (TV)", f"{summary['learning_TV']:,}")
    table.add_row("safety cost while learning (TC)", f"{summary['learning_TC']:,.1f}")
    if summary.get("set_aside"):
        table.add_row("steps set aside as outliers", f"{summary['set_aside']:,}")
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
    """Return a table of evaluations side by side, each figure with its 95 % interval."""
    from samba_rl.runs.evaluation import HALF_WIDTH

    table = Table(
        title=title,
        title_justify="left",
        caption=f"± is half of the 95 % interval: {HALF_WIDTH} standard errors over the episodes. A limit is broken if "
        "it lies below the interval, and unclear if only below its middle.",
        caption_justify="left",
    )
    table.add_column(f"evaluation, seed {evaluations[0].seed}")
    for each in evaluations:
        table.add_column("without noise" if each.deterministic else "with noise", justify="right")
    columns = [_figures(each) for each in evaluations]
    for name in columns[0]:
        table.add_row(name, *(column[name] for column in columns))
    return table


def _figures(result: Evaluation) -> dict[str, str]:
    """Return the figures of an evaluation as text, by name."""
    from samba_rl.runs.evaluation import HALF_WIDTH
    from samba_rl.runs.limits import measured

    errors, scale = result.errors, PER_STEPS / result.steps

    def figure(value: float, error: float | None, form: str = "") -> str:
        shown = f"{value:{form or '.3g'}}"
        return shown if error is None else f"{shown} ± {HALF_WIDTH * error:{form or '.2g'}}"

    figures = {
        "steps (episodes)": f"{result.steps:,} ({result.episodes:,})",
        "mean return (negative cost)": figure(result.return_mean, errors and errors.return_mean, ".2f"),
        "standard deviation of the return": f"{result.return_std:.2f}",
        f"TV, unsafe steps per {PER_STEPS:,}": figure(scale * result.TV, errors and scale * errors.TV, ",.1f"),
        f"TC, safety cost per {PER_STEPS:,} steps": figure(scale * result.TC, errors and scale * errors.TC, ",.1f"),
        "safety cost per episode, quartiles": " / ".join(f"{value:.2f}" for value in result.safety_quartiles),
    }
    for i, one in enumerate(result.constraints):
        shown, standing = measured(result, i)
        figures[f"{text(one.words)}, limit {one.limit:g}"] = f"{shown}, [{COLOURS[standing]}]{standing}[/]"
    tails = {} if result.constraints else {result.alpha: (result.cvar, errors and errors.cvar)}
    if result.cvar90 is not None and "CVaR 0.9" not in {one.kind for one in result.constraints}:
        tails[0.9] = result.cvar90, errors and errors.cvar90
    for alpha, tail in tails.items():
        figures[f"CVaR {alpha:g} of the safety cost per episode"] = figure(*tail)
    return figures
