"""Advice on the limit of a run, or of a system with data that were measured earlier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from samba_rl.agents.advice import Advice
from samba_rl.agents.advising import AdviceSettings, Adviser, Tell
from samba_rl.agents.agent import schema_of
from samba_rl.agents.settings import ModelBasedSettings, Settings
from samba_rl.data import DataSet
from samba_rl.data.journal import Journal
from samba_rl.errors import UserError, did_you_mean
from samba_rl.improve.constraints import KINDS, Constraint, CVaR
from samba_rl.improve.policies import GaussianPolicy
from samba_rl.learners import LEARNERS, Learner
from samba_rl.presets import make_settings
from samba_rl.ranges import check
from samba_rl.runs.checks import check_functions
from samba_rl.runs.earlier import LogReader, earlier_data, mapping_of
from samba_rl.runs.folder import CONFIG, JOURNAL, SUMMARY
from samba_rl.runs.loading import load_run, run_in
from samba_rl.tasks import TASKS
from samba_rl.tasks.task import Task


def advise(
    where: Task | Path,
    data: DataSet | str | Path | Sequence[str | Path] | None = None,
    *,
    columns: str = "",
    data_dt: float | None = None,
    task: Task | None = None,
    limits: Sequence[float] = (),
    alpha: float | None = None,
    kind: str | None = None,
    of: str = "",
    settings: AdviceSettings | None = None,
    seed: int = 0,
    tell: Tell | None = None,
) -> Advice:
    """Say what return can be had at which limit, on a model of real data; the real system is not used.

    Args:
        where: The system, with `data`; or the folder of a run, finished or not.
        data: Real transitions, as a data set, or as CSV or Parquet files; for a run: its own.
        columns: Mapping of names to the columns of the files, as in "angle=theta,time=t".
        data_dt: Time between two lines of the files, in seconds, if they do not say so.
        task: The system of a run, if it is not one of the paper's.
        limits: Limits ξ to ask about. A run's own limit is one of them.
        alpha: Level α of CVaR. Default: that of the run, or the system's.
        kind: Kind of limit: cvar, expectation or chance. Default: that of the run, or cvar.
        of: Name of the safety cost. Default: the first; other limits of a run are kept.
        settings: How much work goes into it.
        seed: Seed of all random numbers.
        tell: Called with what is being done and the share of the work that is done.
    """
    known, row, asked = None, LEARNERS["samba"], list(limits)
    if data is None and (columns or data_dt is not None):
        raise UserError("columns and data_dt belong to data; give files of data, or leave them out")
    if isinstance(where, Path):
        if data is not None:
            raise UserError(f"{where} is a run, which has its own data; leave out the data, or give the system instead")
        system, about = run_in(where, task)
        found: Settings = about.settings
        row = about.row
        steps = _data_of(where, system)
        if (where / SUMMARY).exists():
            policy = load_run(where, system).policy
            known = policy if isinstance(policy, GaussianPolicy) else None
    else:
        system, found = where, make_settings(where)
        if data is None:
            raise UserError(f"advice on {system.name} needs data; give CSV or Parquet files with --data, or a run")
        if isinstance(data, DataSet):
            found_data = earlier_data(system, data, found)
            assert found_data is not None
            steps, _ = found_data
        else:
            given = [data] if isinstance(data, str | Path) else data
            files = [file for one in given for file in str(one).split(",")]
            steps, _ = LogReader(system, mapping_of(columns), data_dt).read(files)
    check_functions(system)
    numbers = found if isinstance(found, ModelBasedSettings) else _model_based(system, found)
    constraints = _constraints(system, numbers, row, kind, alpha, of)
    if isinstance(where, Path):
        asked.append(constraints[0].limit)
    for limit in asked:
        if not 0 <= limit < float("inf"):
            raise UserError(f"limit = {limit}; give a number of at least 0")
    adviser = Adviser(
        system, steps.transitions, numbers, constraints, settings or AdviceSettings(), seed=seed, tell=tell
    )  # fmt: skip
    return adviser.advise(known, tuple(dict.fromkeys(asked)))


def is_run(where: str) -> bool:
    """Return whether text names the folder of a run; if not, it names a system."""
    if (Path(where) / CONFIG).is_file():
        return True
    if ":" in where or where in TASKS:
        return False
    raise UserError(
        f"'{where}' is neither the folder of a run nor a system; give a folder that `train` wrote, one of "
        f"{', '.join(TASKS)}, or your own system as file.py:function"
    )


def _data_of(folder: Path, task: Task) -> DataSet:
    data = DataSet.empty(schema_of(task))
    for steps in Journal.read(folder / JOURNAL).trials():
        data = data.append(steps)
    if not len(data):
        raise UserError(f"{folder} has no real trial yet, so there is nothing to learn from; make the first trial")
    return data


def _model_based(task: Task, settings: Settings) -> ModelBasedSettings:
    """Return settings of a learner on a model, with the limits of other settings."""
    numbers = make_settings(task)
    assert isinstance(numbers, ModelBasedSettings)
    return replace(numbers, constraint=replace(numbers.constraint, alpha=settings.alpha))


def _constraints(
    task: Task, settings: ModelBasedSettings, row: Learner, kind: str | None, alpha: float | None, of: str
) -> tuple[Constraint, ...]:
    """Return the constraint to advise on, then those that are kept beside it."""
    own = settings.constraints(row, task.constraints) if row.constraint is not None else ()
    name = of or settings.constraint.of or task.constraints[0]
    if name not in task.constraints:
        raise UserError(f"no safety cost is called '{name}'; {did_you_mean(name, task.constraints)}")
    if kind is not None and kind not in KINDS:
        raise UserError(f"no kind of limit is called '{kind}'; {did_you_mean(kind, KINDS)}")
    made = KINDS[kind] if kind is not None else row.constraint or CVaR
    chosen = settings.constraint if alpha is None else replace(settings.constraint, alpha=alpha)
    check(chosen, "constraint.")
    first = made.make(chosen, name, task.constraints.index(name))
    return (first, *(one for one in own if one.name != name))
