"""Speed of learning a policy: the loop by phase, and the proximal update compared with stable-baselines3's PPO.

Both make the same passes over the same 30,000 steps with Safe Pendulum's shapes and networks of the same size (one
policy, one critic). The times include whatever else each does per call: ours computes the densities before and the
report after, theirs flattens and shuffles the buffer and records values for its log. Contestants take turns, and the
ratios are medians over the turns. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import gpu
import torch
from torch import Generator, Tensor, nn

from samba_rl.agents.first import FirstSettings, first_policy
from samba_rl.improve.advantages import Critics
from samba_rl.improve.policies import GaussianPolicy, PolicySettings
from samba_rl.improve.updates.batch import Batch
from samba_rl.improve.updates.proximal import ProximalSettings, ProximalUpdate
from samba_rl.presets import make_agent
from samba_rl.tasks import make_task
from samba_rl.tasks.rollout import RealSource

ENVS, STEPS = 1000, 30
SAMPLES = ENVS * STEPS
OBSERVATIONS, ACTIONS = 3, 1
HIDDEN = (32, 32)


class Contestant(NamedTuple):
    """A call to time, and a preparation before each call that is not timed."""

    prepare: Callable[[], None]
    call: Callable[[], object]


def milliseconds(contestant: Contestant) -> float:
    contestant.prepare()
    begin = time.perf_counter()
    contestant.call()
    return 1e3 * (time.perf_counter() - begin)


def turns(contestants: dict[str, Contestant], count: int) -> list[dict[str, float]]:
    """Time each contestant once per turn, after one turn to warm up."""
    return [{name: milliseconds(each) for name, each in contestants.items()} for _ in range(count + 1)][1:]


def random_batch(seed: int = 0) -> Batch:
    """Return steps as an update sees them: observations, actions near the centre, advantages and returns."""
    generator = Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    inputs, raw = normal(SAMPLES, OBSERVATIONS), 0.5 * normal(SAMPLES, ACTIONS)
    return Batch(
        inputs=inputs,
        raw=raw,
        objective=normal(SAMPLES),
        tails=torch.zeros(0, SAMPLES),
        critic_inputs=inputs[None],
        targets=normal(1, SAMPLES),
    )


def our_update(batch: Batch, epochs: int, minibatch: int) -> Contestant:
    generator = Generator().manual_seed(0)
    settings = PolicySettings(hidden=HIDDEN)
    centre, scale = torch.zeros(OBSERVATIONS), torch.ones(OBSERVATIONS)
    policy = GaussianPolicy((-1.0,) * ACTIONS, (1.0,) * ACTIONS, centre, scale, settings, generator)
    critics = Critics(1, OBSERVATIONS, HIDDEN, generator)
    # Neither contestant stops early.
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
        """Fill the buffer as `collect_rollouts` does, with the densities and values of the present policy."""
        buffer.reset()
        with torch.no_grad():
            values, log_density, _ = learner.policy.evaluate_actions(batch.inputs, batch.raw)
        buffer.observations[:], buffer.actions[:] = by_step(batch.inputs), by_step(batch.raw)
        buffer.values[:], buffer.log_probs[:] = by_step(values.flatten()), by_step(log_density)
        # Their advantages are of rewards, ours of costs.
        buffer.advantages[:], buffer.returns[:] = by_step(-batch.objective), by_step(batch.targets[0])
        buffer.pos, buffer.full = STEPS, True

    return Contestant(fill, learner.train)


def updates(count: int, epochs: int) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Return ratios of the time of an epoch, and the times [ms], for one gradient step per epoch and for ten."""
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
    """Return the seconds by phase of one turn of SAMBA's loop on Safe Pendulum, with about `points` real transitions.

    A turn fits the model, improves the policy as the default preset does between two trials, and makes one trial.
    """
    task = make_task("safe-pendulum")
    agent = make_agent(task, seed=0)
    generator, episodes = Generator().manual_seed(0), points // task.horizon
    random = first_policy(task, FirstSettings(how="uniform"), episodes, generator)
    source = RealSource(task.world())
    agent.tell(source(random, episodes, generator))
    agent.tell(source(agent.ask(), 1, generator))
    return {phase: round(seconds, 3) for phase, seconds in agent.clock.by_phase().items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=15, help="number of measurements (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=10, help="passes per call (default: %(default)s)")
    parser.add_argument("--device", default="cpu", help="cpu, or cuda for a GPU's rows alone (default: %(default)s)")
    parser.add_argument("--rows", nargs="+", help="with cuda: just these (default: all)")
    parser.add_argument("--workers", type=int, default=4, help="with cuda: runs at once (default: %(default)s)")
    parser.add_argument("--threads", type=int, help="threads of both contestants (default: PyTorch's choice)")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.device != "cpu":
        gpu.main(options.device, options.rows, options.workers)
        return
    result: dict[str, object] = {}
    ratios, table = updates(options.turns, options.epochs)
    result |= ratios
    by_phase = {f"n={points}": phases(points) for points in (300, 1600)}
    result["phases"] = by_phase
    print(f"{torch.get_num_threads()} threads, {options.epochs} epochs per call, median of {options.turns} turns")
    for name, row in table.items():
        print(f"{name:40s} " + ", ".join(f"{key} {value}" for key, value in row.items()))
    for name, value in ratios.items():
        print(f"{name:40s} {value:.3g}")
    for name, row in by_phase.items():
        print(f"{'one turn of the loop [s], ' + name:40s} " + ", ".join(f"{key} {value}" for key, value in row.items()))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
