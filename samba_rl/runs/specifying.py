"""The specification of a new run, checked before anything happens, and the earlier data that it is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from samba_rl.agents.settings import Settings
from samba_rl.agents.unused import paths_of, refuse_unused
from samba_rl.data import DataSet
from samba_rl.data.plain import to_plain
from samba_rl.events import Log, Notice
from samba_rl.learners import Learner
from samba_rl.presets import find_row, make_settings
from samba_rl.runs.checks import changed, check
from samba_rl.runs.earlier import earlier_data
from samba_rl.runs.earlier_report import EarlierReport, report_on
from samba_rl.runs.folder import EARLIER_DATA, write_json
from samba_rl.runs.session import About
from samba_rl.runs.summary import name_of
from samba_rl.runs.writer import RunFolder
from samba_rl.tasks import make_task
from samba_rl.tasks.task import Task
from samba_rl.types import Transitions


@dataclass(frozen=True)
class Given:
    """What a run is given to learn from before its first trial."""

    transitions: Transitions | None = None
    """Real transitions measured earlier."""
    report: EarlierReport | None = None
    """What was used of them, and how a model of them does."""

    def tell(self, folder: RunFolder | None, log: Log | None) -> None:
        """Tell the user about earlier data, and keep the report in the folder."""
        if self.report is None:
            return
        if folder is not None:
            write_json(folder.folder / EARLIER_DATA, to_plain(self.report))
        for line in self.report.lines() if log is not None else ():
            assert log is not None
            log(Notice(line))


def specified(
    task: Task | str,
    learner: str | Learner,
    changes: Mapping[str, object],
    *,
    name: str | None,
    preset: str,
    seed: int,
    settings: Settings | None,
    device: str,
    data: DataSet | str | Path | Sequence[str | Path] | None,
    named: str = "",
    told: bool = False,
) -> tuple[Task, About, Given]:
    """Return the system, the checked specification and the earlier data of a new run; for the arguments see `train`.

    `told`: its trials are told to it, so that data may come later.
    """
    system = make_task(task) if isinstance(task, str) else task
    row = find_row(learner, preset)
    usual = make_settings(system, row, preset)
    chosen = changed(usual if settings is None else settings, changes)
    refuse_unused(chosen, row, [*paths_of(changes), *["data"] * (data is not None)])
    if data is not None and not isinstance(data, DataSet):
        files = [data] if isinstance(data, (str, Path)) else data
        chosen = replace(chosen, first=replace(chosen.first, data=",".join(map(str, files))))
    found = earlier_data(system, data if isinstance(data, DataSet) else None, chosen)
    earlier = None if found is None else found[0].transitions
    about = About(name or name_of(learner), row, preset, seed, chosen, device, named)
    check(system, about, earlier, resuming=told)
    return system, about, Given(earlier, None if found is None else report_on(system, *found, chosen))
