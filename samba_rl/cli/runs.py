"""`samba-rl runs`: list runs and their progress, or show one."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from samba_rl.cli.arguments import JsonFlag, RunArgument
from samba_rl.cli.tables import COLOURS as STANDINGS
from samba_rl.cli.text import ago, duration, file_size, text
from samba_rl.errors import UserError

if TYPE_CHECKING:
    from samba_rl.runs.listing import Overview

COLOURS = {"running": "cyan", "finished": "green", "waiting": "blue", "interrupted": "yellow", "damaged": "red"}
LAST_NOTICES = 5
"""Number of notices shown for a run."""
WIDE = 120
"""Width of a terminal, in columns, that has room for every column of the table."""


def runs(run: RunArgument = Path("runs"), *, as_json: JsonFlag = False) -> int:
    """List runs with their state, samples and latest results; or show one run.

    Args:
        run: Folder that contains runs, directly or deeper, or the folder of one run.
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
        console.print(f"There are no runs in {text(run)}. Start one: samba-rl train safe-pendulum", soft_wrap=True)
    else:
        _list(console, run, found)
    return 0


def _list(console: Console, home: Path, found: list[Overview]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    # By default a folder is named after system, learner and seed, so these columns can be dropped to save room.
    wide = console.width >= WIDE
    table.add_column(f"in {text(home)}", overflow="fold")
    for column in ("state", *(("system", "learner", "seed") if wide else ())):
        table.add_column(column, no_wrap=True, justify="right" if column == "seed" else "left")
    for column in ("samples", "return", "TV", "TC", "limit", "changed"):
        table.add_column(column, no_wrap=True, justify="right")
    if wide:
        table.add_column("not as in the preset", overflow="fold")
    for one in found:
        what = (text(one.task), text(one.learner), _figure(one.seed, "d")) if wide else ()
        table.add_row(
            text(Path(one.folder).relative_to(home)),
            _state(one),
            *what,
            _samples(one),
            _figure(one.return_mean, ".1f"),
            _figure(one.learning_TV, "d"),
            _figure(one.learning_TC, ".1f"),
            _limit(one),
            ago(one.changed),
            *((text(", ".join(one.changes)),) if wide else ()),
        )
    console.print(table)
    for one in found:
        if one.changes and not wide:
            name = text(Path(one.folder).relative_to(home))
            console.print(f"[dim]{name}: {text(one.task)}, {text(one.learner)}, {text(', '.join(one.changes))}[/]")
    for one in found:
        if one.problem:
            console.print(f"{_state(one)} {text(one.problem)}", soft_wrap=True)
    interrupted = [one for one in found if one.state == "interrupted"]
    if len(interrupted) == 1:
        command = f"samba-rl resume {shlex.quote(interrupted[0].folder)}{_own(interrupted[0])}"
        console.print(f"Continue the interrupted run with:  [bold]{text(command)}[/]", soft_wrap=True)
    elif interrupted:
        needed = sorted({_own(one) for one in interrupted})
        ways = " or ".join(f"[bold]samba-rl resume RUN{text(own)}[/]" for own in needed)
        console.print(f"Continue an interrupted run with:  {ways}", soft_wrap=True)


def _show(console: Console, run: Path, one: Overview) -> None:
    table = Table(title=text(run), title_justify="left", show_header=False, min_width=60)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("state", _state(one))
    if one.problem:
        table.add_row("", text(one.problem))
    for words, standing in one.measured:
        table.add_row("limit", f"{text(words)}: [{STANDINGS[standing]}]{standing}[/]")
    for words in one.missed:
        table.add_row("[bold red]limit not kept[/]", f"[bold red]{text(words)}[/]")
    table.add_row("system", text(one.task) + (f" ({text(one.named)})" if one.named else ""))
    table.add_row("learner", f"{text(one.learner)}, preset {text(one.preset)}, seed {_figure(one.seed, 'd')}")
    if one.changes:
        table.add_row("not as in the preset", text(", ".join(one.changes)))
    table.add_row("real samples", _samples(one))
    table.add_row("return of the last trial", _figure(one.return_mean, ".2f"))
    table.add_row(
        "unsafe steps (TV), safety cost (TC)", f"{_figure(one.learning_TV, 'd')}, {_figure(one.learning_TC, '.1f')}"
    )
    if one.set_aside:
        table.add_row("outliers set aside", f"{one.set_aside:,} steps")
    if one.evaluated_return is not None:
        table.add_row("return of the policy, evaluated", _figure(one.evaluated_return, ".2f"))
    if one.seconds is not None:
        table.add_row("time", duration(one.seconds))
    table.add_row("changed", ago(one.changed))
    for notice in _notices(run)[-LAST_NOTICES:]:
        table.add_row("note", text(notice))
    table.add_row("files", _files(run))
    console.print(table)
    console.print(f"Next:  [bold]{text(next_command(run, one))}[/]", soft_wrap=True)


def next_command(run: Path, one: Overview) -> str:
    """Return the command that is most likely to come next for a run."""
    folder = shlex.quote(str(run))
    return {
        "finished": f"samba-rl eval {folder}{_own(one)}",
        "waiting": f"samba-rl status {folder}",
        "interrupted": f"samba-rl resume {folder}{_own(one)}",
        "running": f"samba-rl watch {folder}",
        "damaged": f"samba-rl verify {folder}",
    }[one.state]


def _notices(run: Path) -> list[str]:
    from samba_rl.events import Notice
    from samba_rl.runs.folder import METRICS, read_events

    try:
        return [event.text for event in read_events(run / METRICS) if isinstance(event, Notice)]
    except UserError:
        # A run in progress may be in the middle of a line.
        return []


def _files(run: Path) -> str:
    sizes = {path.name: _size(path) for path in sorted(run.iterdir()) if not path.name.startswith(".")}
    return ", ".join(f"{text(name)} ({file_size(size)})" for name, size in sizes.items())


def _size(path: Path) -> int:
    return sum(each.lstat().st_size for each in path.rglob("*")) if path.is_dir() else path.lstat().st_size


def _state(one: Overview) -> str:
    return f"[{COLOURS[one.state]}]{one.state}[/]"


def _limit(one: Overview) -> str:
    """Return whether the limits are kept, as far as that is known: the worst of them counts."""
    found = {standing for _, standing in one.measured} | ({"broken"} if one.missed else set())
    worst = next((standing for standing in ("broken", "unclear", "kept") if standing in found), "")
    return f"[{STANDINGS[worst]}]{worst}[/]" if worst else "–"


def _own(one: Overview) -> str:
    """Return the flag that names a system of one's own."""
    return f" --task {shlex.quote(one.named)}" if one.named else ""


def _samples(one: Overview) -> str:
    return f"{_figure(one.real_samples, ',d')}/{_figure(one.budget, ',d')}"


def _figure(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)
