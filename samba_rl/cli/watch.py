"""`samba-rl watch`: show the curves of a run in the terminal while another process works on it."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, NamedTuple

import tyro
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from samba_rl.cli.arguments import RunArgument
from samba_rl.cli.plots import ROWS, plot
from samba_rl.cli.runs import COLOURS, next_command
from samba_rl.cli.text import duration, number, text
from samba_rl.ranges import In

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import RenderableType

    from samba_rl.events import Event, ImprovementReport, LatentReport, TrialReport
    from samba_rl.runs.listing import Overview

INTERRUPTED = 130


def watch(
    run: RunArgument,
    *,
    once: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    every: Annotated[float, In("[0.1, 3600]")] = 1.0,
) -> int:
    """Show the curves of a run in the terminal, until it ends; nothing in its folder is written or locked.

    Without a terminal, as into a file, they are printed once. Ctrl-C ends the watching, never the run.

    Args:
        run: Folder of the run that `samba-rl train`, `resume`, `new` or `benchmark` writes in another process.
        once: Print the curves once, and end.
        every: Seconds between two looks at the run.
    """
    from samba_rl.runs.folder import read_config
    from samba_rl.runs.following import Follower
    from samba_rl.runs.listing import overview
    from samba_rl.runs.lock import held

    config, console, follower = read_config(run), Console(highlight=False), Follower(run)
    follower.refresh()
    seen = overview(run)

    def shown() -> RenderableType:
        return picture(seen, config, follower.events, console.width, console.height)

    if once or not console.is_terminal or seen.state not in ("running", "waiting"):
        console.print(shown())
        _print_end(console, run, seen)
        return 0
    try:
        with Live(shown(), console=console, auto_refresh=False) as live:
            while seen.state in ("running", "waiting"):
                time.sleep(every)
                if follower.refresh() or held(run) != (seen.state == "running"):
                    seen = overview(run)
                    live.update(shown(), refresh=True)
    except KeyboardInterrupt:
        return INTERRUPTED
    _print_end(console, run, seen)
    return 0


# What is shown --------------------------------------------------------------------------------------------------------


class _Limit(NamedTuple):
    """A limit as a run's configuration describes it."""

    words: str
    value: float


class _Curve(NamedTuple):
    """A curve to plot."""

    name: str
    values: list[float]
    more: str = ""
    """Words after its latest value."""
    mark: float | None = None
    """Value at which a line is drawn."""
    colour: str = "cyan"


def picture(
    one: Overview, config: Mapping[str, object], events: list[Event], width: int, height: int
) -> RenderableType:
    """Return the present state of a run with its curves, for a terminal of this size."""
    from samba_rl.events import ImprovementReport, LatentReport, TrialReport

    trials = [event for event in events if isinstance(event, TrialReport)]
    updates = [event for event in events if isinstance(event, ImprovementReport)]
    latent = [event for event in events if isinstance(event, LatentReport)]
    curves = _curves(config, trials, updates, latent)
    table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=False)
    names = min(34, width // 2)
    table.add_column(width=names)
    table.add_column()
    rows = min(max((height - 6) // max(len(curves), 1), 2), ROWS)
    for curve in curves:
        latest = f"[bold]{curve.values[-1]:.4g}[/]" if math.isfinite(curve.values[-1]) else "–"
        drawn = plot(curve.values, width - names - 2, rows, mark=curve.mark, colour=curve.colour)
        table.add_row(f"{text(curve.name)}\n{latest}{text(curve.more)}", drawn)
    head = _head(one, trials, updates, latent, events)
    return Group(head, table) if curves else head


def _curves(
    config: Mapping[str, object],
    trials: list[TrialReport],
    updates: list[ImprovementReport],
    latent: list[LatentReport],
) -> list[_Curve]:
    """Return the curves of a run: its trials, its limits with their multipliers, its latent model."""
    found: list[_Curve] = []
    if trials:
        last = trials[-1]
        found += [
            _Curve("return of each trial", [t.return_mean for t in trials], _foreseen(last.predicted_return)),
            _Curve(
                "safety cost of each trial",
                [t.safety_cost for t in trials],
                _foreseen(last.predicted_safety),
                colour="green",
            ),
        ]
    for i, limit in enumerate(_limits(config, len(updates[-1].values) if updates else 0)):
        more = f", target {updates[-1].targets[i]:.3g}, limit {limit.value:g}"
        values = [update.values[i] for update in updates]
        found.append(_Curve(limit.words, values, more, limit.value, "yellow"))
        found.append(_Curve(f"λ of {limit.words}", [u.multipliers[i] for u in updates], colour="magenta"))
    if latent:
        found.append(_Curve("loss of the model [nats per step]", [one.loss for one in latent], colour="yellow"))
    return found


def _foreseen(predicted: float) -> str:
    return f", predicted {number(predicted)}" if math.isfinite(predicted) else ""


def _head(
    one: Overview,
    trials: list[TrialReport],
    updates: list[ImprovementReport],
    latent: list[LatentReport],
    events: list[Event],
) -> Table:
    """Return what is known of a run in lines: its state, its samples, its time."""
    from samba_rl.runs.following import seconds_left, seconds_of

    table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    title = f"{text(one.task)}: {text(one.learner)}, seed {'–' if one.seed is None else one.seed}"
    table.add_row(title, f"[{COLOURS[one.state]}]{one.state}[/]{_phase(one, trials, updates, latent)}")
    spent, budget = one.real_samples or 0, one.budget or 0
    samples = Table.grid(padding=(0, 1))
    samples.add_row(f"{spent:,} of {budget:,}", ProgressBar(total=max(budget, 1), completed=spent, width=24))
    table.add_row("real samples", samples)
    if trials:
        last = trials[-1]
        table.add_row("safety so far", f"cost (TC) {last.learning_TC:.4g}, unsafe steps (TV) {last.learning_TV:,}")
        left = seconds_left(events, one.budget) if one.state == "running" else math.nan
        soon = "" if math.isnan(left) else f", about {duration(left)} left"
        table.add_row("time", duration(seconds_of(events)) + soon)
    return table


def _phase(
    one: Overview, trials: list[TrialReport], updates: list[ImprovementReport], latent: list[LatentReport]
) -> str:
    """Return what a running run does."""
    if one.state != "running":
        return ""
    if not trials:
        return ", first real trials"
    trial = trials[-1].iteration
    if latent and latent[-1].iteration == trial and latent[-1].update < latent[-1].updates:
        return f", training the model after trial {trial}: {latent[-1].update} of {latent[-1].updates}"
    if updates and updates[-1].iteration == trial and updates[-1].control < updates[-1].controls:
        return f", improving the policy after trial {trial}: {updates[-1].control} of {updates[-1].controls}"
    return f", after trial {trial}"


def _limits(config: Mapping[str, object], count: int) -> list[_Limit]:
    """Return `count` limits of a run, as well as its configuration describes them without its system."""
    settings, row = config.get("settings"), config.get("row")
    if not count or not isinstance(settings, dict) or not isinstance(row, dict):
        return []
    further = settings.get("more_constraints") or []
    # Without a name, the first stands for every safety cost of the system.
    first = [{**settings.get("constraint", {}), "kind": row.get("constraint")}] * (count - len(further))
    return [_Limit(_in_words(each), float(each.get("limit", math.nan))) for each in [*first, *further]]


def _in_words(limit: Mapping[str, object]) -> str:
    kind, alpha, of = str(limit.get("kind")), limit.get("alpha"), limit.get("of") or "the safety cost"
    start = {"cvar": f"CVaR {alpha} of {of}", "expectation": f"mean of {of}", "chance": f"unsafe share ({of})"}
    return start.get(kind, f"{kind} of {of}") + (" per step" if limit.get("per") == "step" else "")


def _print_end(console: Console, run: Path, one: Overview) -> None:
    """Print what became of a run, and the command that goes on from there."""
    if one.problem:
        console.print(text(one.problem), soft_wrap=True)
    for words in one.missed:
        console.print(f"[bold red]The limit is not kept.[/] {text(words)}.", soft_wrap=True)
    if one.state != "running":
        console.print(f"It is {one.state}. Next:  [bold]{text(next_command(run, one))}[/]", soft_wrap=True)
