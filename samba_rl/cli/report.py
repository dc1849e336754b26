"""`samba-rl report`: show runs and results on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from samba_rl.cli.arguments import Steps
from samba_rl.cli.parsing import load_task
from samba_rl.cli.text import text
from samba_rl.errors import UserError
from samba_rl.ranges import In, Workers


def report(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUNS")] = (Path("runs"),),
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html"),
    title: str = "",
    steps: Steps | None = None,
    episodes: Annotated[int, In("[0, 1000]")] | None = None,
    task: str | None = None,
    workers: Workers | None = None,
) -> int:
    """Show runs on one page: a verdict on each, films beside learning curves, figures, tables, settings, versions.

    The page is self-contained: it opens from disk, without a network, on a phone too.

    Args:
        runs: Folders of runs, folders that contain runs, or folders of results that `samba-rl benchmark` wrote; several
            can be given.
        out: File to write.
        title: Title of the page. Default: the learners and systems.
        steps: Number of real steps to evaluate a run that was not evaluated yet. Default: 10,000, but none of a rig.
        episodes: Number of episodes in each clip; 0 makes no clips. Default: 2, but none of a rig.
        task: Your own system, as module:function or file.py:function, to be evaluated and filmed.
        workers: Number of processes for MuJoCo. Default: one per core; 0 uses none.
    """
    from samba_rl.data.files import disk_error, replacing
    from samba_rl.report.report import make_report

    if out.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"cannot write a report as '{out}'; its name must end in .html")
    system = None if task is None else load_task(task)
    console = Console(highlight=False)
    with console.status("Reading") as status:

        def tell(what: str) -> None:
            status.update(text(what))

        page = make_report(
            runs, title=title, task=system, steps=steps, episodes=episodes, workers=workers, tell=tell
        ).encode()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with replacing(out) as file:
            file.write(page)
    except OSError as error:
        raise disk_error(out, error) from error
    console.print(f"{text(out)}: {len(page) / 1e6:.1f} MB; open it in a browser", soft_wrap=True)
    return 0
