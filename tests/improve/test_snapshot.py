"""A snapshot holds everything that a control iteration changes, as copies, and restores all of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Generator

from samba_rl.data.packing import pack, unpack
from samba_rl.improve.advantages import AdvantageSettings
from samba_rl.improve.constraints import CVaR
from samba_rl.improve.limits import MultiplierSettings
from samba_rl.improve.multipliers import Multipliers
from samba_rl.improve.objectives import Cost
from samba_rl.improve.snapshot import Snapshot, set_random
from samba_rl.improve.step import Improver
from samba_rl.improve.updates.proximal import ProximalSettings
from samba_rl.improve.updates.rules import Projection, Proximal, TrustRegion, UpdateRule, UpdateSettings
from samba_rl.improve.updates.trust_region import TrustRegionSettings
from tests.traces import on_a_line, seeded, simple_policy

CONSTRAINTS = (CVaR(name="place", limit=0.1),)
UPDATE = UpdateSettings(ProximalSettings(epochs=2, minibatch=40), TrustRegionSettings())
RULES = pytest.mark.parametrize("rule", [Proximal(), TrustRegion(), Projection()], ids=lambda rule: rule.label)


def parts(rule: UpdateRule, seed: int = 0) -> tuple[Improver, Multipliers, Generator]:
    policy = simple_policy(hidden=(8,), seed=seed)
    advantage = AdvantageSettings(hidden=(8,))
    improver = Improver(policy, (Cost(),), CONSTRAINTS, advantage, rule, UPDATE, seeded(seed))
    return improver, Multipliers(MultiplierSettings(), CONSTRAINTS), seeded(10 + seed)


def iterate(improver: Improver, multipliers: Multipliers, generator: Generator) -> None:
    """Make a control iteration in which everything changes."""
    traces = on_a_line(improver.policy, 20, 6, seed=int(torch.randint(1000, (1,), generator=generator)))
    values = tuple(constraint.measure(traces) for constraint in CONSTRAINTS)
    multipliers.update(values)
    batch = improver.advantages(traces).combined(
        (1.0,), multipliers.values, multipliers.units, multipliers.excess(values)
    )  # fmt: skip
    multipliers.adopt(improver.update(batch, generator).nu)


def everything(improver: Improver, multipliers: Multipliers, generator: Generator) -> dict[str, bytes]:
    """Return the parts of the state one by one, without the help of a snapshot."""
    update = improver.update.state_dict()
    return {
        "policy": pack(dict(improver.policy.state_dict())),
        "critics": pack(dict(improver.critics.state_dict())),
        "optimisers": pack({"update": update}),
        "std_floor": pack({"floor": improver.update.std_floor}),
        "multipliers": pack({"each": [[one.value, one.least] for one in multipliers.each]}),
        "generator": pack({"generator": generator.get_state()}),
    }


def spoil(improver: Improver, multipliers: Multipliers) -> None:
    """Make every kind of number something that is not finite, or wrong."""
    with torch.no_grad():
        for parameter in (*improver.policy.parameters(), *improver.critics.parameters()):
            parameter.fill_(torch.nan)
    improver.critics.std.fill_(torch.inf)
    for optimiser in improver.update.optimisers:
        for moments in optimiser.state.values():
            moments["exp_avg"].fill_(torch.nan)
        optimiser.param_groups[0]["lr"] = 7.0
    improver.update.std_floor = 0.9
    multipliers.each[0].value, multipliers.each[0].least = torch.nan, 3.0


@RULES
def test_everything_is_restored(rule: UpdateRule) -> None:
    all_parts = parts(rule)
    improver, multipliers, generator = all_parts
    for _ in range(2):
        iterate(*all_parts)
    before = everything(*all_parts)
    snapshot = Snapshot.take(*all_parts)
    iterate(*all_parts)
    spoil(improver, multipliers)
    torch.rand(5, generator=generator)
    after = everything(*all_parts)
    assert all(after[name] != before[name] for name in before)
    snapshot.restore(*all_parts)
    assert everything(*all_parts) == before and improver.finite


@RULES
def test_a_restored_state_continues_to_the_same_end(rule: UpdateRule) -> None:
    """Undoing may not leave anything behind that the next iterations could notice."""
    one = parts(rule)
    iterate(*one)
    snapshot = Snapshot.take(*one)
    iterate(*one)
    due = everything(*one)
    spoil(*one[:2])
    snapshot.restore(*one)
    iterate(*one)
    assert everything(*one) == due


@RULES
def test_a_snapshot_survives_a_checkpoint(rule: UpdateRule) -> None:
    one, other = parts(rule), parts(rule, seed=1)
    iterate(*one)
    stored: dict[str, Any] = unpack(pack(Snapshot.take(*one).state_dict()))
    assert set(stored) == {"improver", "multipliers", "generator"}
    Snapshot.from_state(stored).restore(*other)
    assert everything(*other) == everything(*one)
    for each in (one, other):
        iterate(*each)
    assert everything(*other) == everything(*one)


def test_a_snapshot_is_a_copy() -> None:
    one = parts(Proximal())
    iterate(*one)
    snapshot = Snapshot.take(*one)
    stored = pack(snapshot.state_dict())
    iterate(*one)
    spoil(*one[:2])
    assert pack(snapshot.state_dict()) == stored
    # Restoring does not tie the parts to the snapshot either.
    snapshot.restore(*one)
    iterate(*one)
    assert pack(snapshot.state_dict()) == stored


def test_the_state_of_another_kind_of_generator_is_a_seed() -> None:
    """A GPU's generator has 16 bytes: a seed and an offset."""
    state = torch.arange(16, dtype=torch.uint8)
    first, second, third = seeded(1), seeded(2), seeded(3)
    set_random(first, state)
    set_random(second, state)
    set_random(third, state + 1)
    draws = [torch.rand(4, generator=each).tolist() for each in (first, second, third)]
    assert draws[0] == draws[1] != draws[2]
    set_random(third, seeded(7).get_state())
    assert torch.equal(torch.rand(4, generator=third), torch.rand(4, generator=seeded(7)))
