"""Units do not matter: whatever the scales of cost and safety cost are, a run ends with the same policy."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from samba_rl.agents.settings import PolicyGradientSettings
from samba_rl.events import Event
from samba_rl.presets import make_agent, make_settings
from samba_rl.tasks.pendulum import SafePendulum
from tests.agents.agents import improvements, trials
from tests.line import spend
from tests.threads import one_thread

TINY, HUGE = 2.0**-20, 2.0**20
"""About a millionth and a million. As powers of two they change no digit of any number, so nothing is rounded anew."""


class Outcome(NamedTuple):
    """What a run did and ended with."""

    policy: dict[str, Tensor]
    returns: list[float]
    """Mean return of each trial, in the cost's unit."""
    weights: list[tuple[float, ...]]
    """λ and λ_π of each control iteration."""


@cache
def outcome(learner: str, cost_unit: float, safety_unit: float) -> Outcome:
    """Run the smoke preset on Safe Pendulum with its costs in other units and its physics unchanged."""
    plain = {name: getattr(SafePendulum, name) for name in ("_cost", "done", "safety", "_violation")}
    with pytest.MonkeyPatch.context() as patch, one_thread():
        patch.setattr(SafePendulum, "_cost", lambda self, x, u: plain["_cost"](self, x, u) / cost_unit)
        patch.setattr(SafePendulum, "done", lambda self, x, recent: plain["done"](self, x, recent * cost_unit))
        patch.setattr(SafePendulum, "safety", lambda self, x, u=None: plain["safety"](self, x, u) / safety_unit)
        patch.setattr(
            SafePendulum, "_violation", lambda self, x, u, safety: plain["_violation"](self, x, u, safety * safety_unit)
        )
        settings = make_settings("safe-pendulum", learner, "smoke")
        assert isinstance(settings, PolicyGradientSettings)
        # In reach of none of these policies, so that λ moves, feasibility is examined and the target changes.
        constraint = replace(settings.constraint, limit=0.3 / safety_unit)
        events: list[Event] = []
        agent = make_agent(SafePendulum(), learner, replace(settings, constraint=constraint), log=events.append)
        policy = spend(agent).state_dict()
    reports = improvements(events)
    assert any(value > 0 for report in reports for value in report.values)
    returns = [cost_unit * trial.return_mean for trial in trials(events)]
    return Outcome(policy, returns, [(*report.multipliers, report.lambda_pi) for report in reports])


def check_same(one: Outcome, other: Outcome, tolerance: float) -> None:
    for name, value in one.policy.items():
        assert torch.allclose(value, other.policy[name], rtol=0, atol=tolerance), name
    assert other.returns == pytest.approx(one.returns, rel=tolerance)
    for mine, due in zip(other.weights, one.weights, strict=True):
        assert mine == pytest.approx(due, rel=tolerance, abs=tolerance)


@pytest.mark.parametrize(
    ("cost_unit", "safety_unit"), [(TINY, 1.0), (HUGE, 1.0), (1.0, TINY), (1.0, HUGE), (TINY, HUGE)]
)
@pytest.mark.parametrize("learner", ["samba", "sppo", "cpo"])
def test_the_units_of_cost_and_safety_cost_do_not_matter(learner: str, cost_unit: float, safety_unit: float) -> None:
    """From the first control iteration on."""
    check_same(outcome(learner, 1.0, 1.0), outcome(learner, cost_unit, safety_unit), 1e-6)


@pytest.mark.parametrize("cost_unit", [1e-6, 1e6])
@pytest.mark.parametrize(("learner", "tolerance"), [("samba", 1e-3), ("sppo", 1e-3), ("cpo", 2e-2)])
def test_a_million_times_the_cost_ends_with_the_same_policy_to_rounding(
    learner: str, tolerance: float, cost_unit: float
) -> None:
    """Conjugate gradients, which CPO uses, enlarge rounding errors."""
    check_same(outcome(learner, 1.0, 1.0), outcome(learner, cost_unit, 1.0), tolerance)
