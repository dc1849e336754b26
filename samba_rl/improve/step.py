"""One control iteration in parts: advantages of the traces, their weights, and the update of policy and critics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, final

import torch
from torch import Generator, Tensor

from samba_rl.capture import Recorder
from samba_rl.improve.advantages import AdvantageSettings, Critics, gae, to_go
from samba_rl.improve.constraints import Constraint
from samba_rl.improve.experts import NetworkPolicy
from samba_rl.improve.objectives import Objective
from samba_rl.improve.updates.batch import Advantages
from samba_rl.improve.updates.choosing import with_gate
from samba_rl.improve.updates.min_norm import comparable_weights, min_norm_weights, policy_gradients
from samba_rl.improve.updates.minibatches import minibatches
from samba_rl.improve.updates.networks import copies
from samba_rl.improve.updates.rules import UpdateRule, UpdateSettings
from samba_rl.ranges import In, Share
from samba_rl.types import State, Traces


@dataclass(frozen=True)
class WeightSettings:
    """λ_π, the weight of cost against information: the shortest convex combination of their gradients."""

    spread: bool = True
    """Measure both advantages in their own standard deviations, and combine gradients of unit length. As they are, the
    shortest combination would belong to whichever is the shorter, and the other would be ignored."""
    least_cost_weight: Share | None = None
    """Lower bound of λ_π at the start of a run. It rises to 1 by the end, where more information no longer pays. None:
    no lower bound; λ_π is the paper's, the weight of the shortest combination."""
    explore: Annotated[int, In("[0, 10000]")] = 15
    """Most control iterations in which a copy of the policy seeks information under the same limits before a trial; the
    policy itself minimises the cost alone. 0: there is no copy; information counts in every control iteration."""
    worth: Annotated[float, In("[-1e9, 1e9]")] = 1.0
    """Information that the copy must be expected to gain beyond the policy itself, in nats per trajectory; otherwise
    the policy makes the trial."""

    def least_at(self, progress: float) -> float:
        """Return the lower bound of λ_π when this share of the real samples is spent."""
        first = self.least_cost_weight
        return 0.0 if first is None else first + (1 - first) * progress


@final
class Improver:
    """A policy with a critic for each objective and constraint, and the update that moves them all."""

    def __init__(
        self,
        policy: NetworkPolicy,
        objectives: tuple[Objective, ...],
        constraints: tuple[Constraint, ...],
        advantage: AdvantageSettings,
        rule: UpdateRule,
        update: UpdateSettings,
        generator: Generator,
        *,
        spread: bool = True,
    ) -> None:
        """Make fresh critics with the generator; `spread` is `WeightSettings.spread`."""
        self.policy, self._objectives, self._constraints = policy, objectives, constraints
        self._settings, self._spread = advantage, spread
        count = len(objectives) + len(constraints)
        device = policy.centre.device
        cpu = Generator().manual_seed(int(torch.randint(2**31, (1,), generator=generator, device=generator.device)))
        self.critics = Critics(
            count, len(policy.centre) + 2, advantage.hidden, cpu, normalise=advantage.normalise_targets
        ).to(device)  # fmt: skip
        self.update = with_gate(rule.make(policy.actor, self.critics, update), policy)
        self._recorder = Recorder(device)
        self._gamma = torch.tensor([advantage.gamma] * len(objectives) + [1.0] * len(constraints), device=device)

    def measure(self, traces: Traces) -> tuple[float, ...]:
        """Measure the value of each constraint."""
        return tuple(constraint.measure(self.policy.limited(traces)) for constraint in self._constraints)

    def advantages(self, traces: Traces) -> Advantages:
        """Judge each action of the policy's own traces on every objective and constraint."""
        on, split = traces.active, len(self._objectives)
        among = () if (limited := self.policy.limited(traces)) is traces else (limited,)
        inputs, raw, critic_inputs, advantages, targets = self._recorder(self._judge, traces, among)
        rows = on.flatten().nonzero()[:, 0]
        advantages = advantages.flatten(1)[:, rows]
        objectives = advantages[:split]
        if split > 1 and self._spread:
            scale = objectives.std(1, correction=0)
            objectives = objectives * (scale[0] / scale.clamp(min=1e-12))[:, None]
        return Advantages(
            inputs=inputs.flatten(0, 1)[rows],
            raw=raw.flatten(0, 1)[rows],
            objectives=objectives,
            tails=advantages[split:],
            critic_inputs=critic_inputs.flatten(1, 2)[:, rows],
            targets=targets.flatten(1)[:, rows],
            first=rows % on.shape[1] == 0,
            shares=None if (shares := self.policy.shares(traces)) is None else shares[:, None].expand_as(on)[on],
            steps=float(on.sum(1).float().mean()),
        )

    def _judge(self, traces: Traces, among: tuple[Traces, ...]) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return inputs and raw actions [B, T, ·], the critics' inputs, advantages and targets [K, B, T, ·]."""
        on, split = traces.active, len(self._objectives)
        observation = self.policy.actor.normalised(traces.observation)
        growth = [constraint.growth(traces, *among) for constraint in self._constraints]
        steps = torch.stack([f(traces) for f in self._objectives] + growth)
        critic_inputs = self._critic_inputs(traces, observation, among)
        count, (n, horizon) = len(steps), on.shape
        with torch.no_grad():
            values = self.critics.values(critic_inputs.reshape(count, n * horizon, -1)).reshape(count, n, horizon)
            values = values * on
            steps = steps.float()
            lam = torch.full_like(self._gamma, self._settings.lam)
            if not self._settings.tail_critic:
                values[split:] = 0
                lam[split:] = 1
            advantages = gae(steps, values, self._gamma, lam)
            targets = to_go(steps, self._gamma)
        return observation, self.policy.actor.raw(traces.wanted), critic_inputs, advantages, targets

    def min_norm(self, advantages: Advantages, least: float) -> tuple[float, ...]:
        """Return the weights of the objectives: the min-norm point of their gradients, the first at least `least`."""
        if len(self._objectives) < 2 or least >= 1:
            return (1.0, *(0.0 for _ in self._objectives[1:]))[: len(self._objectives)]
        count = len(advantages.inputs)
        whole = minibatches(count, count, advantages.inputs.device, fill=self._recorder.records)
        steps = whole.filled([advantages.inputs, advantages.raw], 0) + whole.filled([advantages.objectives], 1)
        gradients = self._recorder(policy_gradients, self.policy.actor, *steps, whole.whole)
        weight = comparable_weights(gradients) if self._spread else min_norm_weights(gradients)
        if weight[0] < least:
            rest = weight[1:] / weight[1:].sum().clamp(min=1e-12)
            weight = torch.cat([weight.new_tensor([least]), (1 - least) * rest])
        return tuple(weight.cpu().tolist())

    @property
    def finite(self) -> bool:
        """Return whether all parameters, and all that the optimisers remember of them, are finite."""
        remembered = [
            each for optimiser in self.update.optimisers for kept in optimiser.state.values() for each in kept.values()
        ]
        parameters = [*self.policy.parameters(), *self.critics.parameters(), self.critics.mean, self.critics.std]
        # A sum is finite only if all of its parts are (or it overflows, which is no better).
        numbers = torch.cat([each.detach().flatten().float() for each in (*parameters, *remembered)])
        return bool(numbers.sum().isfinite())

    def state_dict(self) -> State:
        """Return copies of the parameters and of the optimisers' state."""
        return {
            "policy": copies(self.policy.state_dict()),
            "critics": copies(self.critics.state_dict()),
            "update": self.update.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned."""
        self.policy.load_state_dict(state["policy"])
        self.critics.load_state_dict(state["critics"])
        self.update.load_state_dict(state["update"])

    def _critic_inputs(self, traces: Traces, observation: Tensor, among: tuple[Traces, ...]) -> Tensor:
        """Return observation, time and the constraint's progress as the critics' inputs [K, B, T, no + 2]."""
        n, horizon = traces.active.shape
        time = torch.linspace(-1, 1, horizon, device=observation.device).expand(n, horizon)
        if not self._settings.time:
            time = torch.zeros_like(time)
        nothing = torch.zeros_like(time)
        rows = [nothing for _ in self._objectives] + [c.progress(traces, *among).float() for c in self._constraints]
        return torch.stack([torch.cat([observation, torch.stack([time, row], dim=-1)], dim=-1) for row in rows])
