"""The update of a policy of several experts: that of the experts, and the regression of the gate that chooses them."""

from __future__ import annotations

from typing import final

import torch
from torch import Generator, Tensor, nn

from samba_rl.improve.experts import MixturePolicy, NetworkPolicy
from samba_rl.improve.updates.batch import Batch, Update, UpdateReport
from samba_rl.improve.updates.networks import adam, optimiser_state, restore_optimiser
from samba_rl.types import State

MEMORY = 0.9
"""Share of the moments of the gate's targets that remains after an update."""
PACE = 0.3
"""Largest change of the logarithm of a price in an update: that of a value at twice its aim, or of no value."""
MOST_PRICE = 20.0
"""Largest price, and the inverse of the least one: if the experts themselves break a limit, no choice can mend that."""
SHARPNESS = 10.0
"""Difference in the Lagrangian, in typical differences in cost, is multiplied by this in the logits."""


def with_gate(experts: Update, policy: NetworkPolicy) -> Update:
    """Return the update of a policy: that of its experts, with the gate's if there are several."""
    return ChoosingUpdate(experts, policy) if isinstance(policy, MixturePolicy) else experts


@final
class ChoosingUpdate:
    """Moves the experts, and teaches the gate what each of them costs from a start.

    A choice at the start of a trajectory changes all of it, so its advantage is that of the whole trajectory: the gate
    learns the expected cost, and the expected excess over each limit, of each expert from each start, and weighs them
    as the Lagrangian does. That has the same optimum as the likelihood-ratio gradient of the choice and less noise,
    because what was learned from earlier trajectories is not thrown away.
    """

    def __init__(self, experts: Update, policy: MixturePolicy) -> None:
        self._experts, self._gate, self._passes = experts, policy.gate, policy.settings.gate_passes
        self.gate_optimiser = adam(policy.gate.parameters(), policy.settings.gate_rate)

    @property
    def std_floor(self) -> float:
        """Return the lower bound of the policy's standard deviation, in half widths of the action range."""
        return self._experts.std_floor

    @std_floor.setter
    def std_floor(self, floor: float) -> None:
        self._experts.std_floor = floor

    @property
    def optimisers(self) -> tuple[torch.optim.Adam, ...]:
        """Return the optimisers of the experts, the critics and the gate."""
        return (*self._experts.optimisers, self.gate_optimiser)

    def __call__(self, batch: Batch, generator: Generator) -> UpdateReport:
        """Learn from a batch."""
        limits = len(batch.tails)
        if len(batch.targets) > limits:  # without an objective there is nothing to choose by
            self._learn(batch, limits)
        report = self._experts(batch, generator)
        self._gate.age += 1
        return report

    def _learn(self, batch: Batch, limits: int) -> None:
        """Take steps of the gate's regression on the starts of the batch."""
        assert batch.first is not None
        gate, first = self._gate, batch.first
        inputs = batch.inputs[first]
        chosen = inputs[:, -gate.experts :].argmax(-1)
        # The cost, and what the trajectory adds to the value of each limit.
        heeded = batch.targets[len(batch.targets) - limits :][: len(gate.prices)]
        costs = torch.cat([batch.targets[:1], heeded])[:, first].T
        self._renormalise(costs)
        wanted = (costs - gate.mean) / gate.std
        rows = torch.arange(len(inputs), device=inputs.device)
        for _ in range(self._passes):
            with torch.enable_grad():
                loss = (gate.outputs(inputs[:, : -gate.experts])[rows, chosen] - wanted).square().mean()
            self.gate_optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(gate.parameters(), 0.5)
            self.gate_optimiser.step()
        self._weigh(batch, inputs[:, : -gate.experts])

    def _weigh(self, batch: Batch, inputs: Tensor) -> None:
        """Weigh cost and limits for the choice at starts [B, no].

        The experts' Lagrangian measures the cost in standard deviations of its advantage, which shrink once all starts
        get the same expert. So the choice has prices of its own, which follow the measured values in the same way.
        """
        gate, heeded = self._gate, len(self._gate.prices)
        units = gate.prices.new_tensor((batch.units or (1.0,) * heeded)[:heeded])
        if not gate.apart:
            steps = (gate.prices.new_tensor(batch.excess[:heeded]) / units).nan_to_num().clamp(-1, 1)
            gate.prices.mul_((PACE * steps).exp()).clamp_(1 / MOST_PRICE, MOST_PRICE)
        apart = gate.predict(inputs)[..., 0].std(1, correction=0).mean().clamp(min=1e-30)
        gate.weights.copy_(SHARPNESS * torch.cat([1 / apart[None], gate.prices / units]))

    def _renormalise(self, costs: Tensor) -> None:
        """Let the gate's units follow the spread of costs [B, m + 1]; what it predicts stays the same."""
        gate = self._gate
        mean, std = costs.mean(0), costs.std(0, correction=0).clamp(min=1e-6)
        if float(gate.age) > 0:
            mean, std = (MEMORY * old + (1 - MEMORY) * new for old, new in ((gate.mean, mean), (gate.std, std)))
        last = gate.network[-1]
        assert isinstance(last, nn.Linear)
        ratio, shift = (gate.std / std).repeat(gate.experts), ((gate.mean - mean) / std).repeat(gate.experts)
        with torch.no_grad():
            if float(gate.age) > 0:
                last.weight.mul_(ratio[:, None])
                last.bias.mul_(ratio).add_(shift)
        gate.mean.copy_(mean)
        gate.std.copy_(std)

    def state_dict(self) -> State:
        """Return the state of all optimisers."""
        return {"experts": self._experts.state_dict(), "gate": optimiser_state(self.gate_optimiser)}

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned."""
        self._experts.load_state_dict(state["experts"])
        restore_optimiser(self.gate_optimiser, state["gate"])
