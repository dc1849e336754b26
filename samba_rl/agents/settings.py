"""Settings: the numbers of a learner, split by family so that a mixture of families cannot be written down."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, final

from samba_rl.agents.first import FirstSettings
from samba_rl.agents.unused import Reasons, unused_in_improving, unused_on_a_model
from samba_rl.errors import UserError
from samba_rl.improve.advantages import AdvantageSettings
from samba_rl.improve.constraints import KINDS, Chance, Constraint, bind
from samba_rl.improve.limits import ConstraintSettings, FurtherConstraint, MultiplierSettings
from samba_rl.improve.policies import PolicySettings
from samba_rl.improve.step import WeightSettings
from samba_rl.improve.updates.proximal import ProximalSettings
from samba_rl.improve.updates.rules import UpdateSettings
from samba_rl.improve.updates.trust_region import TrustRegionSettings
from samba_rl.learners import GPModel, Learner, RealTrials, TraceSource
from samba_rl.models.settings import GPSettings
from samba_rl.ranges import Count, In, check
from samba_rl.tasks.faults.settings import RealSettings
from samba_rl.tasks.task import Task

if TYPE_CHECKING:
    from samba_rl.agents.agent import AnyAgent
    from samba_rl.agents.experience import Experience


@dataclass(frozen=True, kw_only=True)
class Settings(ABC):
    """What every learner has: a budget of real samples, the first trials, and care for the real system."""

    source: ClassVar[type[TraceSource]]
    """Source of traces of the learners that these settings are for."""

    real_samples: Count = 1500
    """Budget of real steps, the first trials included."""
    episodes: Count = 5
    """Real episodes per trial, between two improvements of the policy."""
    first: FirstSettings = field(default_factory=FirstSettings)
    real: RealSettings = field(default_factory=RealSettings)

    def __post_init__(self) -> None:
        check(self)

    @final
    def misfits(self) -> Iterator[tuple[str, str]]:
        """Yield a budget that the first trials exceed."""
        if self.first.samples > self.real_samples:
            most = f"at least first.samples = {self.first.samples}, and leave some for the trials of the policy"
            yield "real_samples", most

    @abstractmethod
    def make_agent(self, task: Task, learner: Learner, *, seed: int, device: str) -> AnyAgent:
        """Make the agent that learns the task."""

    @abstractmethod
    def constraints(self, learner: Learner, names: tuple[str, ...]) -> tuple[Constraint, ...]:
        """Return the limits on safety costs of these names."""

    @abstractmethod
    def unused(self, learner: Learner) -> Reasons:
        """Return the settings that have no effect with this learner, and why."""

    @property
    @abstractmethod
    def alpha(self) -> float:
        """Return the level α at which CVaR is reported."""

    @property
    @abstractmethod
    def updates(self) -> tuple[int, int]:
        """Return the control iterations (or gradient steps) after each trial, and those that finish the policy."""

    @property
    def confirms(self) -> bool:
        """Return whether the policy is finished before the last trial, which it makes."""
        return False


@dataclass(frozen=True, kw_only=True)
class PolicyGradientSettings(Settings, ABC):
    """What the learners share whose policy is a network improved by policy gradients."""

    constraint: ConstraintSettings = field(default_factory=ConstraintSettings)
    more_constraints: tuple[FurtherConstraint, ...] = ()
    """Further limits, each with its own multiplier."""
    multiplier: MultiplierSettings = field(default_factory=MultiplierSettings)
    policy: PolicySettings = field(default_factory=PolicySettings)
    advantage: AdvantageSettings = field(default_factory=AdvantageSettings)
    update: ProximalSettings = field(default_factory=ProximalSettings)
    trust_region: TrustRegionSettings = field(default_factory=TrustRegionSettings)

    @abstractmethod
    def make_experience(self, task: Task, learner: Learner, device: str) -> Experience:
        """Make the source of the traces that the policy is improved on."""

    @property
    @abstractmethod
    def weighting(self) -> WeightSettings:
        """Return how cost and information are weighed."""

    @property
    @abstractmethod
    def feasibility(self) -> int:
        """Return how many control iterations may go into a search for the least reachable value of a constraint."""

    @final
    def make_agent(self, task: Task, learner: Learner, *, seed: int, device: str) -> AnyAgent:
        """Make the agent that learns the task."""
        from samba_rl.agents.policy_gradient import Agent

        return Agent(task, learner, self, seed=seed, device=device)

    @final
    def constraints(self, learner: Learner, names: tuple[str, ...]) -> tuple[Constraint, ...]:
        """Return the limits on safety costs of these names."""
        own = self._own(learner, names)
        found = sum((bind(KINDS[more.kind], self._held(more), names) for more in self.more_constraints), own)
        for one in found:
            if isinstance(one, Chance) and one.limit > 1:
                raise UserError(f"a limit of {one.limit} on a probability ({one.name}): must be at most 1")
        if learner.update.own_dual and len(found) != 1:
            raise UserError(
                f"the update '{learner.update.label}' keeps to exactly one limit, but there are {len(found)}; name one "
                "safety cost with constraint.of, leave out more_constraints, or take the update 'trust-region'"
            )
        if learner.update.own_dual and self.policy.experts > 1:
            raise UserError(
                f"policy.experts = {self.policy.experts}: the update '{learner.update.label}' finds λ by itself, and "
                "the gate needs λ to choose an expert; take the update 'proximal' or 'trust-region', or one expert"
            )
        return found

    @final
    def gate_limits(self, learner: Learner, names: tuple[str, ...]) -> int:
        """Return how many of the limits, the first ones, the gate of several experts heeds: the learner's own.

        Further limits are kept by the experts alone. If the gate heeded those too, it would give up the one expert for
        what the other one does.
        """
        return len(self._own(learner, names)) or len(self.constraints(learner, names))

    @final
    def _own(self, learner: Learner, names: tuple[str, ...]) -> tuple[Constraint, ...]:
        return () if learner.constraint is None else bind(learner.constraint, self._held(self.constraint), names)

    @final
    def _held(self, limit: ConstraintSettings) -> ConstraintSettings:
        """Return a limit with the ceiling of ν that several experts need, unless it has its own."""
        several = self.policy.experts > 1 and limit.nu_ceiling == math.inf
        return replace(limit, nu_ceiling=1.0) if several else limit

    @final
    @property
    def alpha(self) -> float:
        """Return the level α at which CVaR is reported."""
        return self.constraint.alpha

    @final
    @property
    def rules(self) -> UpdateSettings:
        """Return the numbers of the update rules."""
        return UpdateSettings(self.update, self.trust_region)


@dataclass(frozen=True)
class ImaginationSettings:
    """Improvement of the policy on the model, between two real trials."""

    iterations: Count = 40
    """Control iterations after each real trial."""
    last_iterations: Count = 100
    """Control iterations that finish the policy: before the last real trial, which confirms it, or else after it."""
    trajectories: Annotated[int, In("[2, 1e6]")] = 300
    """Trajectories imagined in each control iteration."""
    draw: Literal["marginals", "functions"] = "functions"
    """How imagined steps are drawn. functions: from one function per trajectory, drawn from the posterior, which shows
    what the model does not know (an exact model only). marginals: independently at each step."""
    candidates: Annotated[int, In("[1, 1000]")] = 5
    """Number of latest policies to choose from at the end: the cheapest within the limits on the model is handed over,
    or else the safest. 1 takes the last one."""
    judged: Annotated[int, In("[2, 1e6]")] = 1000
    """Fresh trajectories on which a policy is judged, and twice as many for the least reachable value of a constraint;
    three times as many while only the sampling error decides."""
    starts: Annotated[int, In("[0, 1000]")] = 2
    """Number of fresh policies that are improved beside the old one when half of the real samples are spent; the best
    on the model goes on. A policy can be stuck where no small step is an improvement."""
    start_iterations: Count = 70
    """Control iterations of each of these."""
    restart: Literal["on", "off"] = "on"
    """Replace a policy by an untrained one where all imagined trajectories cost the same and no gradient leads on."""
    confirm: Literal["on", "off"] = "on"
    """Finish the policy before the last trial, which it makes: if that went well it is handed over, else improved
    further. off: finish it after the last trial, so that what is handed over has not been tried."""
    most: Annotated[float, In("[1, 1000]")] = 4.0
    """Largest number of control iterations, in multiples of those planned: improvement goes on while the cost on the
    model is still falling, by more than its noise. 1: only those planned."""


@final
@dataclass(frozen=True, kw_only=True)
class ModelBasedSettings(PolicyGradientSettings):
    """Settings of learners that improve a policy on what a Gaussian-process model imagines."""

    source: ClassVar[type[TraceSource]] = GPModel
    feasibility_iterations: Annotated[int, In("[0, 1e6]")] = 40
    """Control iterations of the search for the least value of a constraint that the model can reach: in full when the
    limit is first missed and at the end, a quarter after each trial while the limit looks infeasible. 0: no search."""
    shield: Literal["on", "off"] = "on"
    """Judge every policy on fresh imagined trajectories before it makes a real trial or is handed over. One that looks
    too unsafe is improved further with more caution; if that does not help, a known policy takes its place, and a
    notice says so. off: choose among the last policies only."""
    imagination: ImaginationSettings = field(default_factory=ImaginationSettings)
    weights: WeightSettings = field(default_factory=WeightSettings)
    model: GPSettings = field(default_factory=GPSettings)

    def make_experience(self, task: Task, learner: Learner, device: str) -> Experience:
        """Make the source of imagined traces."""
        from samba_rl.agents.experience import Imagination

        shielded = self.shield == "on"
        return Imagination(task, learner.zeta, self.imagination, self.model, device, shielded=shielded)

    def unused(self, learner: Learner) -> Reasons:
        """Return the settings that have no effect with this learner, and why."""
        return unused_in_improving(learner, self) | unused_on_a_model(learner, self)

    @property
    def weighting(self) -> WeightSettings:
        """Return how cost and information are weighed."""
        return self.weights

    @property
    def feasibility(self) -> int:
        """Return how many control iterations may go into a search for the least reachable value of a constraint."""
        return self.feasibility_iterations

    @property
    def updates(self) -> tuple[int, int]:
        """Return the control iterations after each trial, and those that finish the policy."""
        return self.imagination.iterations, self.imagination.last_iterations

    @property
    def confirms(self) -> bool:
        """Return whether the policy is finished before the last trial, which it makes."""
        return self.imagination.confirm == "on"


@final
@dataclass(frozen=True, kw_only=True)
class ModelFreeSettings(PolicyGradientSettings):
    """Settings of learners that improve a policy on its own real trials, once per trial."""

    source: ClassVar[type[TraceSource]] = RealTrials

    def make_experience(self, task: Task, learner: Learner, device: str) -> Experience:  # noqa: ARG002
        """Make the source of real traces."""
        if self.policy.experts > 1:
            raise UserError(
                f"policy.experts = {self.policy.experts}: must be 1 for a learner without a model, which cannot try "
                "every expert without harm"
            )
        from samba_rl.agents.own_trials import OwnTrials

        return OwnTrials(device)

    def unused(self, learner: Learner) -> Reasons:
        """Return the settings that have no effect with this learner, and why."""
        return unused_in_improving(learner, self)

    @property
    def weighting(self) -> WeightSettings:
        """Return weights that do not matter: these learners minimise the cost alone."""
        return WeightSettings()

    @property
    def feasibility(self) -> int:
        """Return 0: without a model there is nothing to search on."""
        return 0

    @property
    def updates(self) -> tuple[int, int]:
        """Return one update after each trial."""
        return 1, 1
