"""Training a learner on a system, and resuming a run that was interrupted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from samba_rl.agents.policy_gradient import Agent
from samba_rl.agents.settings import Settings
from samba_rl.agents.unused import paths_of, refuse_unused
from samba_rl.data import DataSet
from samba_rl.data.plain import from_plain, to_plain
from samba_rl.errors import Stopped, UserError
from samba_rl.events import Log, Notice
from samba_rl.learners import Learner
from samba_rl.presets import find_row, make_settings
from samba_rl.runs.checks import changed, check
from samba_rl.runs.earlier import earlier_data
from samba_rl.runs.earlier_report import EarlierReport, report_on
from samba_rl.runs.folder import CONFIG, EARLIER_DATA, METRICS, SUMMARY, read_events, write_json
from samba_rl.runs.loading import current_config, load_run, run_in, specification
from samba_rl.runs.run import Run
from samba_rl.runs.session import CHECKPOINT_EVERY, About, Session, Watch
from samba_rl.runs.summary import by_kind, config_of, name_of, other_versions, summary_of
from samba_rl.runs.writer import RunFolder, sweep
from samba_rl.tasks import make_task
from samba_rl.tasks.task import Task

MOST_PROCESSES = 1024
"""Largest number of threads or processes that is taken over from a configuration."""


def train(
    task: Task | str,
    learner: str | Learner = "samba",
    *,
    name: str | None = None,
    preset: str = "default",
    seed: int = 0,
    settings: Settings | None = None,
    device: str = "cpu",
    out: str | Path | None = None,
    data: DataSet | str | Path | Sequence[str | Path] | None = None,
    log: Log | None = None,
    workers: int | None = None,
    stop: Callable[[], bool] | None = None,
    checkpoint_every: float = CHECKPOINT_EVERY,
    watch: Watch | None = None,
    named: str = "",
    **changes: Any,
) -> Run:
    """Learn a policy on a system.

    Args:
        task: The system, or the name of one of the paper's.
        learner: The name of a row of `LEARNERS`, or a row of your own.
        name: Name of a row of your own, for folders and tables.
        preset: Preset that the settings start from: default, paper or smoke.
        seed: Seed of the run; the same seed gives the same run.
        settings: All settings, to be used instead of those of the learner and the preset.
        device: Device of the model and the policy: cpu or cuda.
        out: Folder to write the run to. A run with a folder can be resumed, however it was interrupted.
        data: Real transitions measured earlier, as a data set or as CSV files, Parquet files or Minari datasets; see
            also the settings first.columns and first.data_dt.
        log: Called with every event.
        workers: Number of processes for simulated systems. Default: one per core.
        stop: Polled during the run; when it returns True, the run saves its state and raises `Stopped`.
        checkpoint_every: Longest time between two checkpoints while the policy is improved, in seconds.
        watch: Called with (iteration, policy) before each trial of a policy; after an interruption perhaps again.
        named: The system as the command line names it, such as mine.py:task, to be recorded.
        changes: Fields of the settings to change, such as real_samples=300 or constraint={"limit": 0.5}.
    """
    system = make_task(task) if isinstance(task, str) else task
    row = find_row(learner, preset)
    usual = make_settings(system.name, row, preset)
    chosen = changed(usual if settings is None else settings, changes)
    refuse_unused(chosen, row, paths_of(changes))
    if data is not None and not isinstance(data, DataSet):
        files = [data] if isinstance(data, (str, Path)) else data
        chosen = replace(chosen, first=replace(chosen.first, data=",".join(map(str, files))))
    found = earlier_data(system, data if isinstance(data, DataSet) else None, chosen)
    earlier = None if found is None else found[0].transitions
    about = About(name or name_of(learner), row, preset, seed, chosen, device, named)
    check(system, about, earlier)
    report = None if found is None else report_on(system, *found, chosen)
    folder = None if out is None else RunFolder.create(Path(out), config_of(system, about, workers), earlier)
    session: Session | None = None
    try:
        session = Session(
            system, about, folder, log=log, stop=stop, workers=workers, checkpoint_every=checkpoint_every, watch=watch
        )
        if report is not None:
            _tell(report, folder, log)
        session.begin(earlier)
        return _finished(session)
    except Stopped:
        raise
    except BaseException:
        if folder is not None and not folder.measured:
            folder.discard()
        raise
    finally:
        if session is not None:
            session.close()


def resume(
    folder: str | Path,
    task: Task | None = None,
    *,
    log: Log | None = None,
    workers: int | None = None,
    stop: Callable[[], bool] | None = None,
    checkpoint_every: float = CHECKPOINT_EVERY,
    watch: Watch | None = None,
    measure: bool = True,
) -> Run:
    """Continue an interrupted run to the same end that it would have reached; load a finished one.

    Args:
        folder: Folder of the run.
        task: The system, if it is not one of the paper's.
        log: Called with every event from now on.
        workers: Number of processes for simulated systems. Default: as many as the run had.
        stop: As for `train`.
        checkpoint_every: As for `train`.
        watch: As for `train`.
        measure: Take the real steps that are still due; without it, they are an error.
    """
    home = Path(folder)
    config = current_config(home)
    if (home / SUMMARY).exists():
        run_in(home, task)  # raises, before anything is removed, if the system is not that of the run
        sweep(home)
        return load_run(home, task)
    system, about = specification(home, config, task)
    check(system, about, None, resuming=True)
    run, checkpoint, notices = RunFolder.reopen(home)
    threads = torch.get_num_threads()
    session: Session | None = None
    try:
        events = read_events(home / METRICS)
        # Another number of threads would change the order of summation, and so the last digits.
        torch.set_num_threads(_count(home, "threads", config.get("threads", threads), 1))
        if workers is None and config.get("workers") is not None:
            workers = _count(home, "workers", config["workers"], 0)
        session = Session(
            system, about, run, log=log, stop=stop, workers=workers, checkpoint_every=checkpoint_every, watch=watch,
            measure=measure,
        )  # fmt: skip
        session.restore(checkpoint, events)
        for notice in [*notices, *other_versions(config)]:
            session.notice(notice)
        return _finished(session)
    finally:
        torch.set_num_threads(threads)
        if session is None:
            run.close()
        else:
            session.close()


def _count(home: Path, name: str, value: object, least: int) -> int:
    """Return a number of threads or processes from a configuration, which may come from a stranger."""
    count: int = from_plain(int, value, f"{home / CONFIG}: {name}")
    if not least <= count <= MOST_PROCESSES:
        raise UserError(f"{home / CONFIG}: {name} = {count}; it must be from {least} to {MOST_PROCESSES}")
    return count


def _tell(report: EarlierReport, folder: RunFolder | None, log: Log | None) -> None:
    """Tell the user about earlier data, and keep the report in the folder."""
    if folder is not None:
        write_json(folder.folder / EARLIER_DATA, to_plain(report))
    for line in report.lines() if log is not None else ():
        assert log is not None
        log(Notice(line))


def _finished(session: Session) -> Run:
    """Run a session to its end and return the result."""
    policy = session.run()
    task, about, agent = session.task, session.about, session.agent
    named = {"task": task.name, "learner": about.learner, "preset": about.preset, "seed": about.seed}
    summary = to_plain({**named, **summary_of(agent, session.events, about.device)})
    if session.folder is not None:
        model = agent.model_state()
        # The model is made again from the data without these.
        model = {**model, "aside": agent.aside} if model and len(agent.aside) else model
        session.folder.finish(policy, model, summary)
    return Run(
        task=task,
        learner=about.learner,
        row=about.row,
        preset=about.preset,
        seed=about.seed,
        settings=about.settings,
        policy=policy,
        data=agent.data,
        **by_kind(session.events),
        summary=summary,
        folder=None if session.folder is None else session.folder.folder,
        _model=agent.model if isinstance(agent, Agent) else None,
    )
