"""A run: a learner on a system with a seed, from the first real trial to the policy that it ends with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, final

import torch

from samba_rl.agents.agent import Learned, schema_of
from samba_rl.agents.policy_gradient import Agent
from samba_rl.algorithm import Watch
from samba_rl.data import DataSet
from samba_rl.data.journal import Journal
from samba_rl.data.plain import from_plain, to_plain
from samba_rl.errors import Stopped, UserError
from samba_rl.events import Event, ImprovementReport, Log, Notice, TrialReport
from samba_rl.improve.constraints import Constraint
from samba_rl.improve.policies import GaussianPolicy, MeanPolicy
from samba_rl.learners import Learner, Settings, make_settings
from samba_rl.models.gp import GPDynamics
from samba_rl.planet.policy import PlanningPolicy
from samba_rl.runs.checkpoints import read_checkpoint
from samba_rl.runs.checks import changed, check, constraints_of, earlier_transitions
from samba_rl.runs.evaluation import Evaluation, evaluate
from samba_rl.runs.folder import (
    CONFIG,
    JOURNAL,
    METRICS,
    MODEL,
    POLICY,
    SUMMARY,
    RunFolder,
    read_config,
    read_events,
    read_json,
    read_policy,
    read_state,
)
from samba_rl.runs.session import CHECKPOINT_EVERY, About, Session
from samba_rl.runs.summary import by_kind, config_of, name_of, other_versions, summary_of
from samba_rl.tasks import TASKS, make_task
from samba_rl.tasks.task import Task
from samba_rl.types import Policy


@final
@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """A run that has ended: what it was, what happened, and what it led to."""

    task: Task
    learner: str
    """The name of its row in `LEARNERS`, or "own"."""
    preset: str
    seed: int
    settings: Settings
    policy: Learned
    """On the CPU."""
    data: DataSet
    """Every real transition: those that were there before, and those of the run."""
    trials: tuple[TrialReport, ...]
    improvements: tuple[ImprovementReport, ...]
    notices: tuple[Notice, ...]
    summary: Mapping[str, Any]
    """As in summary.json."""
    folder: Path | None = None
    """Where it was written, if it was."""
    _model: GPDynamics | None = field(default=None)

    def __repr__(self) -> str:
        samples = self.summary.get("real_samples")
        return f"<Run of {self.learner} on {self.task.name}, seed {self.seed}: {samples} real samples>"

    @cached_property
    def model(self) -> GPDynamics:
        """The GP model that the run ended with; a run from a folder makes it anew when it is first used."""
        if self.settings.traces != "model":
            latent = "; its latent model is run.policy.model" if self.settings.traces == "latent" else ""
            raise UserError(f"{self.learner} has no GP model{latent}")
        if self._model is not None:
            return self._model
        model = GPDynamics(self.task, self.settings.model)
        assert self.folder is not None
        try:
            model.load_state_dict(read_state(self.folder / MODEL), self.data.transitions)
        except (KeyError, TypeError, RuntimeError, AttributeError) as error:
            raise UserError(f"{self.folder / MODEL} does not fit the run's data ({error}); copy it again") from error
        return model

    @property
    def still_policy(self) -> Policy:
        """The policy without its noise; one that plans has none once it has learned."""
        return MeanPolicy(self.policy) if isinstance(self.policy, GaussianPolicy) else self.policy

    @cached_property
    def constraints(self) -> tuple[Constraint, ...]:
        """The limits on the safety cost."""
        return constraints_of(self.task, self.settings)

    def evaluate(
        self, steps: int = 10_000, seed: int = 0, deterministic: bool = False, workers: int | None = None
    ) -> Evaluation:
        """Run the policy on the real system, apart from learning; `deterministic`: without its noise."""
        return evaluate(
            self.task,
            self.still_policy if deterministic else self.policy,
            steps=steps,
            seed=seed,
            alpha=self.settings.constraint.alpha,
            constraints=self.constraints,
            # A planner has no noise to leave out.
            deterministic=deterministic or not isinstance(self.policy, GaussianPolicy),
            workers=workers,
        )

    def evaluate_both(self, steps: int = 10_000, workers: int | None = None) -> tuple[Evaluation, Evaluation]:
        """With the policy's noise and without it; a planner has none, and is evaluated once."""
        with_noise = self.evaluate(steps, workers=workers)
        if self.still_policy is self.policy:
            return with_noise, with_noise
        return with_noise, self.evaluate(steps, deterministic=True, workers=workers)


def train(
    task: Task | str,
    learner: str | Learner = "samba",
    *,
    preset: str = "default",
    seed: int = 0,
    settings: Settings | None = None,
    device: str = "cpu",
    out: str | Path | None = None,
    data: DataSet | str | Path | None = None,
    log: Log | None = None,
    workers: int | None = None,
    stop: Callable[[], bool] | None = None,
    checkpoint_every: float = CHECKPOINT_EVERY,
    watch: Watch | None = None,
    **changes: Any,
) -> Run:
    """Learn a policy on a system.

    Args:
        task: The system, or the name of one of the paper's.
        learner: The name of a row of `LEARNERS`, or a row of your own.
        preset: Where the settings start from: default, paper or smoke.
        seed: The same seed gives the same run.
        settings: Everything at once, taken as it is, instead of what the learner and the preset stand for.
        device: Where the model and the policy are computed: cpu or cuda.
        out: A folder to write the run to as it goes. A run that has one can be resumed, whatever ended it.
        data: Real transitions that are there already, as a data set or as a CSV or Parquet file.
        log: Is called with every event.
        workers: Processes for systems that a simulator runs; None: one for each core.
        stop: Is asked now and then whether the run should end; if so it raises `Stopped` when all is safely written.
        checkpoint_every: Seconds between checkpoints at most, while the policy is improved.
        watch: Is called with (iteration, policy) before each trial of a policy; after an interruption perhaps again.
        changes: Fields of `Settings`, such as real_samples=300 or constraint={"limit": 0.5}.
    """
    system = make_task(task) if isinstance(task, str) else task
    usual = make_settings(system.name, learner, preset)
    chosen = changed(usual if settings is None else settings, changes)
    if isinstance(data, (str, Path)):
        chosen = replace(chosen, first=replace(chosen.first, data=str(data)))
    earlier = earlier_transitions(system, data if isinstance(data, DataSet) else chosen.first.data or None)
    check(system, chosen, seed, device, earlier)
    about = About(name_of(learner), preset, seed, chosen, device)
    folder = None if out is None else RunFolder.create(Path(out), config_of(system, about, workers), earlier)
    session: Session | None = None
    try:
        session = Session(
            system, about, folder, log=log, stop=stop, workers=workers, checkpoint_every=checkpoint_every, watch=watch
        )
        session.begin(earlier)
        return _run(session)
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
) -> Run:
    """Go on with a run that was interrupted, to the end that it would have had; one that is finished is loaded.

    Args:
        folder: Where it was written.
        task: The system, where it is none of the paper's.
        log: Is called with every event from now on.
        workers: Processes for systems that a simulator runs; None: as many as the run had.
        stop: As for `train`.
        checkpoint_every: As for `train`.
        watch: As for `train`.
    """
    home = Path(folder)
    system, about, config = _of_folder(home, task)
    if (home / SUMMARY).exists():
        return load_run(home, task)
    check(system, about.settings, about.seed, about.device, None, resuming=True)
    run, checkpoint, notices = RunFolder.reopen(home)
    threads = torch.get_num_threads()
    session: Session | None = None
    try:
        events = read_events(home / METRICS)
        # With another number of threads sums are taken in another order.
        torch.set_num_threads(from_plain(int, config.get("threads", threads), f"{home / CONFIG}: threads"))
        count = (
            from_plain(int | None, config.get("workers"), f"{home / CONFIG}: workers") if workers is None else workers
        )
        session = Session(
            system, about, run, log=log, stop=stop, workers=count, checkpoint_every=checkpoint_every, watch=watch
        )
        session.restore(checkpoint, events)
        for notice in [*notices, *other_versions(config)]:
            session.notice(notice)
        return _run(session)
    finally:
        torch.set_num_threads(threads)
        if session is None:
            run.close()
        else:
            session.close()


def run_in(folder: Path, task: Task | None = None) -> tuple[Task, About]:
    """The system of the run in a folder, and what it was asked to do."""
    return _of_folder(folder, task)[:2]


def earlier_events(folder: Path) -> list[Event]:
    """What happened in a run up to the checkpoint from which `resume` goes on."""
    if (folder / SUMMARY).exists():
        return read_events(folder / METRICS)
    checkpoint, _ = read_checkpoint(folder)
    size = 0 if checkpoint is None else int(checkpoint.about["metrics_bytes"])
    return read_events(folder / METRICS, size) if (folder / METRICS).exists() else []


def _run(session: Session) -> Run:
    """Run a session to its end."""
    policy = session.run()
    task, about, agent = session.task, session.about, session.agent
    named = {"task": task.name, "learner": about.learner, "preset": about.preset, "seed": about.seed}
    summary = to_plain({**named, **summary_of(agent, session.events, about.device)})
    if session.folder is not None:
        session.folder.finish(policy, agent.model_state(), summary)
    return Run(
        task=task,
        learner=about.learner,
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


def load_run(folder: str | Path, task: Task | None = None) -> Run:
    """The run that `train` wrote to the folder, if it is finished.

    One of the paper's systems is known by its name; any other must be given, because nothing in a folder may make code
    run.
    """
    home = Path(folder)
    system, about, _ = _of_folder(home, task)
    policy = _new_policy(system, about.settings)
    read_policy(home / POLICY, policy)
    summary = read_json(home / SUMMARY)
    data = DataSet.empty(schema_of(system))
    for steps in Journal.read(home / JOURNAL).trials():
        data = data.append(steps)
    return Run(
        task=system,
        learner=about.learner,
        preset=about.preset,
        seed=about.seed,
        settings=about.settings,
        policy=policy,
        data=data,
        **by_kind(read_events(home / METRICS)),
        summary=summary,
        folder=home,
    )


# What is read back ----------------------------------------------------------------------------------------------------


def _of_folder(home: Path, task: Task | None) -> tuple[Task, About, dict[str, Any]]:
    """What the run in a folder is of, and all that its configuration says."""
    config, where = read_config(home), str(home / CONFIG)
    name, learner, preset, device = (
        from_plain(str, config.get(key), f"{where}: {key}") for key in ("task", "learner", "preset", "device")
    )
    seed = from_plain(int, config.get("seed"), f"{where}: seed")
    settings: Settings = from_plain(Settings, config.get("settings"), f"{where}: settings")
    system = _known_task(where, name, bool(config.get("changed_task", False))) if task is None else task
    if system.name != name:
        raise UserError(f"{home} is a run on '{name}', not on '{system.name}'; give that system")
    return system, About(learner, preset, seed, settings, device), config


def _known_task(where: str, name: str, changed: bool) -> Task:
    if name not in TASKS or changed:
        what = f"'{name}', which is none of the paper's systems" if name not in TASKS else f"a changed '{name}'"
        raise UserError(
            f"{where}: the run is on {what}; give the system: load_run(folder, task=...), or --task file.py:function"
        )
    return make_task(name)


def _new_policy(task: Task, settings: Settings) -> Learned:
    """A policy of the right shape, whose parameters are still to be read."""
    if settings.traces == "latent":
        return PlanningPolicy(task, settings.latent, settings.planner, torch.Generator().manual_seed(0))
    low, high = tuple(a.low for a in task.actions), tuple(a.high for a in task.actions)
    centre, scale = torch.zeros(len(task.observations)), torch.ones(len(task.observations))
    return GaussianPolicy(low, high, centre, scale, settings.policy, torch.Generator().manual_seed(0))
