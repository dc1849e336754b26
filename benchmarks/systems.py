"""Speed of the systems: our natively batched Safe Pendulum compared with Gymnasium's own vector environment.

Both take turns in the same process on the same actions, and the ratio is the median over the turns, so that other load
on the machine affects both alike. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import gymnasium
import numpy as np

import samba_rl  # registers the environments


def steps_per_second(env: Any, actions: list[Any], seconds: float) -> float:
    """Step the environment for about that many seconds and return the rate."""
    steps, begin = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < seconds:
        env.step(actions[steps % len(actions)])
        steps += 1
    return float(steps * env.num_envs / elapsed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=int, default=1000, help="environments in a batch (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=9, help="number of measurements (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=0.7, help="length of a measurement (default: %(default)s)")
    parser.add_argument("--fetch-envs", type=int, default=32, help="Fetch robots, 0 for none (default: %(default)s)")
    options = parser.parse_args()
    contestants = {
        "SafePendulum-v0 native": gymnasium.make_vec("SafePendulum-v0", num_envs=options.envs),
        "Pendulum-v1 Gymnasium": gymnasium.make_vec("Pendulum-v1", num_envs=options.envs),
        "SafeCartPoleDoublePendulum-v0 native": gymnasium.make_vec(
            "SafeCartPoleDoublePendulum-v0", num_envs=options.envs
        ),
    }
    if options.fetch_envs:
        contestants["SafeFetchReach-v0 processes"] = gymnasium.make_vec(
            "SafeFetchReach-v0", num_envs=options.fetch_envs
        )
    actions: dict[str, list[np.ndarray[Any, Any]]] = {}
    for name, env in contestants.items():
        env.reset(seed=0)
        env.action_space.seed(0)
        actions[name] = [env.action_space.sample() for _ in range(20)]
        steps_per_second(env, actions[name], 0.2)  # warm up
    turns = [
        {name: steps_per_second(env, actions[name], options.seconds) for name, env in contestants.items()}
        for _ in range(options.turns)
    ]
    for env in contestants.values():
        env.close()
    rates = {name: statistics.median(turn[name] for turn in turns) for name in contestants}
    ratio = statistics.median(turn["SafePendulum-v0 native"] / turn["Pendulum-v1 Gymnasium"] for turn in turns)
    print(f"samba_rl {samba_rl.__version__}, {options.envs} environments, median of {options.turns} turns")
    for name, rate in rates.items():
        print(f"{name:40s} {rate:12,.0f} steps/s")
    print(f"{'native over Gymnasium, Pendulum':40s} {ratio:12.1f} times")
    print(json.dumps({"ratio_native_pendulum": ratio, "steps_per_s": rates}))


if __name__ == "__main__":
    main()
