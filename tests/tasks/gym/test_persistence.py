"""State that environments keep across resets."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator

from samba_rl import GymTask, UserError, rollout
from samba_rl.tasks.faults.guard import GuardedWorld
from samba_rl.tasks.simulation import SimulatedWorld
from tests.tasks.own_envs import Drift


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


class Worn(Drift):
    """Wears with every reset, which shows in its states; `extra` is added to its state_dict()."""

    def __init__(self, extra: Any = None) -> None:
        super().__init__()
        self.wear = 0
        self.track = np.zeros((2, 2), dtype=np.int32)
        self.extra = extra

    def reset(self, **options: Any) -> Any:
        observation, info = super().reset(**options)
        self.wear += 1
        self.track[1, 0] -= self.wear
        return np.array([observation[0], self.wear * 1000 + self.track[1, 0]]), info

    def state_dict(self) -> Any:
        own = {"wear": self.wear, "track/rail": self.track, "sharp": np.float32(0.5), "on": True}
        return {**own, **self.extra} if isinstance(self.extra, dict) else self.extra or own

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert type(state["wear"]) is int and state["sharp"] == 0.5 and state["on"] is True
        self.wear, self.track = state["wear"], state["track/rail"]


@pytest.mark.parametrize("workers", [0, 2])
def test_state_kept_across_resets_can_be_restored(workers: int) -> None:
    task = GymTask(Worn, horizon=5)
    first, second = task.world(workers), task.world(workers)
    assert isinstance(first, SimulatedWorld) and isinstance(second, SimulatedWorld)
    source = seeded()
    for _ in range(3):
        first.reset(3, source)
    state = first.state_dict()
    assert int(state["episodes"]) == 3 and len(state) == 1 + 3 * 4
    assert int(state["2/wear"]) == 3 and state["0/track/rail"].tolist() == [[0, 0], [-6, 0]]
    second.load_state_dict(state)
    then = source.get_state()
    expected = first.reset(3, source)
    # The state taken before is a copy.
    assert state["0/track/rail"].tolist() == [[0, 0], [-6, 0]]
    source.set_state(then)
    assert torch.equal(second.reset(3, source), expected) and bool((expected[:, 1] == 4000 - 10).all())
    first.close()
    second.close()


def test_a_rig_keeps_its_state_across_resets_and_failures() -> None:
    rig = Worn()
    world = GuardedWorld(GymTask(rig, horizon=5).world())
    world.reset(1, seeded())
    rig.fault = "raises"
    rollout(world, lambda o, g: torch.zeros(1, 1), 1, generator=seeded())
    assert world.faults[0].text == "Worn: step 0 failed: RuntimeError: motor fault"
    state = world.state_dict()
    assert int(state["0/wear"]) == 2
    after = GuardedWorld(GymTask(Worn(), horizon=5).world(), timeout=5.0)
    after.load_state_dict(state)
    rig.fault = ""
    assert torch.equal(after.reset(1, seeded()), world.reset(1, seeded()))
    after.close()


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"note": "worn"}, r"<Worn instance>.*: state_dict\(\) has 'note': 'worn'; names must be strings, and values"),
        ({"parts": [[1.0], [1.0, 2.0]]}, r"has 'parts': \[\[1.0\], \[1.0, 2.0\]\]"),
        ({"thing": None}, "has 'thing': None"),
        ({"seed": 2**64}, "has 'seed': 18446744073709551616"),
        ({"seed": 2**63}, "has 'seed': 9223372036854775808"),
        ({3: 1.0}, "has 3: 1.0; names must be strings"),
        ([1.0], r"state_dict\(\) returned a list; return a dict of numbers and arrays"),
    ],
)
def test_a_state_that_is_not_numbers_is_refused(extra: Any, message: str) -> None:
    world = GuardedWorld(GymTask(lambda: Worn(extra), horizon=5).world(workers=0))
    world.reset(1, seeded())
    with pytest.raises(UserError, match=message):
        world.state_dict()


def test_an_environment_without_state_accepts_none() -> None:
    world = GuardedWorld(GymTask("OwnDrift-v0").world(workers=0))
    world.reset(2, seeded())
    assert world.state_dict() == {}
    with pytest.raises(UserError, match=r"Drift.*: has no state_dict\(\) and load_state_dict\(\), but .*\['wear'\]"):
        world.load_state_dict({"episodes": torch.tensor(1), "0/wear": torch.tensor(1)})
