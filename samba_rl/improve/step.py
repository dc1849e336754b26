"""One control iteration: traces in, a better policy out. The inner loop of the paper's Algorithm 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, final

import torch
from torch import Generator, Tensor

from samba_rl.improve.advantages import AdvantageSettings, Critics, gae, to_go
from samba_rl.improve.constraints import Constraint
from samba_rl.improve.objectives import Objective
from samba_rl.improve.policies import GaussianPolicy
from samba_rl.improve.updates.batch import Batch, Limit, UpdateReport
from samba_rl.improve.updates.multi_gradient import min_norm_weights, policy_gradients
from samba_rl.improve.updates.natural import TrustRegionUpdate
from samba_rl.improve.updates.proximal import ProximalSettings, ProximalUpdate
from samba_rl.improve.updates.trust_region import TrustRegionSettings
from samba_rl.types import State, Traces


@dataclass(frozen=True)
class WeightSettings:
    """λ_π: how cost and information are weighed against each other, by the shortest combination of their gradients."""

    spread: bool = True
    """Measure both advantages in their own standard deviations first. In their own units the shortest combination would
    belong to whichever has the smaller numbers."""
    least_cost_weight: float = 0.7
    """λ_π is at least this at the start of a run, and rises to one by its end, where learning more no longer pays."""

    def least_at(self, progress: float) -> float:
        """The least λ_π when this share of the real samples is spent."""
        return self.least_cost_weight + (1 - self.least_cost_weight) * progress


Rule = Literal["proximal", "trust-region", "projection"]


class Update(Protocol):
    """Moves a policy, and fits the critics; the only thing that writes their parameters."""

    std_floor: float
    """The policy's standard deviation is lifted to this."""

    @property
    def optimisers(self) -> tuple[torch.optim.Adam, ...]:
        """What remembers past gradients."""
        ...

    def __call__(self, batch: Batch, generator: Generator) -> UpdateReport:
        """Learn from a batch."""
        ...

    def state_dict(self) -> State:
        """What the optimisers remember."""
        ...

    def load_state_dict(self, state: State) -> None:
        """Go on as the one that gave this state would have."""
        ...


class ControlReport(NamedTuple):
    """How a control iteration went."""

    weights: tuple[float, ...]
    """Of the objectives; the first is λ_π."""
    update: UpdateReport


@final
class Control:
    """Improves a policy under objectives and constraints, with a critic for each."""

    def __init__(
        self,
        policy: GaussianPolicy,
        objectives: tuple[Objective, ...],
        constraints: tuple[Constraint, ...],
        advantage: AdvantageSettings,
        update: ProximalSettings,
        generator: Generator,
        *,
        spread: bool = True,
        rule: Rule = "proximal",
        trust_region: TrustRegionSettings | None = None,
    ) -> None:
        self.policy = policy
        self._objectives, self._constraints = objectives, constraints
        self._settings = advantage
        self._spread = spread
        count = len(objectives) + len(constraints)
        device = policy.centre.device
        cpu = Generator().manual_seed(int(torch.randint(2**31, (1,), generator=generator, device=generator.device)))
        self.critics = Critics(count, len(policy.centre) + 2, advantage.hidden, cpu).to(device)
        self._rule = rule
        self.update: Update
        if rule == "proximal":
            self.update = ProximalUpdate(policy, self.critics, update)
        else:
            self.update = TrustRegionUpdate(policy, self.critics, trust_region or TrustRegionSettings(), update)
        self._gamma = torch.tensor([advantage.gamma] * len(objectives) + [1.0] * len(constraints), device=device)

    def __call__(
        self,
        traces: Traces,
        multipliers: tuple[float, ...],
        cost_scale: float,
        least_weight: float,
        generator: Generator,
        excess: tuple[float, ...] = (),
    ) -> ControlReport:
        """Improve the policy on its own traces.

        `multipliers` weigh the constraints in units of `cost_scale`; the first objective weighs at least
        `least_weight`. Under the rule "projection" the constraint is not weighed but kept to: `excess` says by how much
        it is above what it is to stay under.
        """
        if self._rule == "projection":
            multipliers = (0.0,) * len(multipliers)
        on = traces.active
        observation = self.policy.normalised(traces.observation)
        steps = torch.stack([f(traces) for f in self._objectives] + [c.growth(traces) for c in self._constraints])
        critic_inputs = self._critic_inputs(traces, observation)
        count, (n, horizon) = len(steps), on.shape
        with torch.no_grad():
            values = self.critics.values(critic_inputs.reshape(count, n * horizon, -1)).reshape(count, n, horizon)
            values = values * on
            steps = steps.float()
            lam = torch.full_like(self._gamma, self._settings.lam)
            if not self._settings.tail_critic:
                values[len(self._objectives) :] = 0
                lam[len(self._objectives) :] = 1
            advantages = gae(steps, values, self._gamma, lam)[:, on]
            targets = to_go(steps, self._gamma)[:, on]
        inputs, raw = observation[on], self.policy.raw(traces.wanted[on])
        advantage, weights = self._combine(inputs, raw, advantages, multipliers, cost_scale, least_weight)
        batch = Batch(inputs, raw, advantage, critic_inputs[:, on], targets)
        if self._rule == "projection":
            limit = Limit(advantages[len(self._objectives)], excess[0], float(on.sum(1).float().mean()))
            batch = batch._replace(limit=limit)
        return ControlReport(weights, self.update(batch, generator))

    @property
    def finite(self) -> bool:
        """Whether every number of the policy and the critics, and what the optimisers remember of them, is finite."""
        remembered = [
            each for optimiser in self.update.optimisers for kept in optimiser.state.values() for each in kept.values()
        ]
        parameters = [*self.policy.parameters(), *self.critics.parameters(), self.critics.mean, self.critics.std]
        # A sum is finite only if all of its parts are (or it overflows, which is no better).
        return bool(torch.stack([each.detach().sum().float() for each in (*parameters, *remembered)]).isfinite().all())

    def state_dict(self) -> State:
        """What the policy, the critics and the optimisers are, as copies."""
        return {
            "policy": {name: value.clone() for name, value in self.policy.state_dict().items()},
            "critics": {name: value.clone() for name, value in self.critics.state_dict().items()},
            "update": self.update.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        """Go on as the one that gave this state would have."""
        self.policy.load_state_dict(state["policy"])
        self.critics.load_state_dict(state["critics"])
        self.update.load_state_dict(state["update"])

    def _critic_inputs(self, traces: Traces, observation: Tensor) -> Tensor:
        """The observation, the time, and what a constraint's critic needs beside them [K, B, T, no + 2]."""
        n, horizon = traces.active.shape
        time = torch.linspace(-1, 1, horizon, device=observation.device).expand(n, horizon)
        if not self._settings.time:
            time = torch.zeros_like(time)
        nothing = torch.zeros_like(time)
        rows = [nothing for _ in self._objectives] + [c.progress(traces).float() for c in self._constraints]
        return torch.stack([torch.cat([observation, torch.stack([time, row], dim=-1)], dim=-1) for row in rows])

    def _combine(
        self,
        inputs: Tensor,
        raw: Tensor,
        advantages: Tensor,
        multipliers: tuple[float, ...],
        cost_scale: float,
        least_weight: float,
    ) -> tuple[Tensor, tuple[float, ...]]:
        """One advantage [N] of all [K, N], and the objectives' weights."""
        split = len(self._objectives)
        total = torch.zeros_like(advantages[0])
        weights: tuple[float, ...] = ()
        if split:
            ours = advantages[:split]
            if split > 1 and self._spread:
                spread = ours.std(1, correction=0)
                ours = ours * (spread[0] / spread.clamp(min=1e-12))[:, None]
            weight = torch.ones(1, dtype=torch.float64)
            if split > 1:
                weight = min_norm_weights(policy_gradients(self.policy, inputs, raw, ours)).cpu()
                if weight[0] < least_weight:
                    rest = weight[1:] / weight[1:].sum().clamp(min=1e-12)
                    weight = torch.cat([weight.new_tensor([least_weight]), (1 - least_weight) * rest])
            weights = tuple(weight.tolist())
            total = torch.einsum("k,kn->n", weight.to(ours), ours)
        for multiplier, advantage in zip(multipliers, advantages[split:], strict=True):
            total = total + cost_scale * multiplier * advantage
        return total / (1 + sum(multipliers)), weights
