"""Gates: when a policy is stranded, when it must be improved further, and which one acts or is handed over instead."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from torch import Tensor

from samba_rl.improve.constraints import CVaR
from samba_rl.improve.gates import GRACE, MEMORY, ROUNDS, STRANDED, Gate, Improvement, is_stranded
from samba_rl.improve.limits import MultiplierSettings
from samba_rl.improve.multipliers import Multipliers
from samba_rl.improve.policies import GaussianPolicy
from samba_rl.improve.shield import Candidate
from samba_rl.tasks.rollout import RealSource
from samba_rl.types import Source, State, Traces
from tests.line import Line
from tests.traces import by_hand, double, last_layer, seeded, simple_policy

if TYPE_CHECKING:
    from samba_rl.improve.feasibility import Feasibility

SOURCE = RealSource(Line(goal=1.0).world())
SAFE, UNSAFE = 0.1, 0.4
"""Speeds: the faster policy is cheaper, and above the limit of 0.05."""


class Known:
    """A search for the least value that found policies of these speeds."""

    def __init__(self, *speeds: float) -> None:
        self._speeds = speeds

    def safest_known(self) -> list[GaussianPolicy]:
        return [going(speed) for speed in self._speeds]

    def safest(self, index: int) -> SimpleNamespace:
        return SimpleNamespace(best=going(self._speeds[index]))


def imagine(starts: Tensor | None, *, share: int = 1) -> Source:
    return SOURCE


def going(speed: float) -> GaussianPolicy:
    policy = simple_policy(std=1e-3)
    with torch.no_grad():
        last_layer(policy).weight.zero_()
        last_layer(policy).bias.fill_(speed)
    return policy


def gate_of(*safest: float, shielded: bool = True) -> tuple[Gate, Multipliers]:
    constraints = (CVaR(name="edge", limit=0.05),)
    multipliers = Multipliers(MultiplierSettings(), constraints)
    known = cast("Feasibility", Known(*safest))
    return Gate(constraints, multipliers, known, 1000, shielded=shielded), multipliers


def trial_of(speed: float) -> Traces:
    return SOURCE(going(speed), 5, seeded(1))


def speed_of(policy: GaussianPolicy) -> float:
    return round(float(policy.mean_action(double([[0.0]]))), 6)


def acting_speed(gate: Gate) -> float:
    assert gate.actor is not None
    policy = going(0.0)
    policy.load_state_dict(gate.actor.state)
    return speed_of(policy)


def test_a_safe_policy_is_cleared_at_once() -> None:
    gate, multipliers = gate_of(0.0)
    work = Improvement(planned=8, controls=8, control=8)
    assert gate.before_trial(going(SAFE), work, imagine, 0, 3) == [] and work.cleared and work.controls == 8
    assert acting_speed(gate) == pytest.approx(SAFE)
    assert gate.verdict is not None and gate.verdict.passes and multipliers.each[0].caution == 1


def test_an_unsafe_policy_is_improved_further_with_more_caution_and_then_replaced() -> None:
    gate, multipliers = gate_of(0.0)
    work = Improvement(planned=8, controls=8, control=8)
    cautions = []
    for number in range(ROUNDS):
        assert gate.before_trial(going(UNSAFE), work, imagine, 0, 3) == [] and not work.cleared
        assert work.controls == 8 + 2 * (number + 1)  # a quarter of those planned each time
        cautions.append(multipliers.each[0].caution)
    assert cautions == sorted(cautions, reverse=True) and cautions[-1] < 0.5
    (notice,) = gate.before_trial(going(UNSAFE), work, imagine, 0, 3)
    assert notice.text.startswith("trial 3: the safest known policy takes its place; CVaR 0.9 of the edge cost")
    assert work.cleared and acting_speed(gate) == 0.0


@pytest.mark.parametrize(("excess", "made"), [(0.9, True), (1.1, False)])
def test_a_trial_may_exceed_the_target_of_an_infeasible_limit_by_some_grace(excess: float, made: bool) -> None:
    """The safest policy may do next to nothing; a trial of it teaches nothing."""
    gate, multipliers = gate_of(0.3)
    (multiplier,) = multipliers.each
    multiplier.limit, multiplier.least = 0.0, 100.0
    assert _excess(gate, 0.3) < 0  # the safest one passes
    speed = next(s / 1000 for s in range(300, 900) if _excess(gate, s / 1000) > excess * GRACE)
    work = Improvement(planned=8, controls=8, control=8, rounds=ROUNDS)
    (notice,) = gate.before_trial(going(speed), work, imagine, 0, 3)
    assert work.cleared and (acting_speed(gate) == pytest.approx(speed)) is made
    begin = "it goes ahead, since the limit is infeasible" if made else "the safest known policy takes its place"
    assert notice.text.startswith(f"trial 3: {begin}; CVaR 0.9 of the edge cost of a trajectory is bounded by")
    policy = going(speed)
    gate.hand_over(policy, ended(speed, rounds=ROUNDS), imagine, 0)
    assert speed_of(policy) == pytest.approx(0.3)  # what is handed over gets no grace


def _excess(gate: Gate, speed: float) -> float:
    return gate.shield.best(going(speed), [Candidate.of("", going(speed))], imagine, 0)[1].excess


def test_a_limit_that_can_be_kept_has_no_grace() -> None:
    gate, _ = gate_of(0.0)
    speed = next(s / 20_000 for s in range(4000, 4400) if _excess(gate, s / 20_000) > 0)
    assert _excess(gate, speed) < GRACE
    work = Improvement(planned=8, controls=8, control=8, rounds=ROUNDS)
    (notice,) = gate.before_trial(going(speed), work, imagine, 0, 3)
    assert "takes its place" in notice.text and acting_speed(gate) == 0


def on_the_way(*speeds: float, **given: Any) -> Improvement:
    """Return the work of an improvement whose policies had these speeds, one per control iteration."""
    work = Improvement(planned=len(speeds), controls=len(speeds), rounds=ROUNDS, **given)
    for speed in speeds:
        work.control += 1
        work.keep(going(speed), 1)
    return work


def test_the_cheapest_policy_on_the_way_that_passes_takes_the_place_of_one_that_is_refused() -> None:
    gate, _ = gate_of(0.0)
    work = on_the_way(0.05, 0.1, 0.15, 0.2, 0.3, UNSAFE)
    (notice,) = gate.before_trial(going(UNSAFE), work, imagine, 0, 3)
    assert notice.text.startswith(
        "trial 3: an earlier policy of this improvement takes its place; CVaR 0.9 of the edge cost"
    )
    assert acting_speed(gate) == pytest.approx(0.2) and work.cleared


def test_a_policy_on_the_way_is_handed_over_before_the_safest_one() -> None:
    gate, _ = gate_of(0.0)
    policy, work = going(UNSAFE), on_the_way(0.1, 0.3, UNSAFE, last=True)
    (notice,) = gate.hand_over(policy, work, imagine, 0)
    assert notice.text == "an earlier policy of the last improvement is handed over; it looks better"
    assert speed_of(policy) == pytest.approx(0.1)


def test_eight_waypoints_are_kept_but_none_of_a_copy_or_of_policies_before_a_fresh_start() -> None:
    work = on_the_way(*(number / 100 for number in range(1, 33)))
    assert speeds_of(*work.way) == [pytest.approx(4 * number / 100) for number in range(1, 9)]
    work.begin_exploring({}, 4)
    work.control += 4
    work.keep(going(0.5), 1)
    assert len(work.way) == 8
    work.end_exploring()
    work.starts = 1
    work.start_beside(8)
    assert not work.way


def test_where_nothing_is_safe_enough_that_is_said() -> None:
    gate, _ = gate_of(0.9)
    work = Improvement(planned=8, controls=8, control=8, rounds=ROUNDS)
    (notice,) = gate.before_trial(going(UNSAFE), work, imagine, 0, 1)
    assert notice.text.startswith("trial 1: no known policy looks safe enough; CVaR") and work.cleared
    assert acting_speed(gate) == pytest.approx(UNSAFE)  # it is the less unsafe of the two
    assert gate.verdict is not None and not gate.verdict.passes


def test_without_a_shield_every_policy_acts() -> None:
    gate, _ = gate_of(0.0, shielded=False)
    work = Improvement(planned=8, controls=8, control=8)
    assert gate.before_trial(going(UNSAFE), work, imagine, 0, 1) == [] and work.cleared and gate.actor is None


def test_without_a_limit_a_policy_that_did_well_goes_on_where_its_successor_looks_worse() -> None:
    gate = Gate((), Multipliers(MultiplierSettings(), ()), cast("Feasibility", Known()), 1000, shielded=True)
    policy = going(0.4)
    assert gate.before_trial(policy, Improvement(), imagine, 0, 1) == []
    gate.note(policy, imagine, 0, trial_of(0.4))
    better, worse = going(0.45), going(0.2)
    work = Improvement()
    assert gate.before_trial(better, work, imagine, 0, 2) == [] and work.cleared and acting_speed(gate) == 0.45
    work = Improvement()
    (notice,) = gate.before_trial(worse, work, imagine, 0, 2)
    assert notice.text == "trial 2: the policy of trial 1 goes on; its successor looks worse than it did"
    assert work.cleared and acting_speed(gate) == 0.4
    assert speed_of(worse) == 0.4  # and is improved from there


def states_of(*speeds: float) -> list[State]:
    return [Candidate.of("", going(speed)).state for speed in speeds]


def ended(*speeds: float, rounds: int = 0) -> Improvement:
    return Improvement(last=True, planned=8, controls=8, control=8, candidates=states_of(*speeds), rounds=rounds)


@pytest.mark.parametrize("shielded", [True, False])
def test_the_best_of_the_latest_policies_makes_the_trial_that_confirms_it(shielded: bool) -> None:
    gate, _ = gate_of(0.0, shielded=shielded)
    work = Improvement(finishing=True, planned=8, controls=8, control=8, candidates=states_of(SAFE, 0.15, UNSAFE))
    assert gate.before_trial(going(UNSAFE), work, imagine, 0, 3) == [] and work.cleared
    assert acting_speed(gate) == pytest.approx(0.15)


def tried(*speeds: float, real: dict[float, float] | None = None) -> Gate:
    """Return a gate after trials of policies, some of which went at another speed on the real system."""
    gate, _ = gate_of(0.0)
    for number, speed in enumerate(speeds, 1):
        gate.before_trial(going(speed), Improvement(planned=8, controls=8, control=8), imagine, 0, number)
        gate.note(going(speed), imagine, 0, trial_of((real or {}).get(speed, speed)))
    return gate


def test_a_policy_that_its_trial_confirmed_is_handed_over_as_it_is() -> None:
    policy, work = going(UNSAFE), Improvement(last=True)
    assert tried(0.05, 0.15).hand_over(policy, work, imagine, 0) == []
    assert work.cleared and speed_of(policy) == pytest.approx(0.15)


def test_a_policy_that_its_trial_refuted_gives_way_to_one_that_did_well() -> None:
    gate, policy, work = tried(0.05, 0.15, real={0.15: UNSAFE}), going(0.15), Improvement(last=True, usual=8)
    (notice,) = gate.hand_over(policy, work, imagine, 0)
    assert notice.text == "the policy of trial 1 is handed over; it looks better"
    assert work.cleared and speed_of(policy) == pytest.approx(0.05)


def test_a_refuted_policy_of_several_experts_gives_way_to_a_more_careful_variant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate, policy, work = tried(0.05, 0.15, real={0.15: UNSAFE}), going(0.15), Improvement(last=True, usual=8)
    # Of the variants of the policy of trial 2 one is too unsafe, and one is cheaper than the policy of trial 1.
    monkeypatch.setattr(
        GaussianPolicy, "more_careful", lambda one: states_of(UNSAFE, SAFE) if speed_of(one) == 0.15 else []
    )
    (notice,) = gate.hand_over(policy, work, imagine, 0)
    assert notice.text == "the policy of trial 2, with more weight on the limits, is handed over; it looks better"
    assert work.cleared and speed_of(policy) == pytest.approx(SAFE)


def test_where_every_trial_went_badly_the_policy_is_improved_further() -> None:
    gate, policy, work = tried(0.15, real={0.15: UNSAFE}), going(0.15), Improvement(last=True, usual=8)
    assert gate.hand_over(policy, work, imagine, 0) == [] and not work.cleared and work.controls == 2
    work = Improvement(last=True, usual=8, rounds=ROUNDS)
    (notice,) = gate.hand_over(policy, work, imagine, 0)
    assert notice.text.startswith("the safest known policy is handed over") and speed_of(policy) == 0


def test_the_cheapest_safe_one_of_the_last_policies_is_handed_over() -> None:
    gate, _ = gate_of(0.0)
    policy, work = going(UNSAFE), ended(0.1, 0.2, UNSAFE)
    assert gate.hand_over(policy, work, imagine, 0) == [] and work.cleared and speed_of(policy) == pytest.approx(0.2)


def test_unsafe_last_policies_are_improved_further_before_an_earlier_one_is_handed_over() -> None:
    gate, multipliers = gate_of(0.0)
    policy = going(UNSAFE)
    gate.before_trial(going(SAFE), Improvement(planned=8, controls=8, control=8), imagine, 0, 2)
    gate.note(policy, imagine, 0, trial_of(SAFE))
    work = ended(UNSAFE, 0.5)
    assert gate.hand_over(policy, work, imagine, 0) == [] and not work.cleared and work.controls == 10
    assert multipliers.each[0].caution < 1 and speed_of(policy) == pytest.approx(UNSAFE)
    work = ended(UNSAFE, 0.5, rounds=ROUNDS)
    (notice,) = gate.hand_over(policy, work, imagine, 0)
    # The tried policy is cheaper than the safest, which stands still.
    assert notice.text == "the policy of trial 2 is handed over; it looks better" and speed_of(policy) == 0.1


def test_a_limit_that_nothing_keeps_is_announced() -> None:
    gate, _ = gate_of(0.9)
    policy = going(UNSAFE)
    (notice,) = gate.hand_over(policy, ended(UNSAFE, rounds=ROUNDS), imagine, 0)
    assert notice.text.startswith("the limit is not kept: CVaR 0.9 of the edge cost of a trajectory is bounded by")
    assert gate.verdict is not None and not gate.verdict.passes


def test_without_a_shield_the_best_of_the_last_policies_is_handed_over_and_a_missed_limit_is_announced() -> None:
    gate, _ = gate_of(0.0, shielded=False)
    policy, work = going(UNSAFE), ended(0.35, UNSAFE)
    (notice,) = gate.hand_over(policy, work, imagine, 0)
    assert work.cleared and speed_of(policy) == pytest.approx(0.35) and "the limit is not kept" in notice.text


def test_a_gate_is_restored_from_its_state() -> None:
    gate, _ = gate_of(0.0)
    gate.before_trial(going(SAFE), Improvement(planned=8, controls=8, control=8), imagine, 0, 2)
    other, _ = gate_of(0.0)
    other.load_state_dict(gate.state_dict())
    assert other.verdict == gate.verdict and acting_speed(other) == acting_speed(gate)
    gate.note(going(0.0), imagine, 0, trial_of(SAFE))
    other.load_state_dict(gate.state_dict())
    assert other.actor is None and [one.name for one in other.shield.tried] == ["the policy of trial 2"]


def improved(count: int, *, last: bool = True) -> Improvement:
    """Eight control iterations, after which the speeds are 1 to 8."""
    work = Improvement(last=last, planned=8, controls=8)
    for speed in range(1, 9):
        work.control += 1
        work.keep(going(float(speed)), count)
    return work


def speeds_of(*states: dict[str, Tensor]) -> list[float]:
    policy, speeds = going(0.0), []
    for state in states:
        policy.load_state_dict(state)
        speeds.append(float(last_layer(policy).bias.detach()))
    return speeds


def test_the_last_policies_are_kept_two_control_iterations_apart() -> None:
    assert speeds_of(*improved(3).candidates) == [4, 6, 8]
    assert not improved(3, last=False).candidates and not improved(3, last=False).average


def test_the_last_policies_are_averaged_where_there_is_a_choice() -> None:
    expected = 1.0
    for speed in range(2, 9):
        expected = MEMORY * expected + (1 - MEMORY) * speed
    assert speeds_of(improved(3).average) == [pytest.approx(expected)]
    assert not improved(1).average and speeds_of(*improved(1).candidates) == [8]


def test_the_average_is_handed_over_where_it_is_the_cheapest_safe_one() -> None:
    gate, _ = gate_of(0.0)
    policy, work = going(UNSAFE), ended(0.1, UNSAFE)
    work.average = Candidate.of("", going(0.2)).state
    assert gate.hand_over(policy, work, imagine, 0) == [] and speed_of(policy) == pytest.approx(0.2)


def costs_of(*means: float, noise: float = 0.1) -> list[float]:
    """Return ten costs around each mean, that much above and below it in turn."""
    return [mean + noise * (-1) ** step for mean in means for step in range(10)]


@pytest.mark.parametrize(
    ("costs", "further", "goes_on"),
    [
        (costs_of(5.0, 4.0), 0, True),
        (costs_of(5.0, 5.0), 0, False),
        (costs_of(4.0, 5.0), 0, False),
        # A mean of ten costs, each 0.1 from it, has a standard error of 1/30: the difference may be noise up to 0.094.
        (costs_of(5.0, 4.9), 0, True),
        (costs_of(5.0, 4.91), 0, False),
        (costs_of(9.0, 5.0, 5.0), 0, False),
        (costs_of(5.0, 4.0)[1:], 0, False),
        (costs_of(5.0, 4.0), 70, True),
        (costs_of(5.0, 4.0), 71, False),
    ],
)
def test_improvement_goes_on_while_the_cost_falls_by_more_than_its_noise(
    costs: list[float], further: int, goes_on: bool
) -> None:
    work = Improvement(planned=40, controls=40, control=40, finishing=True, costs=costs, further=further)
    work.candidates.append({})
    assert work.go_on(3.0) is goes_on
    assert (work.controls, work.further) == ((50, further + 10) if goes_on else (40, further))
    assert bool(work.candidates) is not goes_on  # policies that have been surpassed


def test_without_further_control_iterations_only_those_planned_are_made() -> None:
    assert not Improvement(planned=40, controls=40, control=40, costs=costs_of(5.0, 4.0)).go_on(1.0)


def test_a_policy_is_stranded_where_all_trajectories_cost_the_same() -> None:
    traces = by_hand([[1.0, 2.0], [2.0, 1.0], [0.0, 3.0]])
    assert is_stranded(traces, step_cost=1.0)
    assert not is_stranded(replace(traces, cost=traces.cost + double([[0.0, 0.1], [0.0, 0.0], [0.0, 0.0]])), 1.0)


def test_the_threshold_is_a_share_of_a_typical_trajectorys_cost() -> None:
    """Returns ±d have the standard deviation d; the horizon is 2."""
    for factor, stranded in ((0.99, True), (1.01, False)):
        d = factor * STRANDED * 5.0 * 2
        assert is_stranded(by_hand([[1.0, 1.0 + d], [1.0, 1.0 - d]]), step_cost=5.0) is stranded


def explored(*information: float) -> Improvement:
    """Return the work of a copy whose trajectories had this information in its control iterations."""
    work = Improvement(planned=8, controls=8, control=8)
    work.begin_exploring({}, 2)
    work.information += information
    return work


@pytest.mark.parametrize(
    ("information", "made"),
    [
        ((2.0, 2.0, 2.0, 2.0, 2.0, 2.0), 2),  # at a third of six: nothing gained
        ((2.0, 2.2, 2.3, 2.3, 2.3, 2.3), 4),  # 0.2 of 1/6, 0.3 of 1/4; but 0.3 of 1/3
        ((2.0, 2.2, 2.3, 2.4, 2.5, 3.0), 6),
        ((2.0, 2.1, 9.0, 9.0, 9.0, 9.0), 2),
    ],
)
def test_a_copy_that_will_hardly_gain_what_it_must_is_given_up(information: tuple[float, ...], made: int) -> None:
    work = Improvement(planned=8, controls=8, control=8)
    work.begin_exploring({}, 6)
    for each in information:
        if work.control < work.controls:
            work.control += 1
            work.note_information(each, 1.0)
    assert work.information == list(information[:made]) and work.control == work.controls


@pytest.mark.parametrize(
    ("speed", "information", "acts"),
    [
        (SAFE, (2.0, 2.5, 3.5), True),
        (SAFE, (2.0, 5.0, 2.9), False),  # what the copy is expected to gain in the end is not worth it
        (UNSAFE, (2.0, 9.0), False),
    ],
)
def test_a_copy_makes_the_trial_where_that_is_safe_and_worth_it(
    speed: float, information: tuple[float, ...], acts: bool
) -> None:
    gate, multipliers = gate_of(0.0)
    gate.before_trial(going(0.05), Improvement(planned=8, controls=8, control=8), imagine, 0, 3)
    notices = gate.let_explore(going(speed), explored(*information), imagine, 0, 3, 1.0)
    assert acting_speed(gate) == pytest.approx(speed if acts else 0.05)
    assert gate.verdict is not None and gate.verdict.passes and multipliers.each[0].caution == 1
    texts = [notice.text for notice in notices]
    assert texts == (["trial 3: a copy of the policy that seeks information makes it; ζ of a trajectory is 3.5 instead "
                      "of 2"] if acts else [])  # fmt: skip


def test_without_a_shield_a_copy_need_not_look_safe() -> None:
    gate, _ = gate_of(0.0, shielded=False)
    gate.let_explore(going(UNSAFE), explored(1.0, 3.0), imagine, 0, 3, 1.0)
    assert acting_speed(gate) == pytest.approx(UNSAFE) and gate.verdict is None


def test_the_next_improvement_goes_on_from_the_policy_itself() -> None:
    work = Improvement(planned=8, controls=10, control=10, cost_alone=True, cleared=True)
    work.begin_exploring({"policy": 1}, 3)
    assert (work.controls, work.cleared, work.cost_alone) == (13, False, False)
    assert work.end_exploring() == {"policy": 1} and work.base is None and work.cleared
