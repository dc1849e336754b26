"""What users' functions may return."""

from typing import Any

import pytest
import torch

from samba_rl import GymTask, UserError, train
from samba_rl.tasks.gym.functions import checked
from tests.tasks.own_envs import danger

B = 4


@pytest.mark.parametrize(
    ("value", "truth", "message"),
    [
        (3.0, False, "returned a float; write it with torch operations"),
        (torch.zeros(1), False, r"returned shape \[1\] for a batch of 4; expected \[4, 1\]"),
        (torch.zeros(B, dtype=torch.bool), False, "returned truth values instead of floating-point numbers"),
        (torch.zeros(B, dtype=torch.int64), False, r"returned torch\.int64 instead of floating-point"),
        (torch.zeros(B), True, r"returned torch\.float32; return truth values"),
    ],
)
def test_results_that_do_not_fit(value: object, message: str, *, truth: bool) -> None:
    with pytest.raises(UserError, match=f"the function {message}"):
        checked("the function", value, (B, 1), torch.float64, truth=truth)


def test_results_that_fit_get_the_type_and_the_shape() -> None:
    value = checked("f", torch.full((B,), 0.5), (B, 1), torch.float64, truth=False)
    assert value.dtype == torch.float64 and value.tolist() == [[0.5]] * B
    assert checked("f", torch.ones(B, 2, dtype=torch.bool), (B, 2), torch.float64, truth=True).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"safety": lambda x, u: x[..., 0] > 1}, "the safety function returned truth values"),
        ({"cost": lambda x, u: x}, r"the cost function returned shape \[5, 2\]"),
        (
            {"cost": lambda x, u: x[..., 0] / 0},
            r"the cost function returned -?inf for the state \[.*\], and NaN or inf",
        ),
        ({"violation": lambda x, u: x[..., 0]}, r"the violation function returned torch\.float64; return truth values"),
        ({"done": lambda x: x[..., 5] > 1}, "the done function raised IndexError on a batch of 5"),
    ],
)
def test_a_run_does_not_begin_with_a_function_that_does_not_fit(changes: Any, message: str) -> None:
    functions = {"cost": lambda x, u: x[..., 0].square(), "safety": danger, **changes}
    with pytest.raises(UserError, match=message):
        train(GymTask("OwnDrift-v0", **functions), preset="smoke")


def test_a_learner_on_real_trials_needs_no_functions_but_those_given_must_fit() -> None:
    with pytest.raises(UserError, match="the safety function returned truth values"):
        train(GymTask("OwnDrift-v0", safety=lambda x, u: x[..., 0] > 1), "ppo", preset="smoke")


def test_single_precision_is_as_good_as_double() -> None:
    task = GymTask("OwnDrift-v0", cost=lambda x, u: x[..., 0].float().square(), safety=danger)
    assert task.cost(torch.ones(3, 2, dtype=torch.float64), torch.zeros(3, 1)).dtype == torch.float64
