"""The command report: runs and results on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.markup import escape

from samba_rl.cli.parsing import load_task
from samba_rl.errors import UserError, printable


def report(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUNS")] = (Path("runs"),),
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html"),
    title: str = "",
    steps: int = 10_000,
    episodes: int = 2,
    task: str | None = None,
    workers: int | None = None,
) -> int:
    """Put runs on one page: what was run, tables, figures, a clip of each policy, settings, versions.

    The page carries everything it needs: it opens from disk, without a network, on a phone too.

    Args:
        runs: Folders of runs, folders that hold some, folders that `samba-rl benchmark` wrote its results to; several
            may be given.
        out: The file to write.
        title: Of the page. Left out: what was run.
        steps: Real steps of the evaluation of a run that was not evaluated yet.
        episodes: Of each clip; 0: no clips.
        task: The system as module:function or file.py:function, where it is one of your own; it is run for the clips.
        workers: Processes for MuJoCo. Left out: one for each core; 0: none.
    """
    from samba_rl.data.files import disk_error, replacing
    from samba_rl.report.report import make_report

    if out.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"cannot write a report as '{out}'; its name must end in .html")
    system = None if task is None else load_task(task)
    console = Console(highlight=False)
    with console.status("Reading") as status:

        def tell(what: str) -> None:
            status.update(escape(printable(what)))

        page = make_report(
            runs, title=title, task=system, steps=steps, episodes=episodes, workers=workers, tell=tell
        ).encode()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with replacing(out) as file:
            file.write(page)
    except OSError as error:
        raise disk_error(out, error) from error
    console.print(f"{escape(printable(str(out)))}: {len(page) / 1e6:.1f} MB; open it in a browser", soft_wrap=True)
    return 0
