"""Episodes of a policy that knows nothing end where they get dangerous."""

from __future__ import annotations

import torch

from samba_rl.improve.policies import OpenLoopPolicy
from samba_rl.runs.trials import Trials
from samba_rl.tasks.faults.stopping import StoppingWorld
from samba_rl.tasks.rollout import rollout
from tests.line import Line
from tests.traces import seeded


def forward(n: int) -> OpenLoopPolicy:
    """Full speed ahead, from the left of zero into the hazard."""
    return OpenLoopPolicy(torch.ones(n, 10, 1, dtype=torch.float64))


def test_an_episode_ends_with_the_step_that_exceeds_the_bound() -> None:
    task = Line()
    free = rollout(task.world(), forward(5), 5, generator=seeded(0))
    world = StoppingWorld(task.world(), 0.25)
    traces = rollout(world, forward(5), 5, generator=seeded(0))
    over = free.safety[..., 0] > 0.25
    due = over.int().argmax(1) + 1  # every episode exceeds it, one step after the other
    assert traces.active.sum(1).tolist() == due.tolist()
    assert sorted((stop.episode, stop.step) for stop in world.stops) == list(enumerate(due.tolist()))
    assert all(stop.stopped and "above first.stop = 0.25" in stop.text for stop in world.stops)
    assert not traces.terminated.any()


def test_only_the_first_trial_is_stopped() -> None:
    trials, generator = Trials(Line().world(), first_stop=0.25), seeded(0)
    steps = []
    for _ in range(2):
        loop = trials(forward(3), 3, generator)
        try:
            while True:
                next(loop)
        except StopIteration as ended:
            trial = ended.value
        steps.append((trial.traces.steps, len(trial.faults), trial.failures))
    assert steps[0][0] < 30 and steps[0][1:] == (3, []) and steps[1] == (30, 0, [])
