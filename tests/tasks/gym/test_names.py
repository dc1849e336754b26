"""Names and units of observations and actions."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces.utils import flatten

from samba_rl import GymTask, UserError
from samba_rl.tasks.gym.names import default_names
from tests.tasks.own_envs import Drift, Goal


def box(*shape: int) -> spaces.Space[Any]:
    return spaces.Box(-1.0, 1.0, shape)


@pytest.mark.parametrize(
    ("space", "names"),
    [
        (box(2), ["observation 0", "observation 1"]),
        (spaces.Dict({"goal": box(2), "angle": box(1)}), ["angle", "goal 0", "goal 1"]),
        (spaces.Dict({"a": spaces.Dict({"b": box(1), "c": box(1, 2)})}), ["a.b", "a.c 0", "a.c 1"]),
        (spaces.Tuple((box(1), spaces.Discrete(2))), ["0", "1 0", "1 1"]),
        # Two ways to the same name: numbers are clearer.
        (spaces.Dict({"a": box(2), "a 0": box(1)}), ["observation 0", "observation 1", "observation 2"]),
    ],
)
def test_default_names(space: spaces.Space[Any], names: list[str]) -> None:
    assert default_names(space, "observation") == names


def test_default_names_are_in_the_order_of_the_flattened_numbers() -> None:
    space = spaces.Dict({"zero": box(2), "angle": box(1)})
    flat = flatten(space, {"zero": np.array([0.1, 0.2], np.float32), "angle": np.array([0.9], np.float32)})
    named = dict(zip(default_names(space, "observation"), np.asarray(flat).tolist(), strict=True))
    assert named == pytest.approx({"angle": 0.9, "zero 0": 0.1, "zero 1": 0.2})


def test_a_dicts_numbers_are_called_by_its_keys() -> None:
    assert [state.name for state in GymTask(Goal, horizon=4).states] == ["at 0", "at 1", "goal 0", "goal 1"]


def test_names_and_units_are_taken_over() -> None:
    task = GymTask(Drift, horizon=4, name="rail", states=["place [m]", "push"], actions={"force": "N"})
    assert task.name == task.title == "rail"
    assert [(state.name, state.unit) for state in task.states] == [("place", "m"), ("push", "")]
    assert task.observations == task.states
    assert task.actions[0].describe() == "force ±0.5 [N]"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"states": ["one"]}, r"states has 1 names for 2 numbers; name, in this order: observation 0, observation 1"),
        ({"states": ["a", "a"]}, "states has the name 'a', empty or twice"),
        ({"states": ["a", " "]}, "states has the name ' ', empty or twice"),
        ({"actions": "force"}, "actions = 'force'; give a list of names"),
        ({"actions": [3]}, r"actions = \[3\]; give a list of names"),
        ({"name": ""}, "a GymTask is called ''"),
        ({"name": "safe-pendulum"}, "no name of the paper's systems"),
    ],
)
def test_names_that_do_not_fit(changes: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        GymTask(Drift, horizon=4, **changes)
