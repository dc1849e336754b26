"""`samba-rl ask`: learn from what a waiting run was told, and write the policy of its next trial."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, final

import tyro
from rich.console import Console
from rich.table import Table

from samba_rl.cli.arguments import JsonFlag, RunArgument
from samba_rl.cli.parsing import load_task
from samba_rl.cli.text import number, text
from samba_rl.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from samba_rl.agents.forecast import Forecast
    from samba_rl.events import Log
    from samba_rl.runs.request import Request
    from samba_rl.runs.waiting import WaitingRun
    from samba_rl.types import Traces

POLICY_FILE = "next.policy"
"""Name of the file of the policy in the folder of the run, unless another is given."""
PICTURE = "forecast-{}.png"
"""Name of the picture of what is expected of a trial, in the folder of the run."""


def ask(
    run: RunArgument,
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None,
    task: str | None = None,
    *,
    pictures: bool = True,
    as_json: JsonFlag = False,
) -> int:
    """Learn from what a waiting run was told, write the policy of its next trial, and say what to expect of it.

    While a trial is due, its policy is written again, the same to the last bit. Once the budget is spent, the run ends
    and the final policy is written.

    Args:
        run: Folder that `samba-rl new` made.
        out: File to write the policy to, as JSON. Default: next.policy in the run's folder.
        task: Your own system, as module:function or file.py:function.
        pictures: Draw what the model expects of the trial, as forecast-TRIAL.png in the run's folder; and the
            run, when it ends.
        as_json: Print one line of JSON instead of text.
    """
    from samba_rl import runs
    from samba_rl.cli.display import RunDisplay
    from samba_rl.data.files import check_target
    from samba_rl.runs.folder import check_not_own
    from samba_rl.runs.policy_file import policy_record, write_record
    from samba_rl.runs.request import Request
    from samba_rl.runs.waiting import WaitingRun

    waiting = WaitingRun(run, None if task is None else load_task(task))
    display = RunDisplay(waiting.task, task or waiting.task.name, run, waiting.about, "ask", quiet=as_json)
    file = run / POLICY_FILE if out is None else out
    check_target(file, own=out is None)  # before minutes of learning
    check_not_own(file, run)
    chart = _Chart(waiting)

    def learning(log: Log, stop: Callable[[], bool]) -> Request | None:
        return waiting.ask(log=log, stop=stop, show=chart.draw if pictures else None)

    over = waiting.finished
    request = waiting.pending()
    if request is None and not over:
        answer = display.learn(learning, runs.earlier_events(run))
        if isinstance(answer, int):
            return answer
        request = answer
    if isinstance(request, Request):
        write_record(file, request.record, own=out is None)
        if as_json:
            print(json.dumps(_plain(request, file, chart), ensure_ascii=False))
        else:
            _show(display.console, waiting, request, file, task)
            chart.show(display.console, request.trial)
        return 0
    result = waiting.result()
    about = {"trial": None, "seed": result.seed}
    write_record(file, policy_record(result.task, result.policy, 0, about), own=out is None)
    if as_json:
        print(json.dumps({"finished": True, "file": str(file)}))
        return 0
    display.console.print(f"The budget is spent: the final policy is in [bold]{text(file)}[/].", soft_wrap=True)
    return display.results(result, evaluation=False, pictures=pictures and not over, report=pictures and not over)


@final
class _Chart:
    """Pictures of what the model expects of trials."""

    def __init__(self, waiting: WaitingRun) -> None:
        self._waiting, self._problem = waiting, ""

    def of(self, trial: int) -> Path | None:
        """Return the picture of a trial; None if there is none."""
        path = self._waiting.folder / PICTURE.format(trial)
        return path if path.is_file() else None

    def draw(self, trial: int, imagined: Traces) -> None:
        """Draw it; a trial can be made without, so what stands in the way is only said."""
        from samba_rl.report.forecast import forecast
        from samba_rl.report.named import save

        task, about = self._waiting.task, self._waiting.about
        try:
            limits = about.settings.constraints(about.row, task.constraints)
            figure = forecast(task, imagined, limits, f"{task.title}: before trial {trial}")
            save(figure, self._waiting.folder / PICTURE.format(trial))
        except UserError as error:
            self._problem = str(error)

    def show(self, console: Console, trial: int) -> None:
        """Say where the picture of a trial is."""
        if self._problem:
            console.print(f"[dim]No picture of it: {text(self._problem)}[/]", soft_wrap=True)
        elif (path := self.of(trial)) is not None:
            console.print(f"What the model expects is drawn in [bold]{text(path)}[/].", soft_wrap=True)


def _plain(request: Request, file: Path, chart: _Chart) -> dict[str, object]:
    """Return a request for a program."""
    from samba_rl.data.plain import to_plain

    numbers = {"trial": request.trial, "episodes": request.episodes, "told": request.told}
    files = {"file": str(file), "picture": None if (path := chart.of(request.trial)) is None else str(path)}
    return {"finished": False, **numbers, **files, "forecast": to_plain(request.forecast)}


def _show(console: Console, waiting: WaitingRun, request: Request, file: Path, task: str | None) -> None:
    """Say which trial is due, what to expect of it, and how to tell it."""
    what = waiting.task
    left = request.episodes - request.told
    episodes = f"{left} episode{'s' * (left > 1)}" + (f" more, of {request.episodes}" if request.told else "")
    console.print(
        f"[bold]Trial {request.trial}[/]: {episodes} of {what.horizon} steps of {what.dt:g} s.", soft_wrap=True
    )
    if request.record["format"] == "samba-rl policy":
        drawn = " and the expert that it draws at the start" if "gate" in request.record else ""
        console.print(f"Run the policy in [bold]{text(file)}[/], with its noise{drawn}.", soft_wrap=True)
    else:
        again = "; ask again for those of the next episode" if left > 1 else ""
        console.print(f"Apply the actions in [bold]{text(file)}[/], one at each step{again}.", soft_wrap=True)
    if request.forecast is not None:
        console.print(_expected(waiting, request.forecast))
    names = ", ".join(["time", *(one.name for one in (*what.states, *what.actions))])
    console.print(f"Log a row at each step and one at the end, as CSV with the columns {text(names)}.", soft_wrap=True)
    own = "" if task is None else f" --task {shlex.quote(task)}"
    console.print(
        f"Then:  [bold]samba-rl tell {text(shlex.quote(str(waiting.folder)) + ' trial.csv' + own)}[/]", soft_wrap=True
    )


def _expected(waiting: WaitingRun, expected: Forecast) -> Table:
    """Return what the model expects of a trial, as a table."""
    table = Table(title="Expected on the model", title_justify="left", show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    span = f"{number(expected.return_low)} to {number(expected.return_high)}"
    table.add_row("return", f"{number(expected.return_mean)}, nine times out of ten {span}")
    for one in expected.limits:
        judged = "" if one.bound is None else f", at most {one.bound:.3g} with 95 % confidence"
        table.add_row(text(one.words), f"{one.value:.3g}{judged}; limit {one.limit:g}")
    if expected.passes is not None:
        verdict = "[green]passes[/]" if expected.passes else "[bold red]no known policy looks safe enough[/]"
        table.add_row("gate", verdict)
    at = ", ".join(f"{one.name} {value:.3g}" for one, value in zip(waiting.task.states, expected.start, strict=True))
    first = ", ".join(
        f"{one.name} {value:.3g}" for one, value in zip(waiting.task.actions, expected.first_action, strict=True)
    )
    table.add_row("first action", f"{text(first)} (at {text(at)})")
    return table
