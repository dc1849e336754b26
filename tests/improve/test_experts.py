"""Policies of several experts: the choice at the start of an episode, the expert that is kept, and the gate."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from samba_rl.agents.settings import ModelBasedSettings
from samba_rl.errors import UserError
from samba_rl.improve.experts import DISCOUNTS, SURCHARGES, MixturePolicy, fresh_policy
from samba_rl.improve.policies import GaussianPolicy, PolicySettings
from samba_rl.learners import LEARNERS, GPModel, Learner, Projection
from samba_rl.presets import make_agent, make_settings
from samba_rl.tasks.rollout import rollout
from samba_rl.types import Traces
from tests.crossing import Crossing
from tests.line import Line, quick_settings
from tests.traces import double, seeded, simple_policy

TWO = PolicySettings(hidden=(8,), experts=2, apart=0, gate_hidden=(), std=0.05)


def mixture(settings: PolicySettings = TWO, *, limits: int = 1, seed: int = 0) -> MixturePolicy:
    """Make a policy for the crossing: expert 0 goes left, expert 1 right, and only goals on the right get expert 1."""
    policy = fresh_policy(
        double([-1.0]), double([1.0]), torch.zeros(2), torch.ones(2), settings, seeded(seed), limits
    )  # fmt: skip
    assert isinstance(policy, MixturePolicy)
    last, gate = policy.actor.network[-1], policy.gate.network[-1]
    assert isinstance(last, nn.Linear) and isinstance(gate, nn.Linear)
    with torch.no_grad():
        first = policy.actor.network[0]
        assert isinstance(first, nn.Linear)
        first.weight.zero_()
        first.weight[0, 2], first.weight[0, 3] = -5.0, 5.0  # the columns of the experts, after those of x and the goal
        last.weight.zero_()
        last.weight[:, 0] = 0.5
        gate.weight.zero_()
        gate.bias.zero_()
        gate.weight[: limits + 1 : limits + 1, 1] = 100.0  # the cost of expert 0 rises with the goal
        policy.gate.weights[0] = 1.0
    return policy


def mixture_like(settings: PolicySettings) -> MixturePolicy:
    """Make a policy with random networks that heeds two limits."""
    policy = fresh_policy(double([-1.0]), double([1.0]), torch.ones(2), torch.full((2,), 0.5), settings, seeded(0), 2)
    assert isinstance(policy, MixturePolicy)
    return policy


def run(policy: object, n: int = 40, task: Crossing | None = None, seed: int = 1) -> Traces:
    return rollout((task or Crossing()).world(), policy, n, generator=seeded(seed))  # type: ignore[arg-type]


def experts(traces: Traces) -> Tensor:
    """Return the expert of each step [B, T]; every row must say that it is one."""
    columns = traces.observation[..., 2:]
    assert torch.equal(columns.sum(-1), torch.ones(columns.shape[:2], dtype=columns.dtype))
    return columns.argmax(-1)


def test_one_expert_is_the_gaussian_policy_bit_for_bit() -> None:
    one = PolicySettings(hidden=(8,))
    policy = fresh_policy(double([-1.0]), double([1.0]), torch.zeros(2), torch.ones(2), one, seeded(3), 1)
    plain = GaussianPolicy(double([-1.0]), double([1.0]), torch.zeros(2), torch.ones(2), one, seeded(3))
    assert isinstance(policy, GaussianPolicy) and policy.learning() is policy is policy.actor
    first, second = run(policy), run(plain)
    assert all(torch.equal(value, vars(second)[name]) for name, value in vars(first).items() if value is not None)
    assert policy.limited(first) is first


@pytest.mark.parametrize("reach", [0.0, 0.3])
def test_the_expert_chosen_at_the_start_acts_until_the_end(reach: float) -> None:
    traces = run(mixture(), task=Crossing(reach=reach))
    chosen = experts(traces)
    assert bool((chosen == chosen[:, :1]).all())  # in episodes that end early too
    assert traces.terminated.any() == (reach > 0)
    goals = traces.x[:, 0, 1]
    assert torch.equal(chosen[:, 0] == 1, goals > 0)  # what the gate says
    went = traces.wanted[..., 0].sign()
    assert torch.equal(went[traces.active], (2.0 * chosen - 1)[traces.active].to(went))  # and what the expert does


def test_a_rig_that_runs_one_episode_at_a_time_chooses_for_each() -> None:
    policy = mixture()
    acting = policy.begin(1)
    generator = seeded(0)
    goal = double([[0.0, 0.9]])
    assert float(acting(goal, generator)) > 0
    assert float(acting(double([[0.0, -0.9]]), generator)) > 0  # the same episode: the choice stands
    assert float(policy.begin(1)(double([[0.0, -0.9]]), generator)) < 0
    assert float(policy(double([[0.0, -0.9]]), generator)) < 0  # without `begin` each call is a start


def test_acting_by_hand_keeps_the_expert_and_never_leaves_the_bounds() -> None:
    policy = mixture()
    right, left = [0.0, 0.9], [0.0, -0.9]
    acting = policy.begin(1)
    action = acting.act(right)
    assert isinstance(action, np.ndarray) and action.shape == (1,) and action[0] > 0
    assert acting.act(np.array(left))[0] > 0  # the same episode
    assert policy.begin(1).act(left)[0] < 0 and policy.act(left)[0] < 0
    both = policy.begin(2)
    rows = both.act(torch.tensor([right, left]))
    assert rows.dtype == torch.float32 and rows.shape == (2, 1) and rows[0] > 0 > rows[1]
    with pytest.raises(UserError, match="1 observations were given during 2 episodes; call begin first"):
        both.act(right)
    with pytest.raises(UserError, match=r"has shape \[3\]; give one of \[2\]"):
        acting.act([0.0, 0.0, 1.0])
    with torch.no_grad():
        policy.actor.log_std.fill_(3.0)
        policy.gate.weights[0] = 0.0  # a coin's choice
    drawn = [policy.begin(500).act(np.tile(right, (500, 1)), seeded(k)) for k in (0, 0, 1)]
    assert np.array_equal(drawn[0], drawn[1]) and not np.array_equal(drawn[0], drawn[2])
    assert np.abs(drawn[0]).max() == 1.0 and len(np.unique(policy.begin(500).act(np.tile(right, (500, 1))))) == 1
    with torch.no_grad():
        policy.actor.log_std.fill_(-20.0)
    assert 200 < int((policy.begin(500).act(np.tile(right, (500, 1)), seeded(0)) > 0).sum()) < 300


@pytest.mark.parametrize("apart", [0, 5])
@pytest.mark.parametrize("hidden", [(), (6, 4)])
def test_the_layers_of_the_gate_give_its_probabilities(apart: int, hidden: tuple[int, ...]) -> None:
    policy = mixture_like(replace(TWO, experts=3, apart=apart, gate_hidden=hidden))
    with torch.no_grad():
        policy.gate.weights.copy_(torch.tensor([1.0, 0.5, 3.0]))
        policy.gate.std.copy_(torch.tensor([2.0, 4.0, 1.0]))
        policy.gate.mean.copy_(torch.tensor([5.0, -1.0, 2.0]))
    seen = torch.randn(50, 2, generator=seeded(4)).double()
    exact = policy.exact_logits(seen)
    assert exact.dtype == torch.float64 and exact.isfinite().all()
    due = policy.gate.logits(policy.first_inputs(seen)).softmax(-1)
    assert torch.allclose(exact.softmax(-1).float(), due, atol=1e-5)
    assert bool((due[:, 2] == 1).all()) == (apart > 0)


def test_the_still_policy_takes_the_likeliest_expert_and_its_mean() -> None:
    policy = mixture()
    with torch.no_grad():
        policy.gate.weights[0] = 0.001  # the choice is nearly a coin's, but the likelier expert is still known
    first, second = run(policy.still(), seed=1), run(policy.still(), seed=1)
    assert torch.equal(first.wanted, second.wanted)
    assert torch.equal(experts(first)[:, 0] == 1, first.x[:, 0, 1] > 0)
    assert float(first.wanted[experts(first) == 1].std()) < 1e-6
    noisy = experts(run(policy, 400))[:, 0]
    assert 120 < int(noisy.sum()) < 280


def test_the_gate_weighs_predictions_as_the_lagrangian_does() -> None:
    gate = mixture(limits=2).gate
    with torch.no_grad():
        last = gate.network[-1]
        assert isinstance(last, nn.Linear)
        last.weight.zero_()
        last.bias.copy_(torch.tensor([1.0, 0.0, 2.0, 3.0, 0.5, 0.0]))  # expert 0: 1, 0, 2; expert 1: 3, 0.5, 0
        gate.mean.copy_(torch.tensor([10.0, 0.0, 1.0]))
        gate.std.copy_(torch.tensor([2.0, 4.0, 1.0]))
        gate.weights.copy_(torch.tensor([1.0, 0.5, 3.0]))
    here = torch.zeros(1, 2)
    assert gate.predict(here).tolist() == [[[12, 0, 3], [16, 2, 1]]]
    costs = 12 + 0.5 * 0 + 3 * 3, 16 + 0.5 * 2 + 3 * 1
    assert float(gate.logits(here).diff()) == pytest.approx(costs[0] - costs[1])


def test_experts_are_apart_at_first() -> None:
    policy = mixture(replace(TWO, experts=3, apart=2))
    traces = run(policy.learning(), 300)
    counts = torch.bincount(policy.chosen(traces), minlength=3)
    assert int(counts.min()) > 70  # all act equally often, whatever the gate says
    assert torch.equal(policy.shares(traces), policy.chosen(traces) / 2)
    assert len(policy.limited(traces).cost) == int(counts[2])  # limits are measured on the last one
    assert set(policy.chosen(run(policy)).tolist()) == {2}  # which acts on the real system
    assert set(policy.chosen(run(policy.still())).tolist()) == {2}
    with torch.no_grad():
        policy.gate.age.fill_(2)
    assert set(policy.chosen(run(policy)).tolist()) > {0}


def test_chance_goes_on_choosing_in_a_few_trajectories_of_those_to_learn_from() -> None:
    policy = mixture()
    traces = run(policy.learning(), 200)
    chosen, by_gate = policy.chosen(traces), traces.x[:, 0, 1] > 0
    assert torch.equal(chosen[:160] == 1, by_gate[:160])
    assert 5 < int((chosen[160:] != by_gate[160:].long()).sum()) < 35  # half of them are not what the gate would choose
    assert len(policy.limited(traces).cost) == 160  # limits are measured where the gate chose
    assert torch.equal(policy.shares(traces), torch.ones(200))  # whoever chose, the limits count


def test_bolder_and_more_careful_policies_weigh_the_limits_less_and_more() -> None:
    policy = mixture()
    last = policy.gate.network[-1]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        policy.gate.weights[1], last.bias[1] = 3.0, 2.0  # expert 0 exceeds the limit by 2
    before, here = policy.gate.weights.clone(), torch.zeros(1, 2)
    for factors, states in ((DISCOUNTS, policy.bolder()), (SURCHARGES, policy.more_careful())):
        assert len(states) == len(factors)
        for factor, state in zip(factors, states, strict=True):
            copy = mixture()
            copy.load_state_dict(state)
            assert float(copy.gate.logits(here).diff()) == pytest.approx(factor * 3 * 2)
            assert torch.equal(copy.gate.prices, policy.gate.prices * factor)
            assert copy.gate.weights[0] == before[0]  # the cost counts as before
    assert torch.equal(policy.gate.weights, before)  # the policy itself stays as it is
    for none in (mixture(replace(TWO, apart=2)), simple_policy()):
        assert none.bolder() == [] == none.more_careful()


def test_several_experts_need_a_model_and_an_update_without_its_own_dual() -> None:
    free = quick_settings("ppo")
    with pytest.raises(UserError, match=r"policy\.experts = 2: must be 1 for a learner without a model"):
        make_agent(Line(), "ppo", replace(free, policy=TWO))  # type: ignore[call-arg]
    own = replace(quick_settings("sppilco"), policy=TWO)  # type: ignore[call-arg]
    row = Learner(GPModel(), LEARNERS["sppilco"].objectives, LEARNERS["samba"].constraint, Projection())
    with pytest.raises(UserError, match=r"policy.experts = 2.*'projection'"):
        make_agent(Line(), row, own)
    make_agent(Line(), "sppilco", own)


@pytest.mark.parametrize(("name", "value"), [("experts", 0), ("apart", -1), ("gate_passes", 0)])
def test_numbers_out_of_range_are_refused(name: str, value: int) -> None:
    with pytest.raises(UserError, match=rf"policy\.{name} = {value}"):
        ModelBasedSettings(policy=replace(PolicySettings(), **{name: value}))  # type: ignore[arg-type]


def test_presets_with_experts_are_for_learners_on_a_model() -> None:
    assert make_settings("safe-pendulum", "samba").policy.experts == 1  # type: ignore[attr-defined]
