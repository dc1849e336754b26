"""The learners without a model compared with stable-baselines3's PPO and sb3-contrib's TRPO, ignoring safety.

`speed` compares steps per second, learning included, of both PPOs on the same system. Networks (two hidden layers of 32
tanh units each for policy and critic), epochs and minibatches are equal, so every step is used in the same number of
gradient steps. Each has the rollout that suits it: ours the many parallel episodes of the paper preset, theirs 2,000
steps of 8 environments in a DummyVecEnv. Steps per second do not depend on the number of samples once both are warm, so
theirs are fewer; for the same reason `return_sb3` only shows that it learns, not how well it would do with as many
samples. We time all of our `train`, but only their `learn`. Contestants take turns in the same process, after a short
turn to warm up; numbers are medians over the turns, and each turn has its own seed.

`learning` compares the returns of the final policies over seeds. Samples, networks, the size of a rollout (1,980 or
2,000 steps), minibatches, epochs, γ, GAE's λ, the initial noise, the clipping of the gradient's norm, PPO's clipping
and the policy's initial learning rate are equal, and so are TRPO's divergence, damping, conjugate gradients, line
search and the critic's learning rate. What only one of them has differs. Ours: the policy's learning rate follows the
divergence, the noise has a floor, the mean is squashed, the critic has its own learning rate and sees the time, and
nothing follows the last step of an episode. Theirs: one learning rate for policy and critic (PPO), and the critic's
value of the last state where an episode is truncated. Ours normalises observations and the critic's targets, so theirs
uses VecNormalize for observations and rewards unless told otherwise. Each learner and seed has its own process with one
thread. Interquartile means come with 95 % bootstrap intervals.

Both are evaluated alike on our system, with the policy's noise, and in `learning` also without. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import statistics
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from sb3_peers import ENVS, STEPS, LearnerName, Outcome, run_ours, run_theirs, settings_of

from samba_rl import IDS
from samba_rl.tasks import make_task
from samba_rl.tasks.task import Task

FIRST_SEED = 100

Side = Literal["ours", "sb3"]
Results: TypeAlias = "dict[str, Any]"


# Speed ----------------------------------------------------------------------------------------------------------------


def speed(task: Task, samples: int, peer_samples: int, turns: int, *, normalise: bool) -> Results:
    settings = replace(settings_of(task.name, "ppo", "paper"), real_samples=samples)
    theirs = replace(settings, real_samples=peer_samples)

    def ours_in(turn: int) -> Outcome:
        return run_ours("ppo", task, settings, turn)

    def theirs_in(turn: int) -> Outcome:
        return run_theirs("ppo", task, theirs, turn, normalise=normalise)

    rollout = settings.episodes * task.horizon
    run_ours("ppo", task, replace(settings, real_samples=min(samples, settings.first.samples + rollout)), 0)
    run_theirs("ppo", task, replace(theirs, real_samples=ENVS * STEPS), 0, normalise=normalise)
    pairs = []
    for turn in range(turns):
        # Alternate the order.
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
    settings = replace(settings_of(job.task, job.name), real_samples=job.samples)
    if job.side == "ours":
        return run_ours(job.name, task, settings, job.seed)
    return run_theirs(job.name, task, settings, job.seed, normalise=job.normalise)


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
    """Return the mean without the lowest and the highest quarter, rounded down to whole values."""
    cut = len(values) // 4
    return statistics.fmean(sorted(values)[cut : len(values) - cut])


def interval(values: Sequence[float], draws: int = 5000) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the interquartile mean."""
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


def learning(
    task: Task, samples: int, seeds: int, jobs: int, names: Sequence[LearnerName], *, normalise: bool
) -> Results:
    # Set before the processes start: PyTorch counts the cores when it is imported.
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
    parser.add_argument("--samples", type=int, help="real samples (default: 1,000,000 for speed, 100,000 for learning)")
    parser.add_argument(
        "--peer-samples", type=int, default=30_000, help="speed: their real samples (default: %(default)s)"
    )
    parser.add_argument("--turns", type=int, default=3, help="speed: number of measurements (default: %(default)s)")
    parser.add_argument("--threads", type=int, help="speed: threads of both contestants (default: PyTorch's choice)")
    parser.add_argument(
        "--seeds", type=int, default=5, help="learning: number of seeds, from 100 (default: %(default)s)"
    )
    parser.add_argument("--jobs", type=int, default=2, help="learning: processes at a time (default: %(default)s)")
    parser.add_argument(
        "--learners", nargs="+", choices=("ppo", "trpo"), default=["ppo", "trpo"], help="learning: learners"
    )
    parser.add_argument(
        "--normalise", action=argparse.BooleanOptionalAction, help="their VecNormalize (default: in learning only)"
    )
    options = parser.parse_args()
    task = make_task(options.task)
    if options.mode == "speed":
        if options.threads:
            torch.set_num_threads(options.threads)
        normalise = bool(options.normalise)
        result = speed(task, options.samples or 1_000_000, options.peer_samples, options.turns, normalise=normalise)
    else:
        normalise = options.normalise is not False
        samples = options.samples or 100_000
        result = learning(task, samples, options.seeds, options.jobs, options.learners, normalise=normalise)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
