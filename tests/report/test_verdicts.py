"""Verdicts on runs: has it learned, is the limit kept, what comes next."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from samba_rl.benchmark.cells import CellResult
from samba_rl.benchmark.collect import Found
from samba_rl.report.verdicts import verdicts
from samba_rl.runs.certify import Certificate, CertifiedLimit
from samba_rl.runs.evaluation import StandardErrors
from samba_rl.runs.limits import Breach, beside, standing
from samba_rl.runs.listing import Overview
from tests.report.results import PENDULUM, result

WORDS = "CVaR 0.9 of the hazard"


def with_error(one: CellResult, error: float, constraint: float = 0.5) -> CellResult:
    """A result whose constraint has this value and this standard error."""
    errors = StandardErrors(1, 1, 1, 1, (1, 1, 1), 1, 1, (error,))
    limits = tuple(replace(each, value=constraint) for each in one.with_noise.constraints)
    return replace(one, with_noise=replace(one.with_noise, errors=errors, constraints=limits))


def found(one: CellResult, folder: str = "runs/a", **more: object) -> Found:
    cell = one.cell
    seen = Overview(folder, "finished", task=cell.task, learner=cell.learner)
    plain = Found(Path(folder).name, "finished", cell.task, cell.learner, cell.seed, cell.preset, result=one,
                  folder=Path(folder), seen=seen)  # fmt: skip
    return replace(plain, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("value", "head"), [(-100.0, "Learned"), (-168.5, "Perhaps learned"), (-190.0, "Not learned")])
def test_a_policy_has_learned_if_it_is_better_than_the_first_trial_beyond_the_noise(value: float, head: str) -> None:
    # The first trial had a return of -170; the standard error is 1, so the interval is ± 1.96.
    (verdict,) = verdicts([found(with_error(result("samba", 0, value=value), 0.1))])
    assert verdict.sentences[0].head == head
    assert f"Return {value:.3g} ± 2; its first trial had -170" in verdict.sentences[0].words
    if head == "Not learned":
        assert verdict.command == "samba-rl resume runs/a --real-samples 120" and verdict.mood == "bad"


@pytest.mark.parametrize(
    ("measured", "head", "command"),
    [
        (0.5, "Limit kept", "samba-rl certify runs/a"),
        (0.8, "Limit unclear", "samba-rl eval runs/a --steps 3000"),
        (2.0, "Limit broken", "samba-rl advise runs/a"),
    ],
)
def test_a_limit_is_judged_with_its_interval(measured: float, head: str, command: str) -> None:
    one = found(with_error(result("samba", 0), 0.1, measured), bounds=(0.61,))
    (verdict,) = verdicts([one])
    assert verdict.sentences[1].head == head and verdict.command == command
    assert verdict.sentences[1].words == f"{WORDS} {measured:g} ± 0.2, limit 0.75; at most 0.61 on the model."


def test_a_breach_on_the_model_and_a_certificate_count() -> None:
    one = found(with_error(result("samba", 0), 0.1))
    (verdict,) = verdicts([replace(one, breaches=(Breach(f"{WORDS} is bounded by 3 on the model"),))])
    assert verdict.sentences[1].head == "Limit broken" and verdict.mood == "bad"
    (verdict,) = verdicts([replace(one, breaches=(Breach(f"{WORDS} is bounded by 3", expected=True),))])
    assert verdict.sentences[1].head == "Limit cannot be met" and verdict.command == "samba-rl advise runs/a"

    def certificate(bound: float, limit: float = 0.75) -> Certificate:
        limits = (CertifiedLimit(WORDS, limit, 0.5, bound, 900, 300),)
        return Certificate(limits, 0.95, "betting", 100, 1.0, 0, False)

    (verdict,) = verdicts([replace(one, certificate=certificate(0.7))])
    assert verdict.sentences[1].head == "Limit certified" and "0.7 with 95 % confidence" in verdict.sentences[1].words
    assert verdict.command == "samba-rl export runs/a policy.onnx"
    (verdict,) = verdicts([replace(one, certificate=certificate(0.8))])
    assert verdict.sentences[1].head == "Limit kept" and verdict.command == "samba-rl certify runs/a --episodes 900"


def test_seeds_share_a_verdict_and_titles_differ() -> None:
    seeds = [found(with_error(result("samba", seed), 0.1, 0.5 + 0.5 * seed), f"runs/{seed}") for seed in (0, 1)]
    limited = result("samba", 0)
    limited = replace(limited, cell=replace(limited.cell, limit=0.25))
    changed = found(result("samba", 7), "runs/c", settings={"episodes": 2}, changed=("episodes",))
    same = [found(result("ppo", 0), folder, settings={"a": i}) for i, folder in enumerate(("runs/x", "runs/y"))]
    all_of = verdicts([*seeds, found(limited, "runs/l"), changed, *same])
    assert [(each.title, each.which) for each in all_of] == [
        ("SAMBA on Safe Pendulum, ξ 0.75", "2 seeds: 0, 1"),
        ("SAMBA on Safe Pendulum, ξ 0.25", "seed 0"),
        ("SAMBA on Safe Pendulum, ξ 0.75, episodes 2", "seed 7"),
        ("PPO on Safe Pendulum, in x", "seed 0"),
        ("PPO on Safe Pendulum, in y", "seed 0"),
    ]
    assert all_of[0].sentences[1].head == "Limit kept by 1 of 2" and all_of[0].mood == "bad"
    assert all_of[0].command == "samba-rl advise runs/1"
    assert all_of[0].short == "SAMBA, ξ 0.75" and all_of[3].sentences[1].head == "No limit"


@pytest.mark.parametrize(
    ("state", "command"),
    [
        ("interrupted", "samba-rl resume runs/a --task 'my rig.py:task'"),
        ("running", "samba-rl watch runs/a"),
        ("waiting", "samba-rl status runs/a"),
        ("damaged", "samba-rl verify runs/a"),
    ],
)
def test_an_unfinished_run_says_how_far_it_is_and_how_it_goes_on(state: str, command: str) -> None:
    seen = Overview("runs/a", state, named="my rig.py:task", real_samples=60, budget=600, return_mean=-12.0)  # type: ignore[arg-type]
    one = Found("a", state, "rig", "samba", 3, "default", "broken checksum", folder=Path("runs/a"), seen=seen)  # type: ignore[arg-type]
    (verdict,) = verdicts([one])
    assert (verdict.which, verdict.command) == ("seed 3, 60 of 600 real samples", command)
    (sentence,) = verdict.sentences
    assert sentence.head == state.capitalize()
    assert sentence.words == ("broken checksum" if state == "damaged" else "The last trial had a return of -12.")


def test_the_result_of_a_benchmark_names_the_command_that_makes_its_run() -> None:
    one = result("sppo", 4)
    (verdict,) = verdicts([replace(found(one), folder=None)])
    assert verdict.command == f"samba-rl train {PENDULUM} --learner sppo --seed 4"
    (verdict,) = verdicts([replace(found(replace(one, cell=replace(one.cell, budget_scale=0.5))), folder=None)])
    assert verdict.command == ""


def test_a_value_has_enough_digits_to_be_on_its_side_of_the_limit() -> None:
    assert beside(0.75001, 0.75) == "0.75001" and beside(0.7499, 0.75) == "0.75" and beside(0.75, 0.75) == "0.75"
    assert beside(1.23456, 0.75) == "1.23" and beside(0.1 + 0.2, 0.3) == "0.30000000000000004"
    assert [standing(value, 0.75, half) for value, half in ((0.75, 0.1), (0.8, 0.1), (0.9, 0.1), (0.8, None))] == [
        "kept", "unclear", "broken", "broken",
    ]  # fmt: skip
