"""The learners without a model beside stable-baselines3's PPO and sb3-contrib's TRPO, safety ignored.

`speed` compares steps per second, learning included, of both PPOs on the same system. Networks (two hidden layers of 32
tanh units, for the policy and for the critic), epochs and minibatches are equal, so that every step goes through as
many gradients. The rollout is what suits each: ours are the many episodes at once of the paper preset, theirs 2,000
steps of 8 environments in a DummyVecEnv. Steps per second do not depend on the number of samples once both are warm, so
theirs are fewer; for the same reason `return_sb3` says only that it learns, not how well it does with as many samples.
Ours is the time of all of `train`, theirs of `learn` alone. Contestants run in turns in the same process, after a short
turn to warm up; numbers are medians over the turns, and the seed is the turn's.

`learning` compares the returns of the final policies over seeds. Equal are samples, networks, the size of a rollout
(1,980 or 2,000 steps), minibatches, epochs, γ, λ of GAE, the noise at first, the limit of the gradient's norm, PPO's
clip and the policy's first rate, and TRPO's divergence, damping, conjugate gradients, line search and the critic's
rate. Not equal are what only one of them has. Ours: the policy's rate follows the divergence, the noise has a floor,
the mean is squashed, the critic has its own rate and sees the time, and after the last step of an episode nothing
follows. Theirs: one rate for policy and critic (PPO), and the critic's value of the last state where an episode ends by
time, for which they see Gymnasium's truncation. Ours normalises observations and what the critic predicts, so they have
their VecNormalize for observations and rewards unless told otherwise. Each learner and seed has its own process with
one thread. Interquartile means come with 95 % bootstrap intervals.

Both are evaluated alike: on our system, with the policy's noise, and in `learning` also without. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import random
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import gymnasium
import torch
from torch import Generator, Tensor, nn

from samba_rl import IDS
from samba_rl.learners import Settings, make_settings
from samba_rl.runs.evaluation import evaluate
from samba_rl.runs.run import train
from samba_rl.tasks import make_task
from samba_rl.tasks.task import Task

ENVS, STEPS = 8, 250
"""Their environments, and the steps of each in a rollout."""
FIRST_SEED = 100

LearnerName = Literal["ppo", "trpo"]
Side = Literal["ours", "sb3"]
Results: TypeAlias = "dict[str, Any]"


# Theirs ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TheirPolicy:
    """Their Gaussian policy as one of ours: observations [B, no] -> actions [B, nu]."""

    policy: Any
    normaliser: Any
    """Their VecNormalize, if there is one."""
    deterministic: bool = False

    @torch.no_grad()
    def __call__(self, observation: Tensor, generator: Generator) -> Tensor:
        seen = observation.numpy()
        if self.normaliser is not None:
            seen = self.normaliser.normalize_obs(seen)
        normal = self.policy.get_distribution(torch.as_tensor(seen).float()).distribution
        action: Tensor = normal.mean
        if not self.deterministic:
            # Their own sampling would draw from PyTorch's global generator.
            action = action + normal.stddev * torch.randn(action.shape, generator=generator)
        return action.to(observation.dtype)


def their_learner(name: LearnerName, task: Task, settings: Settings, seed: int, normalise: bool) -> Any:
    """PPO or TRPO with the numbers of our settings."""
    from sb3_contrib import TRPO
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    env_id = next(env_id for env_id, name in IDS.items() if name == task.name)
    env: Any = make_vec_env(env_id, n_envs=ENVS, seed=seed, vec_env_cls=DummyVecEnv)
    assert all(env.env_is_wrapped(gymnasium.wrappers.TimeLimit)), "an episode's end by time must be a truncation"
    advantage, update, region = settings.advantage, settings.update, settings.trust_region
    if normalise:
        env = VecNormalize(env, gamma=advantage.gamma)
    # Theirs works in the units of the actions, and starts with the same noise for all of them.
    half_widths = [math.log((action.high - action.low) / 2) for action in task.actions]
    common: dict[str, Any] = {
        "n_steps": STEPS,
        "batch_size": update.minibatch,
        "gamma": advantage.gamma,
        "gae_lambda": advantage.lam,
        "policy_kwargs": {
            "net_arch": {"pi": list(settings.policy.hidden), "vf": list(advantage.hidden)},
            "activation_fn": nn.Tanh,
            "log_std_init": math.log(settings.policy.std) + statistics.mean(half_widths),
        },
        "seed": seed,
        "device": "cpu",
    }
    if name == "ppo":
        return PPO(
            "MlpPolicy",
            env,
            learning_rate=update.policy_rate,
            n_epochs=update.epochs,
            clip_range=update.clip,
            ent_coef=update.entropy,
            max_grad_norm=update.max_gradient_norm,
            **common,
        )
    return TRPO(
        "MlpPolicy",
        env,
        # Of the critic: the policy has none.
        learning_rate=update.critic_rate,
        n_critic_updates=update.epochs,
        target_kl=region.kl,
        cg_damping=region.damping,
        cg_max_steps=region.cg_iterations,
        line_search_shrinking_factor=region.shrink,
        # The full step counts as one of theirs.
        line_search_max_iter=region.backtracks + 1,
        **common,
    )


def whole_rollouts(samples: int) -> int:
    """They spend whole rollouts; no more than the samples, but one at least."""
    return max(1, samples // (ENVS * STEPS)) * ENVS * STEPS


# A run of either ------------------------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """What came of learning."""

    seconds: float
    samples: int
    return_mean: float
    """Of the policy as it is,"""
    return_without_noise: float
    """and of its mean."""


def run_ours(name: LearnerName, task: Task, settings: Settings, seed: int) -> Outcome:
    begin = time.perf_counter()
    run = train(task, name, settings=settings, seed=seed)
    seconds = time.perf_counter() - begin
    noisy, still = (run.evaluate(deterministic=deterministic).return_mean for deterministic in (False, True))
    return Outcome(seconds, run.summary["real_samples"], noisy, still)


def run_theirs(name: LearnerName, task: Task, settings: Settings, seed: int, normalise: bool) -> Outcome:
    learner = their_learner(name, task, settings, seed, normalise)
    begin = time.perf_counter()
    learner.learn(whole_rollouts(settings.real_samples))
    seconds = time.perf_counter() - begin
    learner.policy.set_training_mode(False)
    noisy, still = (
        evaluate(task, TheirPolicy(learner.policy, learner.get_vec_normalize_env(), deterministic)).return_mean
        for deterministic in (False, True)
    )
    learner.env.close()
    return Outcome(seconds, learner.num_timesteps, noisy, still)


# Speed ----------------------------------------------------------------------------------------------------------------


def speed(task: Task, samples: int, peer_samples: int, turns: int, normalise: bool) -> Results:
    settings = replace(make_settings(task.name, "ppo", "paper"), real_samples=samples)
    theirs = replace(settings, real_samples=peer_samples)

    def ours_in(turn: int) -> Outcome:
        return run_ours("ppo", task, settings, turn)

    def theirs_in(turn: int) -> Outcome:
        return run_theirs("ppo", task, theirs, turn, normalise)

    rollout = settings.episodes * task.horizon
    run_ours("ppo", task, replace(settings, real_samples=min(samples, settings.first.samples + rollout)), 0)
    run_theirs("ppo", task, replace(theirs, real_samples=ENVS * STEPS), 0, normalise)
    pairs = []
    for turn in range(turns):
        # Now the one first, now the other.
        if turn % 2:
            their, our = theirs_in(turn), ours_in(turn)
        else:
            our, their = ours_in(turn), theirs_in(turn)
        pairs.append((our, their))

    def median(numbers: Sequence[float]) -> float:
        return statistics.median(numbers)

    ours_rate = [our.samples / our.seconds for our, _ in pairs]
    their_rate = [their.samples / their.seconds for _, their in pairs]
    result: Results = {
        "ratio_vs_sb3_steps_per_s": median([a / b for a, b in zip(ours_rate, their_rate, strict=True)]),
        "steps_per_s_ours": median(ours_rate),
        "steps_per_s_sb3": median(their_rate),
        "seconds_ours": median([our.seconds for our, _ in pairs]),
        "samples_ours": pairs[0][0].samples,
        "samples_sb3": pairs[0][1].samples,
        "return_ours": median([our.return_mean for our, _ in pairs]),
        "return_sb3": median([their.return_mean for _, their in pairs]),
        "normalise_sb3": normalise,
        "threads": torch.get_num_threads(),
    }
    update = settings.update
    print(f"{task.name}, {result['threads']} threads, median of {turns} turns")
    print(
        f"{update.epochs} epochs, minibatch {update.minibatch}, rollouts of {rollout} (ours) and {ENVS * STEPS} steps"
    )
    for side, title in (("ours", "ours"), ("sb3", "stable-baselines3")):
        print(
            f"{title:20s} {result[f'steps_per_s_{side}']:10,.0f} steps/s, {result[f'samples_{side}']:9,} samples, "
            f"return {result[f'return_{side}']:.1f}"
        )
    print(f"{'ours over theirs':20s} {result['ratio_vs_sb3_steps_per_s']:10.1f} times")
    return result


# Learning -------------------------------------------------------------------------------------------------------------


class Job(NamedTuple):
    """One learner with one seed."""

    name: LearnerName
    side: Side
    seed: int
    task: str
    samples: int
    normalise: bool


def run_job(job: Job) -> Outcome:
    torch.set_num_threads(1)
    task = make_task(job.task)
    settings = replace(make_settings(job.task, job.name), real_samples=job.samples)
    if job.side == "ours":
        return run_ours(job.name, task, settings, job.seed)
    return run_theirs(job.name, task, settings, job.seed, job.normalise)


def in_own_process(job: Job) -> Outcome:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        outcome = executor.submit(run_job, job).result()
    print(
        f"{job.name:5s} {job.side:5s} seed {job.seed}: return {outcome.return_mean:.1f}, without noise "
        f"{outcome.return_without_noise:.1f}, {outcome.samples} samples, {outcome.seconds:.0f} s",
        flush=True,
    )
    return outcome


def interquartile_mean(values: Sequence[float]) -> float:
    """Without the lowest and the highest quarter, rounded down to whole values."""
    cut = len(values) // 4
    return statistics.fmean(sorted(values)[cut : len(values) - cut])


def interval(values: Sequence[float], draws: int = 5000) -> tuple[float, float]:
    """The 95 % bootstrap interval of the interquartile mean."""
    generator = random.Random(0)
    means = sorted(interquartile_mean(generator.choices(values, k=len(values))) for _ in range(draws))
    return means[round(0.025 * draws)], means[round(0.975 * draws) - 1]


def compared(ours: list[float], theirs: list[float]) -> Results:
    low, high = interval(ours)
    their_low, their_high = interval(theirs)
    overlap = low <= their_high and their_low <= high
    return {
        "ours": ours,
        "sb3": theirs,
        "iqm_ours": interquartile_mean(ours),
        "iqm_sb3": interquartile_mean(theirs),
        "interval_ours": [low, high],
        "interval_sb3": [their_low, their_high],
        "verdict": "overlap" if overlap else "ours is better" if low > their_high else "sb3 is better",
        "as_good_or_better": overlap or low > their_high,
    }


def learning(task: Task, samples: int, seeds: int, jobs: int, names: Sequence[LearnerName], normalise: bool) -> Results:
    # Before the processes start, which count the cores when they import PyTorch.
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"
    sides: tuple[Side, ...] = ("ours", "sb3")
    todo = [
        Job(name, side, FIRST_SEED + seed, task.name, samples, normalise)
        for name in names
        for seed in range(seeds)
        for side in sides
    ]
    with ThreadPoolExecutor(jobs) as threads:
        outcomes = dict(zip(todo, threads.map(in_own_process, todo), strict=True))
    result: Results = {}
    for name in names:
        by_side = {side: [outcomes[job] for job in todo if (job.name, job.side) == (name, side)] for side in sides}
        result[name] = compared(*([each.return_mean for each in by_side[side]] for side in sides))
        result[name]["without_noise"] = compared(
            *([each.return_without_noise for each in by_side[side]] for side in sides)
        )
    print(f"{task.name}, {samples:,} samples, {seeds} seeds, VecNormalize {'on' if normalise else 'off'}")
    print(f"{'':20s} {'ours':>29s} {'stable-baselines3':>29s}   interquartile mean and 95 % interval")
    for name in names:
        for title, row in ((name, result[name]), (f"{name} without noise", result[name]["without_noise"])):
            cells = [
                f"{row[f'iqm_{side}']:10.1f} [{row[f'interval_{side}'][0]:.1f}, {row[f'interval_{side}'][1]:.1f}]"
                for side in sides
            ]
            print(f"{title:20s} {cells[0]:>29s} {cells[1]:>29s}   {row['verdict']}")
    return result | {"samples": samples, "seeds": seeds, "normalise_sb3": normalise}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", nargs="?", choices=("speed", "learning"), default="speed")
    parser.add_argument("--task", choices=sorted(IDS.values()), default="safe-pendulum")
    parser.add_argument("--samples", type=int, help="ours, in learning of each (default: 1,000,000 or 100,000)")
    parser.add_argument("--peer-samples", type=int, default=30_000, help="speed: theirs (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=3, help="speed: how often (default: %(default)s)")
    parser.add_argument("--threads", type=int, help="speed: of both contestants (default: PyTorch's own)")
    parser.add_argument("--seeds", type=int, default=5, help="learning: from 100 on (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="learning: processes at a time (default: %(default)s)")
    parser.add_argument("--learners", nargs="+", choices=("ppo", "trpo"), default=["ppo", "trpo"], help="learning")
    parser.add_argument(
        "--normalise", action=argparse.BooleanOptionalAction, help="their VecNormalize (default: in learning only)"
    )
    options = parser.parse_args()
    task = make_task(options.task)
    if options.mode == "speed":
        if options.threads:
            torch.set_num_threads(options.threads)
        normalise = bool(options.normalise)
        result = speed(task, options.samples or 1_000_000, options.peer_samples, options.turns, normalise)
    else:
        normalise = options.normalise is not False
        samples = options.samples or 100_000
        result = learning(task, samples, options.seeds, options.jobs, options.learners, normalise)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
