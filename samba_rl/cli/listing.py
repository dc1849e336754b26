"""The command runs: what runs there are, and how each stands."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from samba_rl.errors import UserError

if TYPE_CHECKING:
    from samba_rl.runs.listing import Overview

COLOURS = {"running": "cyan", "finished": "green", "interrupted": "yellow", "damaged": "red"}
LAST_NOTICES = 5
WIDE = 120
"""Columns of a terminal in which everything finds room."""


def runs(
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")] = Path("runs"),
    as_json: Annotated[bool, tyro.conf.arg(name="json")] = False,
) -> int:
    """List runs with their state, samples and last figures; or show one.

    Args:
        run: A folder with runs in it or below it, or the folder of one run.
        as_json: Print one line of JSON instead of a table.
    """
    from samba_rl.data.plain import to_plain
    from samba_rl.runs.folder import CONFIG
    from samba_rl.runs.listing import find_runs, overview

    console = Console(highlight=False)
    if (run / CONFIG).exists():
        one = overview(run)
        if as_json:
            print(json.dumps(to_plain(asdict(one)), ensure_ascii=False))
        else:
            _show(console, run, one)
        return 0
    found = [overview(folder) for folder in find_runs(run)]
    if as_json:
        print(json.dumps(to_plain([asdict(one) for one in found]), ensure_ascii=False))
    elif not found:
        console.print(
            f"There are no runs in {_text(run)}. Begin one with: samba-rl train safe-pendulum", soft_wrap=True
        )
    else:
        _list(console, run, found)
    return 0


def _list(console: Console, home: Path, found: list[Overview]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    # A folder is named after these three unless its user named it otherwise, so they may go where there is no room.
    wide = console.width >= WIDE
    table.add_column(f"in {_text(home)}", overflow="fold")
    for column in ("state", *(("system", "learner", "seed") if wide else ())):
        table.add_column(column, no_wrap=True, justify="right" if column == "seed" else "left")
    for column in ("samples", "return", "TV", "TC", "changed"):
        table.add_column(column, no_wrap=True, justify="right")
    for one in found:
        what = (_text(one.task), _text(one.learner), _figure(one.seed, "d")) if wide else ()
        table.add_row(
            _text(Path(one.folder).relative_to(home)),
            _state(one),
            *what,
            _samples(one),
            _figure(one.return_mean, ".1f"),
            _figure(one.learning_TV, "d"),
            _figure(one.learning_TC, ".1f"),
            _ago(one.changed),
        )
    console.print(table)
    for one in found:
        if one.problem:
            console.print(f"{_state(one)} {_text(one.problem)}", soft_wrap=True)
    if any(one.state == "interrupted" for one in found):
        console.print("Go on with one that was interrupted:  [bold]samba-rl resume RUN[/]", soft_wrap=True)


def _show(console: Console, run: Path, one: Overview) -> None:
    table = Table(title=_text(run), title_justify="left", show_header=False, min_width=60)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("state", _state(one))
    if one.problem:
        table.add_row("", _text(one.problem))
    table.add_row("system", _text(one.task))
    table.add_row("learner", f"{_text(one.learner)}, preset {_text(one.preset)}, seed {_figure(one.seed, 'd')}")
    table.add_row("real samples", _samples(one))
    table.add_row("return of the last trial", _figure(one.return_mean, ".2f"))
    table.add_row(
        "unsafe steps (TV), safety cost (TC)", f"{_figure(one.learning_TV, 'd')}, {_figure(one.learning_TC, '.1f')}"
    )
    if one.evaluated_return is not None:
        table.add_row("return of the policy, evaluated", _figure(one.evaluated_return, ".2f"))
    if one.seconds is not None:
        from samba_rl.cli.progress import duration

        table.add_row("time", duration(one.seconds))
    table.add_row("changed", _ago(one.changed))
    for notice in _notices(run)[-LAST_NOTICES:]:
        table.add_row("note", _text(notice))
    table.add_row("files", _files(run))
    console.print(table)
    following = {
        "finished": f"samba-rl eval {run}",
        "interrupted": f"samba-rl resume {run}",
        "running": f"tensorboard --logdir {run}",
    }.get(one.state)
    if following:
        console.print(f"Next:  [bold]{_text(following)}[/]", soft_wrap=True)


def _notices(run: Path) -> list[str]:
    from samba_rl.events import Notice
    from samba_rl.runs.folder import METRICS, read_events

    try:
        return [event.text for event in read_events(run / METRICS) if isinstance(event, Notice)]
    except UserError:
        # A run that is running may be in the middle of a line.
        return []


def _files(run: Path) -> str:
    sizes = {path.name: _size(path) for path in sorted(run.iterdir()) if not path.name.startswith(".")}
    return ", ".join(f"{_text(name)} ({_bytes(size)})" for name, size in sizes.items())


def _size(path: Path) -> int:
    return sum(each.stat().st_size for each in path.rglob("*")) if path.is_dir() else path.stat().st_size


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def _text(value: object) -> str:
    from samba_rl.cli.progress import text

    return text(value)


def _state(one: Overview) -> str:
    return f"[{COLOURS[one.state]}]{one.state}[/]"


def _samples(one: Overview) -> str:
    return f"{_figure(one.real_samples, ',d')}/{_figure(one.budget, ',d')}"


def _figure(value: Any, form: str) -> str:
    return "–" if value is None else format(value, form)


def _ago(moment: float) -> str:
    """How long ago something was."""
    minutes = (time.time() - moment) / 60
    if minutes < 2:
        return "just now"
    if minutes < 120:
        return f"{minutes:.0f} min ago"
    return f"{minutes / 60:.0f} h ago" if minutes < 2880 else f"{minutes / 1440:.0f} days ago"
