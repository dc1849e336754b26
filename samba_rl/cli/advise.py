"""`samba-rl advise`: say what return can be had at which limit, before a limit is chosen."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.table import Table

from samba_rl.cli.arguments import JsonFlag
from samba_rl.cli.parsing import load_task
from samba_rl.cli.text import text
from samba_rl.errors import UserError
from samba_rl.ranges import In, Seed

if TYPE_CHECKING:
    from samba_rl.agents.advice import Advice

PICTURE = Path("advice.png")


def advise(
    where: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN|SYSTEM")],
    data: tuple[Path, ...] = (),
    columns: str = "",
    data_dt: Annotated[float, In("(0, 1e6]")] | None = None,
    limits: tuple[Annotated[float, In("[0, 1e12]")], ...] = (),
    alpha: Annotated[float, In("[0, 1)")] | None = None,
    kind: str | None = None,
    of: str = "",
    iterations: Annotated[int, In("[1, 1e6]")] | None = None,
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None,
    seed: Seed = 0,
    task: str | None = None,
    as_json: JsonFlag = False,
) -> int:
    """Say what return can be had at which limit, on a model of real data, and propose a limit ξ and a level α.

    Policies are improved on the model at several limits and judged on fresh imagined trajectories; the real system is
    not used. Takes a minute or two for a few hundred samples.

    Args:
        where: Folder of a run, finished or not; or a system, with --data: a name, module:function or file.py:function.
        data: CSV or Parquet files of real transitions.
        columns: Columns of these files, by name of the system, as in angle=theta,time=t.
        data_dt: Time between two lines of these files in seconds, if they have no column for it.
        limits: Limits to ask about, as in --limits 0.5 1 2. The limit of a run is one of them.
        alpha: Level of CVaR. Default: that of the run, or the system's.
        kind: Kind of limit. cvar: the mean of the worst share 1 - α of the trajectories. expectation: the mean of all.
            chance: the share of trajectories that enter the unsafe region. Default: that of the run, or cvar.
        of: Name of the safety cost. Default: the first; other limits of a run are kept.
        iterations: Control iterations for each limit. Default: 40; time is proportional to it.
        out: Picture to write, .png, .pdf or .svg. Default: advice.png, in the folder of the run if there is one.
        seed: Seed of all random numbers; the same seed gives the same advice.
        task: Your own system of a run, as module:function or file.py:function.
        as_json: Print one line of JSON instead of text.
    """
    from samba_rl.agents.advising import AdviceSettings
    from samba_rl.report.advice import advice
    from samba_rl.report.named import check_path, save
    from samba_rl.runs import advise as advising

    run = advising.is_run(where)
    path = (Path(where) / PICTURE if run else PICTURE) if out is None else out
    check_path(path)
    settings = AdviceSettings() if iterations is None else AdviceSettings(iterations=iterations)
    if task is not None and not run:
        raise UserError(f"--task {task}: '{where}' is not a run, so it names the system itself; leave out --task")
    console, errors = Console(highlight=False), Console(stderr=True, highlight=False)
    with errors.status("Advising") as status:
        found = advising.advise(
            Path(where) if run else load_task(where),
            data or None,
            columns=columns,
            data_dt=data_dt,
            task=None if task is None else load_task(task),
            limits=limits,
            alpha=alpha,
            kind=kind,
            of=of,
            settings=settings,
            seed=seed,
            tell=lambda what, share: status.update(f"{100 * share:3.0f} %  {text(what)}"),
        )
    if as_json:
        print(json.dumps(_to_json(found), ensure_ascii=False))
    else:
        console.print(_table(found))
        for sentence in found.sentences():
            console.print(text(sentence), soft_wrap=True)
    sys.stdout.flush()
    # Last: the advice is not lost if the picture cannot be drawn.
    save(advice(found), path)
    (errors if as_json else console).print(f"picture: {text(path)}", soft_wrap=True)
    return 0


def _table(found: Advice) -> Table:
    """Return a table with a row per judged policy, by growing limit."""
    table = Table(
        title=f"{text(found.system)}: {text(found.constrained)}",
        title_justify="left",
        caption="Each policy passes every limit from its bound on (95 % confidence). Far: share of imagined steps that "
        "lie farther from the data than the data lie from each other.",
        caption_justify="left",
    )
    table.add_column("policy")
    for column in ("value", "passes ξ", "return", "far"):
        table.add_column(column, justify="right", no_wrap=True)
    frontier = {one.name for one in found.frontier}
    for one in sorted(found.points, key=lambda point: point.bound):
        style = "bold" if one.name == found.proposed.name else "" if one.name in frontier else "dim"
        table.add_row(
            text(one.name),
            f"{one.value:.3g} ± {one.value_error:.1g}",
            f"{one.bound:.3g}",
            f"{one.mean_return:.4g} ± {one.return_error:.2g}",
            f"{100 * one.far:.0f} %",
            style=style,
        )
    return table


def _to_json(found: Advice) -> dict[str, object]:
    """Return the advice as plain values."""
    from samba_rl.agents.advice import ALPHAS
    from samba_rl.data.plain import to_plain

    plain: dict[str, object] = to_plain(found)
    return {
        **plain,
        "frontier": [one.name for one in found.frontier],
        "answers": [to_plain(one._asdict()) for one in found.answers],
        "proposed_limit": found.proposed_limit,
        "proposed_alpha": found.proposed_alpha,
        "supported": found.supported,
        "alphas": list(ALPHAS),
        "sentences": found.sentences(),
    }
