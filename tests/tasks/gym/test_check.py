"""`check_env` finds each fault and explains what to do."""

from typing import Any

import numpy as np
import pytest

from samba_rl import GymTask, SafePendulum, Task
from samba_rl.tasks.gym.check import Finding, check_env, check_task
from samba_rl.tasks.gym.check_costs import _ranks
from tests.line import Line
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


def findings_of(level: str, **functions: Any) -> dict[str, str]:
    found = check_env("OwnDrift-v0", **{"safety": own_envs.danger, **functions})
    return {finding.subject: finding.text for finding in found if finding.level == level}


def test_a_cost_is_compared_with_the_reward() -> None:
    # The reward is -|x|, so these costs agree with it, oppose it, do so now and then, and have nothing to do with it.
    assert findings_of("problem", cost=lambda x, u: x[..., 0].square()) == {}
    assert "rank correlation -1.00" in findings_of("problem", cost=lambda x, u: -x[..., 0].square())["cost"]
    mixed = findings_of("note", cost=lambda x, u: 5 * u[..., 0].abs() - x[..., 0].abs())
    assert "often falls where the negative reward rises" in mixed["cost"]
    assert "cost" not in {**findings_of("note", cost=lambda x, u: 0 * x[..., 0] + 1)}


def test_equal_values_share_their_mean_rank() -> None:
    assert _ranks(np.array([3.0, 1.0, 3.0, 2.0])).tolist() == [3.5, 1.0, 3.5, 2.0]


def test_a_safety_cost_that_is_never_positive_is_noted() -> None:
    notes = findings_of("note", safety=lambda x, u: 0 * x[..., 0])
    assert "is never positive in" in notes["safety"]


def test_who_can_learn_from_measured_costs_is_said() -> None:
    assert "the cost and the safety cost are measured" in findings_of("note", safety=None)["learners"]
    assert "give cost= as functions" in findings_of("note")["learners"]
    assert "learners" not in findings_of("note", cost=lambda x, u: x[..., 0].abs())


def test_a_task_is_checked_with_all_its_functions() -> None:
    task = GymTask(
        "OwnDrift-v0", safety=own_envs.danger, cost=lambda x, u: x[..., 0].abs(), violation=lambda x, u: x[..., 0],
        done=lambda x: x[..., 9] > 0, states=["place [m]", "push"],
    )  # fmt: skip
    findings = check_task(task)
    found = dict(problems(findings))
    assert "violation function returned torch.float64" in found["violation"]
    assert "done function raised IndexError" in found["done"]
    texts = {finding.subject: finding.text for finding in findings}
    assert texts["observations"] == "2: place [m], push"


@pytest.mark.parametrize("task", [SafePendulum(), Line()], ids=lambda task: task.name)
def test_a_task_that_is_no_environment_is_checked(task: Task) -> None:
    findings = check_task(task)
    assert problems(findings) == []
    assert [f.subject for f in findings if f.level == "fine"] == ["actions", "observations", "step", "safety", "cost"]
