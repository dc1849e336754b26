"""The shield: which policy acts or is handed over, and what past trials teach about predictions."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Generator, Tensor

from samba_rl.improve.constraints import Constraint, CVaR
from samba_rl.improve.limits import MultiplierSettings
from samba_rl.improve.multipliers import Multipliers
from samba_rl.improve.policies import GaussianPolicy
from samba_rl.improve.shield import EVIDENCE, REMEMBERED, SHARE, Candidate, Shield
from samba_rl.tasks.rollout import RealSource
from samba_rl.types import Policy, Source, Traces
from tests.line import Line
from tests.traces import double, last_layer, simple_policy

TASK = Line(goal=1.0)
SOURCE = RealSource(TASK.world())
TRAJECTORIES = 1000
EDGE = CVaR(name="edge", limit=1.0)


def imagine(starts: Tensor | None, *, share: int = 1) -> Source:
    return SOURCE


def going(speed: float) -> GaussianPolicy:
    """Return a policy that goes at this speed, almost without noise: faster is cheaper and less safe."""
    policy = simple_policy(std=1e-3)
    with torch.no_grad():
        last_layer(policy).weight.zero_()
        last_layer(policy).bias.fill_(speed)
    return policy


def candidate(speed: float) -> Candidate:
    return Candidate.of(f"speed {speed}", going(speed))


def tried(speed: float, *, dearer: float = 0.0, amount: float = 0.0) -> Candidate:
    """Return a policy whose five real episodes cost more than the model expects, and had this amount."""
    traces = SOURCE(going(speed), TRAJECTORIES, Generator().manual_seed(0))
    cost = -float(traces.returns.mean()) + dearer
    return replace(candidate(speed), name=f"tried {speed}", starts=traces.x[:5, 0], cost=cost, amounts=(amount,))


def shield(*limits: float, safest: float | None = None, seen: float = 0.0) -> Shield:
    """Return a shield after trials with a safety cost of `seen`, as predicted.

    With `safest` the limits look infeasible, and a policy of this speed is the safest known.
    """
    constraints: tuple[Constraint, ...] = tuple(CVaR(name="edge", limit=limit) for limit in limits)
    multipliers = Multipliers(MultiplierSettings(margin=0.0, slack=0.3), constraints)
    for one in multipliers.each:
        one.least = None if safest is None else 100.0
    made = Shield(constraints, multipliers, TRAJECTORIES, lambda index: going(safest or 0.0))
    made._realised, made._predicted = [seen for _ in limits], [seen for _ in limits]
    return made


def chosen(speeds: tuple[float, ...], *limits: float) -> tuple[str, bool]:
    one, verdict = shield(*limits).best(going(0.0), [candidate(s) for s in speeds], imagine, 0)
    return one.name, verdict.passes


@pytest.mark.parametrize(
    ("speeds", "limits", "expected", "passes"),
    [
        ((0.1, 0.35, 0.4), (0.05,), 0.1, True),  # the only one within the limit
        ((0.1, 0.2, 0.4), (0.05,), 0.2, True),  # the cheaper of two within it
        ((0.4, 0.2, 0.1), (0.05,), 0.2, True),  # wherever it stands
        ((0.1, 0.3, 0.4), (50.0,), 0.4, True),  # all are within it
        ((0.4, 0.35, 0.9), (0.01,), 0.35, False),  # none is: the least excess
        ((0.1, 0.4, 0.2), (), 0.4, True),  # without a limit
        ((0.1, 0.2, 0.4), (50.0, 0.05), 0.2, True),  # of several limits the worst kept one counts
    ],
)
def test_the_cheapest_within_the_limit_is_chosen_or_else_the_safest(
    speeds: tuple[float, ...], limits: tuple[float, ...], expected: float, passes: bool
) -> None:
    assert chosen(speeds, *limits) == (f"speed {expected}", passes)


def test_the_policy_that_judges_is_not_changed() -> None:
    policy = going(0.3)
    shield(0.05).best(policy, [candidate(0.1), candidate(0.9)], imagine, 0)
    assert float(policy.mean_action(double([[0.0]]))) == pytest.approx(0.3)


def test_a_bound_lies_above_the_value_and_the_ceiling_is_the_target() -> None:
    verdict = shield(1.0, seen=1e9).judge(going(0.0), candidate(0.4), imagine, 0)
    exact = EDGE.measure(SOURCE(going(0.4), 20_000, Generator().manual_seed(3)))
    assert exact < verdict.bounds[0] < 1.2 * exact
    assert verdict.ceilings == (1.0,)


def test_more_trajectories_are_imagined_while_only_the_sampling_error_decides() -> None:
    asked: list[int] = []

    def counted(policy: Policy, n: int, generator: Generator) -> Traces:
        asked.append(n)
        return SOURCE(policy, n, generator)

    value = EDGE.measure(SOURCE(going(0.4), 1000, Generator().manual_seed(0)))
    for limit, expected in ((50.0, [TRAJECTORIES]), (1.001 * value, [TRAJECTORIES, 2 * TRAJECTORIES])):
        asked.clear()
        shield(limit, seen=1e9).judge(going(0.0), candidate(0.4), lambda starts, *, share=1: counted, 0)
        assert asked == expected


def test_underestimated_trials_raise_the_bounds_and_rightly_predicted_ones_do_not() -> None:
    trusting, burnt = shield(1.0), shield(1.0, seen=0.01)
    slow, fast = (SOURCE(going(speed), 5, Generator().manual_seed(1)) for speed in (0.0, 1.0))
    for _ in range(3):
        trusting.note(candidate(0.0), going(0.0), imagine, 0, slow)
        burnt.note(candidate(0.0), going(0.0), imagine, 0, fast)  # expected to stand still, it went
    assert trusting.factors() == (1.0,) and 1.5 < burnt.factors()[0] <= 3.0
    plain, raised = (one.judge(going(0.0), candidate(0.4), imagine, 0) for one in (trusting, burnt))
    (doubt,), (less,) = trusting.doubts(), burnt.doubts()
    assert doubt == 1.5 and less < 0.1  # most of the doubt is dispelled, and so is most of the plain bound
    unsure = shield(1.0, seen=1e9).judge(going(0.0), candidate(0.4), imagine, 0).bounds[0]
    assert raised.bounds[0] == pytest.approx(burnt.factors()[0] * unsure) and plain.bounds[0] > unsure


def test_a_value_that_the_model_is_sure_of_is_doubted_until_trials_have_had_a_safety_cost() -> None:
    assert shield(1.0).doubts() == (1.5,)
    assert shield(0.5, seen=0.025).doubts() == pytest.approx((0.75,))  # a twentieth of the target
    assert shield(0.5, 2.0, seen=0.3).doubts() == pytest.approx((0.75 / 6.5, 3 / 8))
    value = EDGE.measure(SOURCE(going(0.4), TRAJECTORIES, Generator().manual_seed(0)))
    for seen, share in ((0.0, 1.5), (0.05, 0.75)):
        bound = shield(1.0, seen=seen).judge(going(0.0), candidate(0.4), imagine, 0).bounds[0]
        assert bound == pytest.approx((1 + share) * value)


def test_trials_that_cost_more_than_predicted_make_untried_policies_dearer() -> None:
    wrong = shield(1.0)
    expected, real = (-float(SOURCE(going(s), 1000, Generator().manual_seed(0)).returns.mean()) for s in (0.4, 0.0))
    wrong.note(candidate(0.4), going(0.0), imagine, 0, SOURCE(going(0.0), 1000, Generator().manual_seed(0)))
    assert wrong.optimism == pytest.approx((real - expected) / 2)  # one trial against a prior of one
    plain = shield(1.0).judge(going(0.0), candidate(0.4), imagine, 0)
    assert wrong.judge(going(0.0), candidate(0.4), imagine, 0).cost == pytest.approx(plain.cost + wrong.optimism)
    right = shield(1.0)  # cheaper than predicted
    right.note(candidate(0.0), going(0.0), imagine, 0, SOURCE(going(0.4), 5, Generator().manual_seed(0)))
    assert right.optimism == 0


def test_a_policy_that_did_badly_loses_to_one_that_did_well() -> None:
    judge = shield(50.0)
    plain = judge.judge(going(0.0), candidate(0.4), imagine, 0)
    for dearer in (10.0, -10.0):
        found = judge.judge(going(0.0), tried(0.4, dearer=dearer), imagine, 0)
        assert found.cost == pytest.approx(plain.cost + dearer * 5 / (EVIDENCE + 5), abs=0.05)
    poor, good = tried(0.4, dearer=10.0), tried(0.35)
    assert judge.best(going(0.0), [poor, good], imagine, 0)[0] is good


def test_a_policy_that_was_less_safe_than_predicted_has_a_higher_bound() -> None:
    judge = shield(0.5)
    verdict = judge.judge(going(0.0), candidate(0.4), imagine, 0)
    plain, foreseen = verdict.bounds[0], verdict.amounts[0]

    def bound(real: float) -> float:
        return judge.judge(going(0.0), tried(0.4, amount=real), imagine, 0).bounds[0]

    # 5 episodes beside a prior of the target, in proportion, up to three times; or by half of the excess, if more.
    assert bound(4.0) == pytest.approx(plain * (0.5 + 5 * 4) / (0.5 + 5 * foreseen), rel=0.02)
    assert bound(12.0) == pytest.approx(3 * plain)
    assert bound(400.0) == pytest.approx(plain + (400 - foreseen) * 5 / (EVIDENCE + 5), rel=0.02)
    assert bound(0.0) == plain


def test_a_danger_that_the_model_did_not_foresee_at_all_counts() -> None:
    standing = shield(0.05).judge(going(0.0), tried(0.0, amount=0.4), imagine, 0)
    assert standing.bounds[0] == pytest.approx(0.2, abs=0.01) and not standing.passes


def test_the_best_trial_is_never_forgotten() -> None:
    memory = shield(50.0)
    policy = going(0.0)

    def note(name: str, real: Traces) -> None:
        memory.note(replace(candidate(0.2), name=name), policy, imagine, 0, real)

    assert memory.proven() is None
    fast, slow = (SOURCE(going(speed), 3, Generator().manual_seed(1)) for speed in (0.4, 0.0))
    for number in range(3):
        note(f"slow {number}", slow)
    note("fast", fast)
    for number in range(3, 3 + 2 * REMEMBERED):
        note(f"slow {number}", slow)
    best = memory.proven()
    assert best is not None and best.name == "fast"
    assert [one.name for one in memory.tried] == ["fast", *(f"slow {n}" for n in range(8, 13))]
    # One that was cheaper still, but not within the limit, does not take its place.
    note("reckless", replace(fast, cost=fast.cost - 1, safety=fast.safety + 100))
    best = memory.proven()
    assert best is not None and best.name == "fast"


def test_its_memory_is_kept() -> None:
    one, other = shield(1.0), shield(1.0)
    for _ in range(7):
        one.note(candidate(0.2), going(0.0), imagine, 0, SOURCE(going(1.0), 2, Generator().manual_seed(1)))
    other.load_state_dict(one.state_dict())
    assert other.factors() == one.factors() > (1.0,) and len(other.tried) == REMEMBERED + 1
    assert other.optimism == one.optimism
    first, second = one.tried[-1], other.tried[-1]
    assert (second.name, second.cost, second.amounts) == (first.name, first.cost, first.amounts)
    assert first.starts is not None and second.starts is not None and torch.equal(first.starts, second.starts)


def test_the_bound_on_a_relaxed_limit_is_relative_to_the_safest_policy_on_the_same_random_numbers() -> None:
    judge = shield(0.001, safest=0.3)
    _, verdict = judge.best(going(0.0), [candidate(0.3)], imagine, 0)
    generator = Generator().manual_seed(0)
    drawn = [SOURCE(going(0.3), n * TRAJECTORIES, generator) for n in (1, 2)]
    amounts = EDGE.amounts(Traces.joined(drawn))
    least = float(EDGE.value(amounts))
    assert verdict.ceilings[0] == pytest.approx(1.3 * least)
    # The same policy on the same numbers: by far the most of the contributions cancels.
    own, safest = EDGE.contributions(EDGE.amounts(drawn[0])), EDGE.contributions(amounts)[:TRAJECTORIES]
    groups = (own - 1.3 * safest).reshape(-1, SHARE).mean(1)
    expected = 1.3 * least + float(groups.mean()) + 1.645 * float(groups.std()) / (TRAJECTORIES / SHARE) ** 0.5
    assert verdict.bounds[0] == pytest.approx(expected)


def test_what_the_model_does_not_know_of_both_policies_alike_does_not_count_on_a_relaxed_limit() -> None:
    def doubtful(starts: Tensor | None, *, share: int = 1) -> Source:
        def source(policy: Policy, n: int, generator: Generator) -> Traces:
            traces = SOURCE(policy, n, generator)
            function = torch.rand(n // share, generator=Generator().manual_seed(5)).repeat_interleave(share)
            return replace(traces, safety=traces.safety * function[:, None, None])

        return source

    relaxed, standing = shield(0.001, safest=0.35), shield(0.001)
    _, beside = relaxed.best(going(0.0), [candidate(0.36)], doubtful, 0)
    _, alone = standing.best(going(0.0), [candidate(0.36)], doubtful, 0)
    assert beside.passes and alone.bounds[0] > 1.15 * beside.bounds[0]
    _, unsafe = relaxed.best(going(0.0), [candidate(0.5)], doubtful, 0)
    assert not unsafe.passes and unsafe.missed == (0,)


def test_the_least_value_is_estimated_afresh_but_makes_no_limit_feasible_in_silence() -> None:
    judge = shield(0.001, safest=0.3)
    judge.best(going(0.0), [candidate(0.4)], imagine, 0)
    (multiplier,) = judge._multipliers.each
    exact = EDGE.measure(SOURCE(going(0.3), 30_000, Generator().manual_seed(3)))
    assert multiplier.least == pytest.approx(exact, rel=0.1) and 0 < multiplier.least_error < 0.1 * exact
    multiplier.limit, multiplier.least = 2 * exact, 100.0
    judge.best(going(0.0), [candidate(0.4)], imagine, 0)
    assert multiplier.least == 100.0 and multiplier.infeasible
