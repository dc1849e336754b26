"""Training a learner on a system, and resuming a run that was interrupted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from samba_rl.agents.policy_gradient import Agent
from samba_rl.agents.settings import Settings
from samba_rl.data import DataSet
from samba_rl.data.plain import from_plain, to_plain
from samba_rl.errors import Stopped, UserError
from samba_rl.events import Log
from samba_rl.learners import Learner
from samba_rl.runs.checks import check, check_rig, controller_of
from samba_rl.runs.commands import next_command
from samba_rl.runs.extending import extend
from samba_rl.runs.folder import (
    CONFIG,
    METRICS,
    SUMMARY,
    Default,
    free_folder,
    read_events,
)
from samba_rl.runs.loading import current_config, load_run, run_in, specification
from samba_rl.runs.run import Run
from samba_rl.runs.session import CHECKPOINT_EVERY, Session, Watch
from samba_rl.runs.specifying import specified
from samba_rl.runs.summary import (
    CONTROLLED,
    DRIVEN,
    TOLD,
    by_kind,
    config_of,
    other_versions,
    summary_of,
    trials_of,
)
from samba_rl.runs.writer import RunFolder, sweep
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
    out: str | Path | Default | None = Default.FOLDER,
    data: DataSet | str | Path | Sequence[str | Path] | None = None,
    rig: str | None = None,
    first_policy: Callable[[Tensor], Tensor] | None = None,
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
        out: Folder to write the run to, from which it can be resumed, however it was interrupted. Default:
            runs/SYSTEM-LEARNER-SEED, with a number appended if that is taken. None: nothing is written.
        data: Real transitions measured earlier, as a data set or as CSV files, Parquet files or Minari datasets; see
            also the settings first.columns and first.data_dt.
        rig: Command that runs an episode outside of this program, as "./run_trial {policy} {trial}"; it needs `out`.
        first_policy: Controller of your own that makes the first trial: observations [B, no] to actions [B, nu].
        log: Called with every event.
        workers: Number of processes for simulated systems. Default: one per core.
        stop: Polled during the run; when it returns True, the run saves its state and raises `Stopped`.
        checkpoint_every: Longest time between two checkpoints while the policy is improved, in seconds.
        watch: Called with (iteration, policy) before each trial of a policy; after an interruption perhaps again.
        named: The system as the command line names it, such as mine.py:task, to be recorded.
        changes: Fields of the settings to change, such as real_samples=300 or constraint={"limit": 0.5}.
    """
    system, about, given = specified(
        task, learner, changes, name=name, preset=preset, seed=seed, settings=settings, device=device, data=data,
        named=named,
    )  # fmt: skip
    if isinstance(out, Default):
        out = free_folder(system.name, about.learner, seed)
    if rig is not None:
        check_rig(rig, about.settings, out, first_policy)
    config = config_of(system, about, workers, "" if rig is None else DRIVEN)
    config |= {} if first_policy is None else {CONTROLLED: True}
    folder = None if out is None else RunFolder.create(Path(out), config, given.transitions)
    session: Session | None = None
    try:
        session = Session(
            system, about, folder, log=log, stop=stop, workers=workers, checkpoint_every=checkpoint_every, watch=watch,
            told=rig is not None, rig=rig, controller=controller_of(first_policy),
        )  # fmt: skip
        given.tell(folder, log)
        earlier = given.transitions
        session.begin(earlier)
        return finished(session)
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
    rig: str | None = None,
    first_policy: Callable[[Tensor], Tensor] | None = None,
    real_samples: int | None = None,
    threads: int | None = None,
    device: str | None = None,
    log: Log | None = None,
    workers: int | None = None,
    stop: Callable[[], bool] | None = None,
    checkpoint_every: float = CHECKPOINT_EVERY,
    watch: Watch | None = None,
    measure: bool = True,
) -> Run:
    """Continue an interrupted run to the same end that it would have reached; load a finished one.

    With a larger budget of `real_samples`, a finished run goes on.

    Args:
        folder: Folder of the run.
        task: The system, if it is not one of the paper's.
        rig: The command that runs its episodes, if it has one: nothing in a folder may run a command.
        first_policy: The controller that makes the first trial, if that is still to come.
        real_samples: New budget of a finished run, its samples so far included.
        threads: Number of PyTorch threads, instead of those of the run; then the last digits may differ.
        device: Device of the model and the policy, instead of the run's; then other random numbers are drawn.
        log: Called with every event from now on.
        workers: Number of processes for simulated systems. Default: as many as the run had.
        stop: As for `train`.
        checkpoint_every: As for `train`.
        watch: As for `train`.
        measure: Take the real steps that are still due; without it, they are an error.
    """
    home = Path(folder)
    if real_samples is not None:
        go_on(home, real_samples, task)
    if (home / SUMMARY).exists():
        run_in(home, task)  # raises if the system is not the run's
        sweep(home)
        return load_run(home, task)
    with restored(
        home, task, log=log, workers=workers, stop=stop, checkpoint_every=checkpoint_every, watch=watch,
        measure=measure, rig=rig, first_policy=first_policy, threads=threads, device=device,
    ) as session:  # fmt: skip
        return finished(session)


def go_on(folder: Path, real_samples: int, task: Task | None = None) -> None:
    """Give a finished run a larger budget; `resume` or `ask` then goes on."""
    _, about = run_in(folder, task)
    extend(folder, (*about.budgets, about.settings.real_samples)[0], real_samples)


@contextmanager
def restored(
    home: Path,
    task: Task | None = None,
    *,
    log: Log | None = None,
    workers: int | None = None,
    stop: Callable[[], bool] | None = None,
    checkpoint_every: float = CHECKPOINT_EVERY,
    watch: Watch | None = None,
    measure: bool = True,
    rig: str | None = None,
    first_policy: Callable[[Tensor], Tensor] | None = None,
    threads: int | None = None,
    device: str | None = None,
    asking: bool = False,
) -> Iterator[Session]:
    """Open an interrupted run where it was; `asking`: for the next trial of a run that is told its trials."""
    config = current_config(home)
    system, about = specification(home, config, task)
    usual_device = about.device
    about = about if device is None else replace(about, device=device)
    trials = trials_of(config)
    told = trials in (TOLD, DRIVEN)
    if trials == TOLD and measure and not asking:
        raise UserError(f"{home} waits for trials that are told to it; go on with: {next_command(home)}")
    if measure and (trials == DRIVEN) != (rig is not None):
        why = (
            "a command runs its episodes; give it" if rig is None else "it does not run its episodes by a command; omit"
        )
        raise UserError(f"{home}: {why}: --rig './run_trial {{policy}} {{trial}}'")
    if rig is not None:
        check_rig(rig, about.settings, home, first_policy)
    check(system, about, None, resuming=True)
    run, checkpoint, notices = RunFolder.reopen(home)
    if config.get(CONTROLLED) and first_policy is None and measure and not run.measured:
        run.close()
        raise UserError(
            f"{home}: its first trial is made by a controller of yours; give it: --first.policy file.py:name"
        )
    before = torch.get_num_threads()
    session: Session | None = None
    try:
        events = read_events(home / METRICS)
        # Another number of threads would change the order of summation, and so the last digits.
        usual = _count(home, "threads", config.get("threads", before), 1)
        torch.set_num_threads(usual if threads is None else threads)
        if threads not in (None, usual):
            notices.append(f"{threads} threads instead of {usual}: it continues, but perhaps not to the same bits")
        if about.device != usual_device:
            notices.append(f"on {about.device} instead of {usual_device}: it continues, with other random numbers")
        if workers is None and config.get("workers") is not None:
            workers = _count(home, "workers", config["workers"], 0)
        session = Session(
            system, about, run, log=log, stop=stop, workers=workers, checkpoint_every=checkpoint_every, watch=watch,
            measure=measure, told=told, rig=rig, controller=controller_of(first_policy),
        )  # fmt: skip
        session.restore(checkpoint, events)
        for notice in [*notices, *other_versions(config)]:
            session.notice(notice)
        yield session
    finally:
        torch.set_num_threads(before)
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


def finished(session: Session) -> Run:
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
