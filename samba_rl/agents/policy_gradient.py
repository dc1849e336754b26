"""The agent whose policy is a network improved by policy gradients, on a model's imagination or on its own trials."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import final

import torch

from samba_rl import algorithm
from samba_rl.agents.agent import AnyAgent, Foresight
from samba_rl.agents.schedule import Schedule
from samba_rl.agents.settings import PolicyGradientSettings
from samba_rl.data import DataSet
from samba_rl.data.plain import from_plain, to_plain
from samba_rl.events import Event, ImprovementReport, Notice
from samba_rl.improve.constraints import Constraint
from samba_rl.improve.experts import NetworkPolicy, fresh_policy
from samba_rl.improve.feasibility import Feasibility, Safest
from samba_rl.improve.gates import Gate, Improvement, is_stranded
from samba_rl.improve.multipliers import Multipliers
from samba_rl.improve.policies import PolicySettings
from samba_rl.improve.shield import Candidate, Verdict
from samba_rl.improve.snapshot import Snapshot
from samba_rl.improve.step import Improver
from samba_rl.improve.updates.batch import UpdateReport
from samba_rl.learners import Learner, Planning
from samba_rl.models.gp import GPDynamics
from samba_rl.tasks.task import Task
from samba_rl.types import Policy, State, Traces


@final
class Agent(AnyAgent):
    """Learns a model and improves a policy on it; or improves the policy on its own real trials."""

    def __init__(
        self, task: Task, learner: Learner, settings: PolicyGradientSettings, *, seed: int = 0, device: str = "cpu"
    ) -> None:
        super().__init__(task, learner, settings, seed, device)
        assert not isinstance(learner.update, Planning)
        self.rule = learner.update
        self.multipliers = Multipliers(settings.multiplier, self.constraints)
        self._numbers = settings
        self._experience = settings.make_experience(task, learner, device)
        self._improver: Improver | None = None
        self._feasibility = Feasibility(
            self.constraints, self.multipliers, self._safest, settings.feasibility, self._experience.trajectories
        )
        self._schedule = Schedule(settings, task.horizon)
        judged, shielded = self._experience.judged, self._experience.shielded
        self._gate = Gate(self.constraints, self.multipliers, self._feasibility, judged, shielded=shielded)
        self._explore = settings.weighting.explore if learner.zeta is not None else 0
        self._worth = settings.weighting.worth
        self._latest: ImprovementReport | None = None
        self._work: Improvement | None = None
        self._asked = False
        """Whether the next trial is one of the policy's own."""

    @property
    def model(self) -> GPDynamics | None:
        """Return the model, if there is one."""
        return self._experience.model

    @property
    def policy(self) -> NetworkPolicy:
        """Return the present policy, on the CPU."""
        self._check_told()
        return copy.deepcopy(self.improver.policy).cpu()

    def acting(self, *, last: bool = False) -> Policy:  # noqa: ARG002 - the policy keeps its noise to the end
        """Return the policy for the next trial, which the shield may have replaced."""
        policy = self.policy
        if self._gate.actor is not None:
            policy.load_state_dict(self._gate.actor.state)
        return policy

    @property
    def verdict(self) -> Verdict | None:
        """Return the judgement of the policy of the next trial, or of the one that was handed over; None without."""
        return self._gate.verdict

    def improve(self, *, last: bool = False) -> Iterator[Event]:
        """Improve the policy with the inner loop of Algorithm 1; an interrupted improvement is continued."""
        self._check_told()
        if self._work is None or self._work.last != last:
            self._begin(last=last)
        yield from algorithm.improve(self)
        self._work, self._asked = None, True
        self._experience.spent()

    # Learning from real trials --------------------------------------------------------------------------------------

    def _take_in(self, traces: Traces | None) -> Iterator[Notice]:
        if traces is not None:
            self._work = None
            imagine = self._experience.imagine
            if imagine is not None and self._improver is not None:
                self._gate.note(self.improver.policy, imagine, self._seed(), traces)  # before the model learns from it
        yield from self._experience.learn(traces, self.believed, self.clock, own=self._asked)
        if self._improver is None:
            self._start_afresh()

    def _foresight(self, traces: Traces) -> Foresight:
        latest, verdict = self._latest, self.verdict
        predicted = (math.nan, math.nan) if latest is None else (latest.model_return, latest.model_safety)
        if self._gate.actor is not None and verdict is not None:
            predicted = -verdict.cost, sum(verdict.amounts)
        return Foresight(*predicted, self._experience.surprise(traces))

    def _calibrated(self, foresight: Foresight) -> Foresight:
        report = self._experience.report
        if report is None:
            return Foresight(surprise=foresight.surprise)
        return foresight._replace(z_std=report.z_std, coverage95=report.coverage95)

    def _fresh_policy(self, settings: PolicySettings) -> NetworkPolicy:
        scale, bounds = self.task.observation_scale(self.believed.x), self.task.action_bounds()
        limits = self._numbers.gate_limits(self.learner, self.task.constraints)
        return fresh_policy(*bounds, *scale, settings, self._cpu_generator(), limits).to(self.device)

    def _start_afresh(self) -> None:
        """Replace the policy and its critics by untrained ones."""
        numbers = self._numbers
        self._improver = Improver(
            self._fresh_policy(numbers.policy),
            self.learner.objectives,
            self.constraints,
            numbers.advantage,
            self.rule,
            numbers.rules,
            self._cpu_generator(),
            spread=numbers.weighting.spread,
        )

    # Steps of the inner loop ----------------------------------------------------------------------------------------

    @property
    def improver(self) -> Improver:
        """Return the policy with its critics and their update."""
        assert self._improver is not None
        return self._improver

    @property
    def work(self) -> Improvement:
        """Return the progress of the improvement under way."""
        assert self._work is not None
        return self._work

    def _begin(self, *, last: bool) -> None:
        """Plan an improvement after a trial, or after the last one."""
        planned = self._experience.controls(self._schedule.controls(self.real_samples, last=last))
        finishing = self._schedule.finishes(self.real_samples, last=last)
        starts = 0 if last else self._schedule.starts(self._experience.starts, self.real_samples)
        self._work = Improvement(last, finishing, planned, planned, self._numbers.updates[int(last)], starts=starts)

    @property
    def progress(self) -> float:
        """Return the share of the planned control iterations that is done."""
        return self._schedule.progress(self.work, self.real_samples)

    def imagine(self) -> tuple[Traces, list[Notice]]:
        """Return traces of the policy; replace a policy that is stranded where the cost is flat, and say so."""
        self.improver.update.std_floor = self._numbers.policy.floor_at(self.progress)
        begins = self.work.control == 0
        # Before the last iterations, so that they pursue the target that the result is judged by.
        notices = self._check_feasibility(last=True) if begins and self.work.finishing else []
        traces = self._traces()
        checked = self._experience.restarts and self.iteration > 0 and begins
        if not (checked and is_stranded(traces, float(self.believed.cost.abs().mean()))):
            return traces, notices
        self._start_afresh()
        self.work.cost_alone = True
        return self._traces(), [
            *notices,
            Notice("the policy is stranded where the cost is flat: it starts afresh, for the cost alone"),
        ]

    def _traces(self) -> Traces:
        with self.clock("rollout"):
            seeking = self.least_cost_weight < 1
            return self._experience.traces(self.improver.policy.learning(), self.generator, seeking=seeking)

    @property
    def least_cost_weight(self) -> float:
        """Return the lower bound of λ_π; it is 1 where no information is sought."""
        work = self.work
        if work.cost_alone or (self._explore and work.base is None):
            return 1.0
        return self._numbers.weighting.least_at(1.0 if work.last else self.progress)

    def snapshot(self) -> Snapshot:
        """Copy everything that a control iteration changes."""
        return Snapshot.take(self.improver, self.multipliers, self.generator)

    def note_failure(self, traces: Traces) -> list[Notice]:
        """Return a notice about an undone update, once per improvement: the next one is likely to fail too."""
        self.work.failures += 1
        if self.work.failures > 1:
            return []
        problem = "it led to numbers that are not finite"
        if not traces.finite:
            problem = "the cost or the safety cost of imagined steps is not finite"
        return [Notice(f"the policy stays as it was before control iteration {self.work.control + 1}: {problem}")]

    def keep_candidate(self) -> None:
        """Keep the policy to choose from at the end, if it is one of the latest."""
        self.work.keep(self.improver.policy, self._experience.candidates)

    def gate(self) -> Iterator[Notice]:
        """Choose the policy of the next trial, or the one to hand over; or plan further control iterations."""
        work, imagine = self.work, self._experience.imagine
        notices: list[Notice] = []
        if imagine is None:
            work.cleared = True
            return
        policy, seed = self.improver.policy, self._seed()
        if work.base is not None:
            with self.clock("gate"):
                notices = self._gate.let_explore(policy, work, imagine, seed, self.iteration + 1, self._worth)
            Snapshot.from_state(work.end_exploring()).restore_learned(self.improver, self.multipliers)
            yield from notices
            return
        if work.go_on(self._experience.most):
            return
        if work.starts or work.rivals:
            work.rivals.append(self.snapshot().state_dict())
        if work.starts:
            self._start_beside()
            return
        afresh = bool(work.rivals)
        if afresh:
            notices += self._choose_rival(seed)
        if not work.rounds and not ((work.finishing or work.last) and self.multipliers.explored):
            notices += self._check_feasibility(last=work.finishing, afresh=afresh)
        with self.clock("gate"):
            if work.last:
                notices += self._gate.hand_over(policy, work, imagine, seed)
            else:
                notices += self._gate.before_trial(policy, work, imagine, seed, self.iteration + 1)
                if work.cleared and self._explore and not work.finishing:
                    work.begin_exploring(self.snapshot().state_dict(), self._explore)
        yield from notices

    def _start_beside(self) -> None:
        """Start a fresh policy beside the old one, for the cost alone."""
        self.work.start_beside(self._experience.start_iterations)
        self._start_afresh()
        self.multipliers.start_afresh()

    def _choose_rival(self, seed: int) -> list[Notice]:
        """Continue with the best of the old policy and those that started beside it."""
        states = self.work.end_starts()
        rivals = [Candidate(str(number), state["improver"]["policy"]) for number, state in enumerate(states)]
        assert self._experience.imagine is not None
        with self.clock("gate"):
            best, _ = self._gate.shield.best(self.improver.policy, rivals, self._experience.imagine, seed)
        Snapshot.from_state(states[int(best.name)]).restore_learned(self.improver, self.multipliers)
        if best is rivals[0]:
            return []
        return [Notice(f"the policy was stuck: one of {len(states) - 1} that started afresh on the model replaces it")]

    def _seed(self) -> int:
        return int(torch.randint(2**62, (1,), generator=self.generator, device=self.device))

    def _check_feasibility(self, *, last: bool, afresh: bool = False) -> list[Notice]:
        imagine = self._experience.imagine
        if self._latest is None or imagine is None or not self._numbers.feasibility:
            return []
        with self.clock("feasibility"):
            policy, reached = self.improver.policy, self._latest.values
            check = self._feasibility.check
            return list(check(imagine, policy, reached, self.generator, last=last, afresh=afresh))

    def _safest(self, constraint: Constraint) -> Safest:
        """Make the policy that searches for the least value of a constraint."""
        numbers = self._numbers
        still = self._fresh_policy(replace(numbers.policy, std=max(0.2, numbers.policy.std_floor)))
        return Safest(
            still, constraint, numbers.advantage, numbers.rules, self._cpu_generator(), 2 * self._experience.judged
        )

    def report(
        self, traces: Traces, values: tuple[float, ...], weights: tuple[float, ...], step: UpdateReport | None
    ) -> ImprovementReport:
        """Return the report of a control iteration; `step` is None if the update was undone."""
        critics = len(self.learner.objectives) + len(self.constraints)
        report = ImprovementReport(
            iteration=self.iteration,
            control=self.work.control,
            controls=self.work.controls,
            model_return=float(traces.returns.mean()),
            model_safety=float(traces.safety_costs.sum(-1).mean()),
            model_zeta=0.0 if traces.zeta is None else float(traces.zeta.sum(1).mean()),
            values=values,
            targets=self.multipliers.targets,
            multipliers=self.multipliers.values,
            lambda_pi=math.nan if step is None else weights[0],
            std=float(self.improver.policy.std.detach().mean()),
            clipped=float(traces.clipped.sum()) / max(traces.steps, 1),
            kl=math.nan if step is None else step.kl,
            critic_loss=(math.nan,) * critics if step is None else step.critic_loss,
            seconds=self.clock.seconds,
        )
        if self.work.base is None:
            self._latest = report
            self.work.costs.append(-report.model_return)
        else:
            self.work.note_information(report.model_zeta, self._worth)
        return report

    # Continuing exactly ---------------------------------------------------------------------------------------------

    def model_state(self) -> State:
        """Return what is needed, beside the data, to make the model again; empty without a model."""
        return {} if self.model is None else self.model.state_dict()

    def state_dict(self) -> State:
        """Return everything but the data. At an event it is whole: an agent that loads it continues to the same end."""
        work = self._work
        return {
            **self._counts(),
            "latest": to_plain(self._latest),
            "snapshot": None if self._improver is None else self.snapshot().state_dict(),
            "experience": self._experience.state_dict(),
            "feasibility": self._feasibility.state_dict(),
            "improvement": None
            if work is None
            else {name: [*value] if isinstance(value, list) else value for name, value in vars(work).items()},
            "asked": self._asked,
            "gate": self._gate.state_dict(),
        }

    def load_state_dict(self, state: State, data: DataSet) -> Iterator[Notice]:
        """Become the agent that returned this state when it had these data."""
        self._load_data(data, state)
        yield from self._experience.load_state_dict(state["experience"], self.believed)
        self._feasibility.load_state_dict(state["feasibility"])
        if state["snapshot"] is not None:
            self._start_afresh()
            Snapshot.from_state(state["snapshot"]).restore(self.improver, self.multipliers, self.generator)
        self._work = None if state["improvement"] is None else Improvement(**state["improvement"])
        self._asked = bool(state["asked"])
        self._gate.load_state_dict(state["gate"])
        self._latest = from_plain(ImprovementReport | None, state["latest"], "the latest report")
        # Last, because what was made above has drawn random numbers.
        self._load_counts(state)
