"""Two experts solve what one cannot: leap across a narrow slab, stop before a wide one."""

from __future__ import annotations

import math

import pytest

from samba_rl.improve.advantages import AdvantageSettings
from samba_rl.improve.constraints import Constraint, CVaR
from samba_rl.improve.experts import fresh_policy
from samba_rl.improve.limits import MultiplierSettings
from samba_rl.improve.multipliers import Multipliers
from samba_rl.improve.objectives import Cost
from samba_rl.improve.policies import PolicySettings
from samba_rl.improve.step import Improver
from samba_rl.improve.updates.proximal import ProximalSettings
from samba_rl.improve.updates.rules import Proximal, UpdateSettings
from samba_rl.improve.updates.trust_region import TrustRegionSettings
from samba_rl.tasks.rollout import rollout
from tests.crossing import Crossing
from tests.threads import one_thread
from tests.traces import double, seeded

TAIL = CVaR(name="slab", limit=0.5, alpha=0.9, nu_floor=0.8, nu_ceiling=1.0)


def learned(experts: int, iterations: int = 200, seed: int = 0) -> tuple[float, float]:
    """Improve a policy on the true system; return its mean return and its CVaR."""
    task, generator = Crossing(), seeded(seed)
    settings = PolicySettings(std=0.3, experts=experts, apart=60, gate_hidden=(32, 32))
    low, high = task.action_bounds()
    policy = fresh_policy(low, high, double([0.0, 0.0]), double([0.5, 0.5]), settings, generator, 1)
    constraints: tuple[Constraint, ...] = (TAIL,)
    multipliers = Multipliers(MultiplierSettings(initial=5.0), constraints)
    numbers = UpdateSettings(ProximalSettings(minibatch=1000), TrustRegionSettings())
    improver = Improver(policy, (Cost(),), constraints, AdvantageSettings(), Proximal(), numbers, generator)
    world = task.world()
    for i in range(iterations):
        improver.update.std_floor = math.exp(math.log(0.15) + i / iterations * math.log(0.05 / 0.15))
        traces = rollout(world, policy.learning(), 200, generator=generator)
        values = improver.measure(traces)
        multipliers.update(values)
        advantages = improver.advantages(traces)
        batch = advantages.combined((1.0,), multipliers.values, multipliers.scales, multipliers.excess(values))
        improver.update(batch, generator)
    traces = rollout(world, policy, 2000, generator=generator)
    return float(traces.returns.mean()), TAIL.measure(traces)


@pytest.mark.slow
def test_two_experts_solve_what_one_cannot() -> None:
    with one_thread():
        one, two = learned(1), learned(2)
    assert one[1] < 0.55 and two[1] < 0.55
    assert two[0] > one[0] + 0.3
