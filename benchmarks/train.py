"""How fast a policy is learned: the loop by phase, and the proximal update beside stable-baselines3's PPO.

Both make the same passes over the same 30,000 steps of Safe Pendulum's shapes with networks of the same size (one
policy, one critic), and the times include whatever else each does per call: ours the densities before and the report
after, theirs the flattening and shuffling of the buffer and the records for the log. Contestants run in turns and the
ratios are medians over the turns. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn

from samba_rl.agents.policy_gradient import Agent
from samba_rl.improve.advantages import Critics
from samba_rl.improve.policies import GaussianPolicy, PolicySettings, UniformPolicy
from samba_rl.improve.updates.batch import Batch
from samba_rl.improve.updates.proximal import ProximalSettings, ProximalUpdate
from samba_rl.learners import make_settings
from samba_rl.tasks import make_task
from samba_rl.tasks.rollout import RealSource

ENVS, STEPS = 1000, 30
SAMPLES = ENVS * STEPS
OBSERVATIONS, ACTIONS = 3, 1
HIDDEN = (32, 32)


class Contestant(NamedTuple):
    """What is timed, and what must happen first, every time, without being timed."""

    prepare: Callable[[], None]
    call: Callable[[], object]


def milliseconds(contestant: Contestant) -> float:
    contestant.prepare()
    begin = time.perf_counter()
    contestant.call()
    return 1e3 * (time.perf_counter() - begin)


def turns(contestants: dict[str, Contestant], count: int) -> list[dict[str, float]]:
    """Time each contestant once a turn, after one turn to warm up."""
    return [{name: milliseconds(each) for name, each in contestants.items()} for _ in range(count + 1)][1:]


def random_batch(seed: int = 0) -> Batch:
    """Steps as an update meets them: observations, actions near the centre, advantages and returns."""
    generator = Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    inputs, raw = normal(SAMPLES, OBSERVATIONS), 0.5 * normal(SAMPLES, ACTIONS)
    return Batch(inputs, raw, normal(SAMPLES), inputs[None], normal(1, SAMPLES))


def our_update(batch: Batch, epochs: int, minibatch: int) -> Contestant:
    generator = Generator().manual_seed(0)
    settings = PolicySettings(hidden=HIDDEN)
    centre, scale = torch.zeros(OBSERVATIONS), torch.ones(OBSERVATIONS)
    policy = GaussianPolicy((-1.0,) * ACTIONS, (1.0,) * ACTIONS, centre, scale, settings, generator)
    critics = Critics(1, OBSERVATIONS, HIDDEN, generator)
    # Neither stops early: all passes are made.
    update = ProximalUpdate(policy, critics, ProximalSettings(epochs=epochs, minibatch=minibatch, kl_stop=float("inf")))
    return Contestant(lambda: None, lambda: update(batch, generator))


def their_update(batch: Batch, epochs: int, minibatch: int) -> Contestant:
    from stable_baselines3 import PPO
    from stable_baselines3.common.buffers import RolloutBuffer
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.logger import Logger

    learner = PPO(
        "MlpPolicy",
        make_vec_env("Pendulum-v1", n_envs=ENVS, seed=0),
        n_steps=STEPS,
        batch_size=minibatch,
        n_epochs=epochs,
        policy_kwargs={"net_arch": {"pi": list(HIDDEN), "vf": list(HIDDEN)}, "activation_fn": nn.Tanh},
        device="cpu",
        seed=0,
    )
    learner.set_logger(Logger(folder=None, output_formats=[]))
    buffer: Any = learner.rollout_buffer
    assert isinstance(buffer, RolloutBuffer)

    def by_step(rows: Tensor) -> Any:
        return rows.reshape(STEPS, ENVS, *rows.shape[1:]).numpy()

    def fill() -> None:
        """As its `collect_rollouts` leaves the buffer: with the densities and the values of the present policy."""
        buffer.reset()
        with torch.no_grad():
            values, log_density, _ = learner.policy.evaluate_actions(batch.inputs, batch.raw)
        buffer.observations[:], buffer.actions[:] = by_step(batch.inputs), by_step(batch.raw)
        buffer.values[:], buffer.log_probs[:] = by_step(values.flatten()), by_step(log_density)
        # Its advantages are of rewards, ours of costs.
        buffer.advantages[:], buffer.returns[:] = by_step(-batch.advantage), by_step(batch.targets[0])
        buffer.pos, buffer.full = STEPS, True

    return Contestant(fill, learner.train)


def updates(count: int, epochs: int) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Ratios of the time of an epoch, and the times themselves [ms], for one gradient an epoch and for ten."""
    ratios: dict[str, float] = {}
    table: dict[str, dict[str, float]] = {}
    batch = random_batch()
    for key, minibatch in (("update_ratio_vs_sb3", SAMPLES), ("update_ratio_vs_sb3_minibatch_3000", SAMPLES // 10)):
        contestants = {
            "ours": our_update(batch, epochs, minibatch),
            "stable-baselines3": their_update(batch, epochs, minibatch),
        }
        rows = turns(contestants, count)
        ratios[key] = statistics.median(row["stable-baselines3"] / row["ours"] for row in rows)
        table[f"epoch, minibatch {minibatch} [ms]"] = {
            name: round(statistics.median(row[name] for row in rows) / epochs, 2) for name in contestants
        }
    return ratios, table


def phases(points: int) -> dict[str, float]:
    """Seconds by phase of one turn of SAMBA's loop on Safe Pendulum, with about so many real transitions.

    A turn fits the model, improves the policy as often as the default preset does between two trials, and makes one.
    """
    task = make_task("safe-pendulum")
    agent = Agent(task, make_settings(task.name), seed=0)
    generator = Generator().manual_seed(0)
    random = UniformPolicy(tuple(a.low for a in task.actions), tuple(a.high for a in task.actions))
    source = RealSource(task.world())
    agent.tell(source(random, points // task.horizon, generator))
    agent.tell(source(agent.ask(), 1, generator))
    return {phase: round(seconds, 3) for phase, seconds in agent.clock.by_phase().items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=15, help="how often each is measured (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=10, help="passes in one call (default: %(default)s)")
    parser.add_argument("--threads", type=int, help="of both contestants (default: PyTorch's own)")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    result: dict[str, object] = {}
    ratios, table = updates(options.turns, options.epochs)
    result |= ratios
    by_phase = {f"n={points}": phases(points) for points in (300, 1600)}
    result["phases"] = by_phase
    print(f"{torch.get_num_threads()} threads, {options.epochs} epochs a call, median of {options.turns} turns")
    for name, row in table.items():
        print(f"{name:40s} " + ", ".join(f"{key} {value}" for key, value in row.items()))
    for name, value in ratios.items():
        print(f"{name:40s} {value:.3g}")
    for name, row in by_phase.items():
        print(f"{'one turn of the loop [s], ' + name:40s} " + ", ".join(f"{key} {value}" for key, value in row.items()))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
