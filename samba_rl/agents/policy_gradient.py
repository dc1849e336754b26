"""The agent whose policy is a network improved by policy gradients, on a model's imagination or on its own trials."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import final

import torch
from torch import Tensor

from samba_rl import algorithm
from samba_rl.agents.agent import AnyAgent, Foresight
from samba_rl.agents.settings import PolicyGradientSettings
from samba_rl.data import DataSet
from samba_rl.data.plain import from_plain, to_plain
from samba_rl.events import Event, ImprovementReport, Notice
from samba_rl.improve.constraints import Constraint
from samba_rl.improve.feasibility import Feasibility, Safest
from samba_rl.improve.gates import is_stranded
from samba_rl.improve.multipliers import Multipliers
from samba_rl.improve.policies import GaussianPolicy, PolicySettings
from samba_rl.improve.shield import Candidate, Shield, Verdict, copied
from samba_rl.improve.snapshot import Snapshot
from samba_rl.improve.step import Improver
from samba_rl.improve.updates.batch import UpdateReport
from samba_rl.learners import Learner, Planning
from samba_rl.models.gp import GPDynamics
from samba_rl.tasks.task import Task
from samba_rl.types import Policy, State, Traces

CANDIDATE_STRIDE = 2
"""Control iterations between two policies that are kept to choose from."""


@dataclass
class Improvement:
    """Progress of an improvement of the policy."""

    last: bool = False
    """Whether it follows the last trial."""
    controls: int = 0
    """Control iterations planned."""
    least_cost_weight: float = 1.0
    """Lower bound of λ_π."""
    control: int = 0
    """Control iterations done."""
    candidates: list[dict[str, Tensor]] = field(default_factory=list)
    """Policies to choose from at the end."""
    failures: int = 0
    """Updates that were undone."""
    gated: bool = False
    """Whether the policy for the trial, or the one to hand over, has been chosen."""


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
        self._shield = Shield(self.constraints, self.multipliers)
        self._actor: Candidate | None = None
        """The policy that makes the next trial, once it has been chosen."""
        self.verdict: Verdict | None = None
        """The shield's judgement of that policy, or of the one that was handed over."""
        self._latest: ImprovementReport | None = None
        self._work: Improvement | None = None
        self._asked = False
        """Whether the next trial is one of the policy's own."""

    @property
    def model(self) -> GPDynamics | None:
        """Return the model, if there is one."""
        return self._experience.model

    @property
    def policy(self) -> GaussianPolicy:
        """Return the present policy, on the CPU."""
        self._check_told()
        return copy.deepcopy(self.improver.policy).cpu()

    def acting(self, *, last: bool = False) -> Policy:  # noqa: ARG002 - the policy keeps its noise to the end
        """Return the policy for the next trial, which the shield may have replaced."""
        policy = self.policy
        if self._actor is not None:
            policy.load_state_dict(self._actor.state)
        return policy

    def improve(self, *, last: bool = False) -> Iterator[Event]:
        """Improve the policy with the inner loop of Algorithm 1; an interrupted improvement is continued."""
        self._check_told()
        if self._work is None or self._work.last != last:
            yield from self._begin(last=last)
        yield from algorithm.improve(self)
        self._work, self._asked = None, True
        self._experience.spent()

    # Learning from real trials --------------------------------------------------------------------------------------

    def _take_in(self, traces: Traces | None) -> Iterator[Notice]:
        if traces is not None:
            self._work = None
            source = self._experience.imagination_from(traces.x[:, 0])
            if self._actor is not None and source is not None:
                # Before the model learns from the trial.
                self._shield.note(self._actor, self.improver.policy, source, self._seed(), traces)
            self._actor = None
        yield from self._experience.learn(traces, self.data.transitions, self.clock, own=self._asked)
        if self._improver is None:
            self._start_afresh()

    def _foresight(self, traces: Traces) -> Foresight:
        latest, verdict = self._latest, self.verdict
        predicted = (math.nan, math.nan) if latest is None else (latest.model_return, latest.model_safety)
        if self._actor is not None and verdict is not None:
            predicted = -verdict.cost, sum(verdict.amounts)
        return Foresight(*predicted, self._experience.surprise(traces))

    def _calibrated(self, foresight: Foresight) -> Foresight:
        report = self._experience.report
        if report is None:
            return Foresight(surprise=foresight.surprise)
        return foresight._replace(z_std=report.z_std, coverage95=report.coverage95)

    def _fresh_policy(self, settings: PolicySettings) -> GaussianPolicy:
        centre, scale = self.task.observation_scale(self.data.transitions.x)
        bounds = self.task.action_bounds()
        return GaussianPolicy(*bounds, centre, scale, settings, self._cpu_generator()).to(self.device)

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

    def _begin(self, *, last: bool) -> Iterator[Notice]:
        """Plan an improvement after a trial, or after the last one."""
        progress = 1.0 if last else self._progress()
        self.improver.update.std_floor = self._numbers.policy.floor_at(progress)
        notices = self._check_feasibility(last=False)
        least = self._numbers.weighting.least_at(progress)
        self._work = Improvement(last, self._experience.controls(last=last), least)
        yield from notices

    def imagine(self) -> tuple[Traces, list[Notice]]:
        """Return traces of the policy; replace a policy that is stranded where the cost is flat, and say so."""
        with self.clock("rollout"):
            traces = self._experience.traces(self.improver.policy, self.generator)
        checked = self._experience.restarts and self.iteration > 0 and self.work.control == 0
        if not (checked and is_stranded(traces, float(self.data.transitions.cost.abs().mean()))):
            return traces, []
        self._start_afresh()
        self.work.least_cost_weight = 1.0
        with self.clock("rollout"):
            traces = self._experience.traces(self.improver.policy, self.generator)
        return traces, [Notice("the policy is stranded where the cost is flat: it starts afresh, for the cost alone")]

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
        """Keep the policy to choose from, if it is one of the latest in the last improvement."""
        work, count = self.work, self._experience.candidates
        if work.last and work.controls - work.control in range(0, count * CANDIDATE_STRIDE, CANDIDATE_STRIDE):
            work.candidates.append(copied(self.improver.policy))

    def gate(self) -> Iterator[Notice]:
        """Choose the policy of the next trial, or the one to hand over."""
        if self.work.gated:
            return
        notices = self._hand_over() if self.work.last else self._clear_for_trial()
        self.work.gated = True
        yield from notices

    def _clear_for_trial(self) -> list[Notice]:
        """Replace the policy for one trial if it looks too unsafe on the model and a safer one is known."""
        sources = self._experience.judges(last=False)
        if not (self.constraints and self._experience.shielded and sources):
            return []
        seed, policy = self._seed(), self.improver.policy
        own = Candidate(f"the policy of trial {self.iteration + 1}", copied(policy))
        with self.clock("rollout"):
            self._actor, self.verdict = self._shield.best(policy, [own], sources, seed, last=False)
            refused = self.verdict
            if refused.passes:
                return []
            known = [own, *self._shield.tried, *self._safest_known()]
            self._actor, self.verdict = self._shield.best(policy, known, sources, seed, last=False)
        if self._actor is own:
            return [Notice(f"trial {self.iteration + 1}: no known policy looks safe enough; {self._missed(refused)}")]
        return [Notice(f"trial {self.iteration + 1}: {self._actor.name} takes its place; {self._missed(refused)}")]

    def _hand_over(self) -> list[Notice]:
        """Hand over the cheapest of the last policies that keeps to its limits on the model.

        If none does, earlier policies and the safest one are considered too; if those do not either, a notice says so.
        """
        notices = self._check_feasibility(last=True)
        sources = self._experience.judges(last=self._experience.shielded)
        if not sources or not self.work.candidates:
            return notices
        seed, policy = self._seed(), self.improver.policy
        pool = [Candidate("one of the last policies", state) for state in self.work.candidates]
        with self.clock("rollout"):
            chosen, self.verdict = self._shield.best(policy, pool, sources, seed, last=True)
            if not self.verdict.passes:
                pool += [*self._shield.tried, *self._safest_known()]
                chosen, self.verdict = self._shield.best(policy, pool, sources, seed, last=True)
        policy.load_state_dict(chosen.state)
        if not self.verdict.passes:
            notices.append(Notice(f"the limit is not kept: {self._missed(self.verdict)}"))
        return notices

    def _safest_known(self) -> list[Candidate]:
        return [Candidate("the safest known policy", copied(policy)) for policy in self._feasibility.safest_known()]

    def _missed(self, verdict: Verdict) -> str:
        """Describe the constraints whose bounds are too high."""
        rows = zip(self.constraints, verdict.bounds, verdict.ceilings, strict=True)
        return "; ".join(
            f"{one.in_words()} is bounded by {bound:.3g} on the model, at most {most:.3g} is accepted"
            for one, bound, most in rows
            if bound > most
        )

    def _seed(self) -> int:
        return int(torch.randint(2**62, (1,), generator=self.generator, device=self.device))

    def _check_feasibility(self, *, last: bool) -> list[Notice]:
        imagination = self._experience.imagination()
        if self._latest is None or imagination is None or not self._numbers.feasibility:
            return []
        with self.clock("feasibility"):
            policy, reached = self.improver.policy, self._latest.values
            return list(self._feasibility.check(imagination, policy, reached, self.generator, last=last))

    def _safest(self, constraint: Constraint) -> Safest:
        """Make the policy that searches for the least value of a constraint."""
        numbers = self._numbers
        still = self._fresh_policy(replace(numbers.policy, std=max(0.2, numbers.policy.std_floor)))
        return Safest(still, constraint, numbers.advantage, numbers.rules, self._cpu_generator())

    def report(
        self, traces: Traces, values: tuple[float, ...], weights: tuple[float, ...], step: UpdateReport | None
    ) -> ImprovementReport:
        """Return the report of a control iteration; `step` is None if the update was undone."""
        critics = len(self.learner.objectives) + len(self.constraints)
        self._latest = ImprovementReport(
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
        return self._latest

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
            "improvement": None if work is None else {**vars(work), "candidates": [*work.candidates]},
            "asked": self._asked,
            "shield": self._shield.state_dict(),
            "actor": None if self._actor is None else {**vars(self._actor), "amounts": list(self._actor.amounts)},
            "verdict": to_plain(self.verdict),
        }

    def load_state_dict(self, state: State, data: DataSet) -> Iterator[Notice]:
        """Become the agent that returned this state when it had these data."""
        self.data = data
        yield from self._experience.load_state_dict(state["experience"], data.transitions)
        self._feasibility.load_state_dict(state["feasibility"])
        if state["snapshot"] is not None:
            self._start_afresh()
            Snapshot.from_state(state["snapshot"]).restore(self.improver, self.multipliers, self.generator)
        self._work = None if state["improvement"] is None else Improvement(**state["improvement"])
        self._asked = bool(state["asked"])
        self._shield.load_state_dict(state["shield"])
        actor = state["actor"]
        self._actor = None if actor is None else Candidate(**{**actor, "amounts": tuple(actor["amounts"])})
        self.verdict = from_plain(Verdict | None, state["verdict"], "the latest verdict")
        self._latest = from_plain(ImprovementReport | None, state["latest"], "the latest report")
        # Last, because what was made above has drawn random numbers.
        self._load_counts(state)
