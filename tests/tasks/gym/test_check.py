"""`check_env` finds each fault and explains what to do."""

from typing import Any

import pytest

from samba_rl.tasks.gym.check import Finding, check_env
from tests.tasks import own_envs
from tests.tasks.own_envs import Drift


def problems(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.subject, finding.text) for finding in findings if finding.level == "problem"]


def test_a_good_environment_has_no_problems() -> None:
    findings = check_env("OwnDrift-v0")
    assert problems(findings) == []
    subjects = [finding.subject for finding in findings if finding.level == "fine"]
    assert subjects == ["actions", "observations", "horizon", "reset", "step", "cost", "safety", "repeatable"]


@pytest.mark.parametrize(
    "env_id", ["SafePendulum-v0", "SafeCartPoleDoublePendulum-v0", "SafeFetchReach-v0", "OwnSix-v0"]
)
def test_ours_and_six_tuple_environments_pass(env_id: str) -> None:
    assert problems(check_env(env_id)) == []


@pytest.mark.parametrize(
    ("fault", "subject", "words"),
    [
        ("discrete", "actions", "not continuous"),
        ("unbounded", "actions", "no finite bounds"),
        ("text observation", "observations", "cannot be flattened"),
        ("no cost", "safety", "--safety module:function"),
        ("some cost", "safety", "is missing in"),
        ("nan cost", "safety", "NaN or infinite in"),
        ("negative cost", "safety", "goes down to -1"),
        ("text cost", "safety", "it must be a number"),
        ("nan", "step", "observation with NaN or infinity"),
        ("nan start", "reset", "observation with NaN or infinity"),
        ("nan reward", "reward", "it must be one finite number"),
        ("shape", "step", "observation of shape [3]; its space says [2]"),
        ("four", "step", "step returned 4 values"),
        ("raises", "step", "step raised RuntimeError: motor fault"),
        ("reset raises", "reset", "raised RuntimeError: no power"),
        ("bare reset", "reset", "it must return (observation, info)"),
        ("unseeded", "reset", "draw every random number from self.np_random"),
    ],
)
def test_each_fault_is_explained(fault: str, subject: str, words: str) -> None:
    found = problems(check_env(lambda: Drift(fault), horizon=20))
    assert len(found) == 1, found
    assert found[0][0] == subject and words in found[0][1]


@pytest.mark.parametrize(
    ("fault", "subject", "words"),
    [
        ("noisy", "repeatable", "different states"),
        ("large cost", "safety", "exceeds 1"),
        ("safe", "safety", "was never positive; learners on a model know of no"),
    ],
)
def test_what_is_unusual_but_usable_is_noted(fault: str, subject: str, words: str) -> None:
    findings = check_env(lambda: Drift(fault), horizon=20)
    assert problems(findings) == []
    notes = [(finding.subject, finding.text) for finding in findings if finding.level == "note"]
    assert words in dict(notes)[subject]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("not_batched", "does not work on batches"),
        ("first_row_only", "returned shape [2] for a batch"),
        ("with_numpy", "returned a ndarray"),
        ("raising", "raised IndexError"),
        ("writing", "changed the states"),
        ("undefined", "NaN or infinite"),
    ],
)
@pytest.mark.parametrize("what", ["safety", "cost"])
def test_faults_of_functions_are_explained(what: str, function: str, words: str) -> None:
    functions: Any = {"safety": own_envs.danger, what: getattr(own_envs, function)}
    found = problems(check_env("OwnPlain-v0", **functions))
    assert len(found) == 1, found
    assert found[0][0] == what and words in found[0][1]


def test_unknown_ids_missing_packages_and_time_limits() -> None:
    assert "did you mean 'SafePendulum-v0'" in problems(check_env("SafePendulun-v0"))[0][1]
    assert "cannot be made" in problems(check_env("OwnMissing-v0"))[0][1]
    assert problems(check_env("OwnEndless-v0"))[0][0] == "horizon"
    assert problems(check_env("OwnEndless-v0", horizon=9)) == []
    assert problems(check_env("OwnEndless-v0", horizon=0))[0][1].startswith("horizon = 0")
