"""The agent of the paper's Algorithm 1: told of real trials, it learns a model, and improves a policy on it."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, final

import torch
from torch import Generator

from samba_rl.agents.agent import AnyAgent, Foresight
from samba_rl.data import DataSet
from samba_rl.data.plain import from_plain, to_plain
from samba_rl.errors import UserError
from samba_rl.events import ImprovementReport, Log, Notice
from samba_rl.improve.constraints import Constraint
from samba_rl.improve.feasibility import Feasibility, Safest
from samba_rl.improve.objectives import OBJECTIVES
from samba_rl.improve.policies import GaussianPolicy, PolicySettings
from samba_rl.improve.step import Control, ControlReport
from samba_rl.improve.updates.batch import UpdateReport
from samba_rl.models.gp import GPDynamics
from samba_rl.models.world import ModelSource, ZetaName
from samba_rl.tasks.task import Task
from samba_rl.types import Policy, State, Traces

if TYPE_CHECKING:
    from samba_rl.learners import Settings


@dataclass
class _Improvement:
    """An improvement of the policy that is under way."""

    last: bool
    controls: int
    """How many control iterations it has."""
    weight: float
    """The least that the cost weighs."""
    control: int = 0
    """How many are done."""
    kept: list[State] = field(default_factory=list)
    """Policies to choose from in the end."""
    problems: int = 0
    """Updates that came to nothing."""


@final
class Agent(AnyAgent):
    """Learns a policy on what a model imagines, or on its own real trials."""

    def __init__(self, task: Task, settings: Settings, *, seed: int = 0, device: str = "cpu", log: Log | None = None):
        if settings.traces == "latent":
            raise UserError("a learner that plans on a latent model is another agent: make_agent(task, settings)")
        super().__init__(task, settings, seed, device, log)
        self.model = GPDynamics(task, settings.model, device)
        self._policy: GaussianPolicy | None = None
        self._feasibility = Feasibility(
            self.constraints,
            self.multipliers,
            self._safest,
            settings.feasibility_iterations,
            settings.imagination.trajectories,
            self._log,
        )
        self._cost_scale = 1.0
        self._latest: ImprovementReport | None = None
        self._improvement: _Improvement | None = None
        self._asked = False
        """Whether the next trial is one of the policy's own."""
        self._told: Traces | None = None
        """The policy's last trial, where it is improved on real ones."""

    @property
    def policy(self) -> GaussianPolicy:
        """The policy as it stands, on the CPU."""
        if self._policy is None:
            raise UserError(f"nothing is known of {self.task.name} yet: tell(traces) of a first trial comes before")
        return copy.deepcopy(self._policy).cpu()

    def ask(self, *, last: bool = False) -> Policy:
        """Improve the policy on the model and give it, for the next trial or as the `last` one.

        One that was interrupted goes on where it was.
        """
        _ = self.policy  # says what is missing if nothing was told yet
        if self._improvement is None or self._improvement.last != last:
            self._improvement = self._begin(last)
        self._improve(self._improvement)
        self._improvement, self._told, self._asked = None, None, True
        return self.policy

    def _learn(self, traces: Traces | None) -> Foresight:
        surprise = math.nan
        if traces is not None:
            self._improvement = None
            surprise = self.model.surprise(traces.transitions()) if len(self.model) else math.nan
            self._told = traces.to(self._device) if self._asked and self.settings.traces == "real" else None
        if self.settings.traces == "model":
            self._fit_model()
        if self._policy is None:
            self._cost_scale = max(float(self.data.transitions.cost.mean()), 1e-6)
            self._start_afresh()
        report, latest = self.model.report, self._latest
        if report is None:
            return Foresight(surprise=surprise)
        expected = (math.nan, math.nan) if latest is None else (latest.model_return, latest.model_safety)
        return Foresight(*expected, surprise, report.z_std, report.coverage95)

    def model_state(self) -> State:
        """What the model must remember, beside the data, to be made again."""
        return self.model.state_dict()

    def _fit_model(self) -> None:
        try:
            with self.clock("fit"):
                report = self.model.fit(self.data.transitions)
        except UserError as error:
            if not len(self.model):
                raise
            self._log(Notice(f"the model stays as it was before the last trial: {error}"))
            return
        for problem in report.failed:
            self._log(Notice(f"the model keeps its last good hyper-parameters: {problem}"))

    def _fresh_policy(self, settings: PolicySettings) -> GaussianPolicy:
        """A policy that knows nothing yet."""
        low, high = tuple(a.low for a in self.task.actions), tuple(a.high for a in self.task.actions)
        centre, scale = self.task.observation_scale(self.data.transitions.x)
        return GaussianPolicy(low, high, centre, scale, settings, self._cpu_generator()).to(self._device)

    def _start_afresh(self) -> None:
        """A policy that knows nothing yet, and its critics."""
        settings = self.settings
        self._policy = self._fresh_policy(settings.policy)
        self._control = Control(
            self._policy,
            tuple(OBJECTIVES[name] for name in settings.objectives),
            self.constraints,
            settings.advantage,
            settings.update,
            self._cpu_generator(),
            spread=settings.weights.spread,
            rule=settings.rule,
            trust_region=settings.trust_region,
        )

    # Improving the policy -------------------------------------------------------------------------------------------

    def _begin(self, last: bool) -> _Improvement:
        """What there is to do after a trial, or after the last one."""
        settings, imagination = self.settings, self.settings.imagination
        progress = 1.0 if last else self._progress()
        self._control.update.std_floor = settings.policy.floor_at(progress)
        self._check_feasibility(last=False)
        controls = imagination.last_iterations if last else imagination.iterations
        if settings.traces == "real":
            # A trial is learned from once, and one that another policy made not at all.
            controls = 0 if self._told is None else 1
        return _Improvement(last, controls, settings.weights.least_at(progress))

    def _improve(self, improvement: _Improvement) -> None:
        """The inner loop of Algorithm 1. At every report all is in order: there it can be broken off, and go on."""
        assert self._policy is not None
        imagination = self.settings.imagination
        kept_at = range(0, imagination.candidates * CANDIDATE_STRIDE, CANDIDATE_STRIDE)
        while improvement.control < improvement.controls:
            traces = self._traces(improvement)
            values = tuple(constraint.measure(traces) for constraint in self.constraints)
            report = self._update(traces, values, improvement)
            improvement.control += 1
            if improvement.last and (improvement.controls - improvement.control) in kept_at:
                improvement.kept.append({name: value.clone() for name, value in self._policy.state_dict().items()})
            self._latest = self._improvement_report(improvement, traces, values, report)
            self._log(self._latest)
        if improvement.last:
            self._choose(improvement.kept)
            self._check_feasibility(last=True)

    def _traces(self, improvement: _Improvement) -> Traces:
        """What the policy is improved on next: its last real trial, or imagined ones."""
        if self.settings.traces == "real":
            assert self._told is not None
            return self._told
        assert self._policy is not None
        zeta, trajectories = self.settings.zeta, self.settings.imagination.trajectories
        source = self._imagined(None if zeta == "none" else zeta)
        with self.clock("rollout"):
            traces = source(self._policy, trajectories, self._generator)
        if improvement.control == 0 and self._stranded(traces):
            self._log(Notice("the policy is stranded where the cost is flat: it starts afresh, for the cost alone"))
            self._start_afresh()
            improvement.weight = 1.0
            with self.clock("rollout"):
                traces = source(self._policy, trajectories, self._generator)
        return traces

    def _update(self, traces: Traces, values: tuple[float, ...], improvement: _Improvement) -> ControlReport:
        """One control iteration; if it leads to numbers that are not finite, everything stays as it was before."""
        sound = bool(torch.stack([traces.cost.sum(), traces.safety.sum()]).isfinite().all())
        problem = "" if sound else "the cost or the safety cost of imagined steps is not finite"
        if sound:
            if self.settings.rule != "projection":
                for multiplier, value in zip(self.multipliers, values, strict=True):
                    multiplier.update(value)
            before = self._control.state_dict()
            with self.clock("update"):
                report = self._control(
                    traces,
                    tuple(multiplier.value for multiplier in self.multipliers),
                    self._cost_scale,
                    improvement.weight,
                    self._generator,
                    tuple(value - m.target for value, m in zip(values, self.multipliers, strict=True)),
                )
            if self._control.finite:
                if report.update.nu is not None:
                    self.multipliers[0].set(report.update.nu / self._cost_scale)
                return report
            self._control.load_state_dict(before)
            problem = "it led to numbers that are not finite"
        # Once for each improvement: what goes wrong now is likely to do so in the next iteration too.
        if improvement.problems == 0:
            self._log(
                Notice(f"the policy stays as it was before control iteration {improvement.control + 1}: {problem}")
            )
        improvement.problems += 1
        nothing = UpdateReport(
            math.nan, math.nan, 0, (math.nan,) * (len(self.settings.objectives) + len(self.constraints))
        )
        return ControlReport((math.nan,), nothing)

    def _imagined(self, zeta: ZetaName | None = None) -> ModelSource:
        """Where imagined traces come from."""
        starts = None
        if not self.task.pure_start:
            transitions = self.data.transitions
            starts = transitions.x[transitions.step == 0].to(self._device)
        return ModelSource(self.model, zeta, self.settings.imagination.draw, starts)

    def _stranded(self, traces: Traces) -> bool:
        """Whether imagined trajectories all cost the same, so that no gradient leads on from there."""
        spread = float(traces.returns.std(correction=0))
        return self.iteration > 0 and spread < STRANDED * self._cost_scale * self.task.horizon

    def _choose(self, kept: list[State]) -> None:
        """Take the best of the policies that were kept, judged on the same imagined episodes."""
        assert self._policy is not None
        if len(kept) < 2:
            return
        source = self._imagined()
        judged = []
        for state in kept:
            self._policy.load_state_dict(state)
            with self.clock("rollout"):
                generator = Generator(self._device).manual_seed(0)
                traces = source(self._policy, JUDGED_TRAJECTORIES, generator)
            excess = [
                max(0.0, constraint.measure(traces) / max(multiplier.target, 1e-6) - 1)
                for constraint, multiplier in zip(self.constraints, self.multipliers, strict=True)
            ]
            judged.append((max(excess, default=0.0), -float(traces.returns.mean())))
        best = min(range(len(kept)), key=judged.__getitem__)
        self._policy.load_state_dict(kept[best])

    def _check_feasibility(self, last: bool) -> None:
        if self._latest is not None and self.settings.feasibility_iterations:
            with self.clock("feasibility"):
                self._feasibility.check(self._imagined(), self._latest.values, self._generator, last)

    def _safest(self, constraint: Constraint) -> Safest:
        """The policy that looks for the least value of a constraint."""
        settings = self.settings
        still = self._fresh_policy(replace(settings.policy, std=max(0.2, settings.policy.std_floor)))
        return Safest(still, constraint, settings.advantage, settings.update, self._cpu_generator())

    # Going on exactly -----------------------------------------------------------------------------------------------

    def state_dict(self) -> State:
        """Everything but the data; at a report it is whole, so that an agent that gets it goes on to the same end."""
        return {
            **self._counts(),
            "cost_scale": self._cost_scale,
            "latest": to_plain(self._latest),
            "multipliers": [multiplier.state_dict() for multiplier in self.multipliers],
            "model": self.model.state_dict(),
            "control": None if self._policy is None else self._control.state_dict(),
            "feasibility": self._feasibility.state_dict(),
            "improvement": None
            if self._improvement is None
            else {**vars(self._improvement), "kept": [*self._improvement.kept]},
            "asked": self._asked,
            "told": None if self._told is None else {n: v for n, v in vars(self._told).items() if v is not None},
        }

    def load_state_dict(self, state: State, data: DataSet) -> None:
        """Become the agent that gave this state when it had these data."""
        self.data = data
        if not self.model.load_state_dict(state["model"], data.transitions):
            self._log(Notice("the model differs in its last digits from the one that was saved: " + _OTHERWISE))
        if state["control"] is not None:
            self._start_afresh()
            self._control.load_state_dict(state["control"])
        self._feasibility.load_state_dict(state["feasibility"])
        for multiplier, kept in zip(self.multipliers, state["multipliers"], strict=True):
            multiplier.load_state_dict(kept)
        self._improvement = None if state["improvement"] is None else _Improvement(**state["improvement"])
        self._asked = bool(state["asked"])
        self._told = None if state["told"] is None else Traces(**state["told"]).to(self._device)
        self._latest = from_plain(ImprovementReport | None, state["latest"], "the latest report")
        self._cost_scale = float(state["cost_scale"])
        # Last, because what was made above has drawn random numbers.
        self._load_counts(state)

    # Reports --------------------------------------------------------------------------------------------------------

    def _improvement_report(
        self, improvement: _Improvement, traces: Traces, values: tuple[float, ...], report: ControlReport
    ) -> ImprovementReport:
        assert self._policy is not None
        return ImprovementReport(
            iteration=self.iteration,
            control=improvement.control,
            controls=improvement.controls,
            model_return=float(traces.returns.mean()),
            model_safety=float(traces.safety_costs.sum(-1).mean()),
            model_zeta=0.0 if traces.zeta is None else float(traces.zeta.sum(1).mean()),
            values=values,
            targets=tuple(multiplier.target for multiplier in self.multipliers),
            multipliers=tuple(multiplier.value for multiplier in self.multipliers),
            lambda_pi=report.weights[0],
            std=float(self._policy.std.detach().mean()),
            clipped=float(traces.clipped.sum()) / max(traces.steps, 1),
            kl=report.update.kl,
            critic_loss=report.update.critic_loss,
            seconds=self.clock.seconds,
        )


CANDIDATE_STRIDE = 2
"""Control iterations between two policies that are kept at the end."""
STRANDED = 1e-4
"""A policy is stranded if its trajectories' costs deviate by less than this share of what a random one costs."""
_OTHERWISE = "another machine, or another number of threads. The run goes on, but not bit for bit as it would have"
JUDGED_TRAJECTORIES = 600
"""Imagined to judge each of them."""
