"""How well a model and its exploration signals do over a fixed, wide set of states."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from samba_rl.agents.first import FirstSettings, first_policy
from samba_rl.models.gp import GPDynamics
from samba_rl.models.normalise import inputs_and_targets
from samba_rl.models.world import along
from samba_rl.models.zeta import Zeta
from samba_rl.tasks.rollout import rollout
from samba_rl.tasks.task import Task
from samba_rl.types import Traces

EPISODES = 60
"""Episodes of the wide set, with random actions that are held for a while."""
SEED = 424_242


def wide_set(task: Task) -> Traces:
    """Return real episodes under random actions that are held for 3, 6 and 12 steps; the same ones at every call."""
    return held_episodes(task, (3, 6, 12), EPISODES, SEED)


def held_episodes(task: Task, holds: tuple[int, ...], episodes: int, seed: int) -> Traces:
    """Return real episodes under random actions, a part of them with actions held for each number of steps."""
    generator = Generator().manual_seed(seed)
    parts, world = [], task.world()
    try:
        for hold in holds:
            settings = FirstSettings(how="held", hold=hold)
            policy = first_policy(task, settings, episodes // len(holds), generator)
            parts.append(rollout(world, policy, episodes // len(holds), generator=generator))
    finally:
        world.close()
    return Traces.joined(parts)


def squared_errors(model: GPDynamics, traces: Traces) -> Tensor:
    """Return the squared errors of the model's predictions [N], summed over outputs in their own variances."""
    inputs, targets = inputs_and_targets(model.task, traces.transitions(), torch.device("cpu"))
    predicted = model.predict(inputs.to(model.noise.device)).mean.to(targets)
    return ((predicted - targets) / targets.std(0)).square().sum(1)


def wide_error(model: GPDynamics) -> float:
    """Return the root mean square error on the wide set, in standard deviations of the changes of state there."""
    outputs = len(model.noise)
    return float((squared_errors(model, wide_set(model.task)).mean() / outputs).sqrt())


def rank_correlation(zeta: Zeta, model: GPDynamics, traces: Traces) -> float:
    """Return Spearman's correlation of ζ with the model's squared error over the steps of trajectories."""
    from scipy.stats import spearmanr

    signal = along(zeta, model, traces)[traces.active]
    return float(spearmanr(signal.numpy(), squared_errors(model, traces).numpy()).statistic)
