"""Advice in numbers and words, from policies judged by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from samba_rl.agents.advice import Advice, Judged, Support, rounded_up

SUPPORT = Support(300, 300, 10, ("angle", "speed"), (0.99, 0.9), 1.0, 0.95)


def judged(name: str, mean: float, bound: float, *, far: float = 0.0, tails: tuple[float, ...] = ()) -> Judged:
    return Judged(name, mean, 1.0, 0.8 * bound, 0.1, bound, far, tails)


POINTS = (
    judged("free", -100, 8, tails=(10, 9, 8, 4)),
    judged("safest", -200, 1, tails=(9.5, 6, 2, 1)),
    judged("middle", -105, 3, tails=(9.6, 8, 3, 2)),
    judged("beaten", -150, 4, tails=(9.6, 8, 3, 2)),
)


def advice(
    *points: Judged, alpha: float | None = 0.9, support: Support = SUPPORT, asked: tuple[float, ...] = ()
) -> Advice:
    return Advice("rig", "CVaR 0.9 of the hazard cost", alpha, points or POINTS, 0.8, support, asked)


def test_the_frontier_has_what_nothing_beats_in_both() -> None:
    assert [one.name for one in advice().frontier] == ["safest", "middle", "free"]
    assert [one.name for one in advice(*POINTS, judged("better", -90, 2)).frontier] == ["safest", "better"]


@pytest.mark.parametrize(
    ("limit", "name"), [(0.99, ""), (1, "safest"), (2.9, "safest"), (3, "middle"), (7.9, "middle"), (50, "free")]
)
def test_a_limit_gives_the_best_policy_that_passes_it(limit: float, name: str) -> None:
    answer = advice().at(limit)
    assert answer.name == name and answer.feasible == bool(name)
    assert math.isnan(answer.mean_return) == (not name)


def test_the_proposed_limit_keeps_nine_tenths_of_the_return() -> None:
    # Between -200 and -100 nine tenths are at -110: "middle" with -105 is the smallest that keeps them.
    assert advice().proposed.name == "middle" and advice().proposed_limit == 3
    assert advice(*POINTS[:2], judged("middle", -115, 3.14)).proposed_limit == 8
    assert advice(judged("only", -50, 0.0)).proposed_limit == 0


def test_a_policy_that_loses_in_both_still_shows_what_a_return_is_worth() -> None:
    # The spread is from -300 to -100, so that -120 keeps nine tenths.
    assert advice(*POINTS[::2], judged("still", -300, 9), judged("low", -120, 2)).proposed_limit == 2


def test_the_level_stays_unless_the_tail_is_luck() -> None:
    assert advice().proposed_alpha == 0.9  # the values are 0.8 to 6.4
    assert advice(alpha=None).proposed_alpha is None
    # Of the values a fifth can be avoided; of the tails 5 % at 0.95, 33 % at 0.9, 75 % at 0.75.
    luck = [replace(one, value=4 + 0.25 * i) for i, one in enumerate(POINTS)]
    assert advice(*luck).proposed_alpha == 0.75
    alike = [replace(one, tails=(9, 8, 7, 6 + i)) for i, one in enumerate(luck)]
    assert advice(*alike).proposed_alpha == 0.5  # the greatest share, though below a half
    assert advice(*(replace(one, value=0.0, tails=(0, 0, 0, 0)) for one in POINTS)).proposed_alpha == 0.9


def test_the_words_say_what_is_proposed_and_what_is_infeasible() -> None:
    said = " ".join(advice(asked=(0.5, 4.0)).sentences())
    assert "Propose ξ = 3: it allows a return of -105 ± 1, of -100 without a limit; the safest policy" in said
    assert "A limit below 1 looks infeasible" in said and "One above 8 changes nothing" in said
    assert "Keep α = 0.9: policies can avoid 88 % of the mean of the worst 10 %. In 100 real episodes" in said
    assert "ξ = 0.5: infeasible on this model" in said and "ξ = 4: a return of -105 ± 1 can be had" in said
    assert "guess" not in said and "overconfident" not in said
    luck = [replace(one, value=4.0) for one in POINTS]
    assert "Propose α = 0.75 instead of 0.9, and ask again" in " ".join(advice(*luck).sentences())
    assert "the best return is also the safest" in advice(judged("only", -50, 0.3, tails=(1, 1, 1, 1))).sentences()[0]
    assert not any("α" in sentence for sentence in advice(alpha=None).sentences())
    harmless = replace(judged("only", -50, 0.0, tails=(0, 0, 0, 0)), value=0.0)
    assert "Every limit can be met" in " ".join(advice(harmless).sentences())


def test_the_words_warn_where_data_or_model_do_not_support_it() -> None:
    far = tuple(replace(one, far=0.5) for one in POINTS)
    poor = replace(SUPPORT, available=9000, explained=(0.99, -0.2), z=2.1, coverage95=0.6)
    said = " ".join(advice(*far, support=poor).sentences())
    assert "50 % of the steps behind the proposal lie farther" in said and "a guess more than a prediction" in said
    assert "little of the changes of speed (0 %)" in said and "angle" not in said
    assert "overconfident: left-out data lie 2.1 standard deviations" in said and "60 % of them" in said
    assert "300 transitions (of 9,000) of 10 episodes" in said
    assert not advice(*far).supported and advice().supported


@pytest.mark.parametrize(
    ("value", "rounded"), [(3.0, 3.0), (3.01, 3.1), (0.1234, 0.13), (99.1, 100), (0.0, 0.0), (1234, 1300), (7.5, 7.5)]
)
def test_limits_are_rounded_up_to_two_digits(value: float, rounded: float) -> None:
    assert rounded_up(value) == rounded
