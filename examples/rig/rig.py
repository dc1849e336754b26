"""A simulated rig as a program of its own: a policy file goes in, a CSV file with what was measured comes out.

A cart of 1 kg on a spring of 2 N/m is pushed with up to 4 N. Commands act one step late, give or take 0.1 N; position
and velocity are measured with noise. Beyond 1.2 m stands a wall: the emergency stop ends the episode there, and the
program with exit code 3. It knows nothing of samba_rl, and needs nothing but Python.

Usage:
    python rig.py next.policy trial.csv      # run the policy in the file for an episode
    python rig.py --pilot SEED pilot.csv     # run the rig's old controller, which is slow and safe
    python rig.py --program ./loop trial.csv # run a program that reads states and prints forces, line by line
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

STEPS, DT, WALL = 25, 0.1, 1.2
STOPPED = 3

Controller = Callable[[int, Sequence[float]], float]
"""Function from the step and the measured state to the force [N]."""


def network(layers: Sequence[dict[str, Any]], h: list[float]) -> list[float]:
    """Return what layers with a tanh after each but the last give."""
    for number, layer in enumerate(layers):
        rows = zip(layer["weight"], layer["bias"], strict=True)
        h = [sum(w * v for w, v in zip(row, h, strict=True)) + b for row, b in rows]
        if number < len(layers) - 1:
            h = [math.tanh(v) for v in h]
    return h


def controller(policy: dict[str, Any], noise: random.Random) -> Controller:
    """Return the controller that a policy file describes, for one episode."""
    if policy["format"] == "samba-rl actions":
        return lambda step, _state: float(policy["sequence"][step][0])
    seen, action = policy["observation"], policy["action"]
    (low,), (high,), (std,) = action["low"], action["high"], policy["std"]
    columns: list[float] = []

    def act(step: int, state: Sequence[float]) -> float:
        h = [(o - c) / s for o, c, s in zip(state, seen["centre"], seen["scale"], strict=True)]
        if "gate" in policy and step == 0:  # several experts: one of them acts in all of the episode
            logits = network(policy["gate"], h)
            (chosen,) = noise.choices(range(len(logits)), [math.exp(one - max(logits)) for one in logits])
            columns[:] = [float(k == chosen) for k in range(len(logits))]
        (mean,) = network(policy["layers"], h + columns)
        mean = mean if action["squash"] is None else action["squash"] * math.tanh(mean / action["squash"])
        force = (low + high) / 2 + (high - low) / 2 * (mean + std * noise.gauss(0.0, 1.0))
        return min(max(force, low), high)

    return act


def pilot(noise: random.Random) -> Controller:
    """Return the old controller: it pushes gently, and now and then harder or softer."""
    offset = [0.0]

    def act(step: int, state: Sequence[float]) -> float:
        if step % 4 == 0:
            offset[0] = noise.uniform(-1.5, 1.0)
        return min(max(1.5 + offset[0] - 1.5 * state[1] - 1.0 * (state[0] - 0.7), -4.0), 4.0)

    return act


def program(process: subprocess.Popen[str]) -> Controller:
    """Return the controller that a running program is: it reads a state in a line and prints the force in another."""

    def act(_step: int, state: Sequence[float]) -> float:
        assert process.stdin is not None and process.stdout is not None
        print(*state, file=process.stdin, flush=True)
        answer = process.stdout.readline()
        if not answer:
            raise SystemExit(f"the program ended with exit code {process.wait()}: stop")
        return float(answer)

    return act


def run(act: Controller, world: random.Random, log: Callable[[Sequence[object]], object]) -> bool:
    """Run an episode and log a row at each step; return whether the emergency stop ended it."""
    position, velocity, before = world.gauss(0.0, 0.05), 0.0, 0.0
    for step in range(STEPS + 1):
        measured = (position + world.gauss(0.0, 0.005), velocity + world.gauss(0.0, 0.02), before)
        stop = position > WALL
        if step == STEPS or stop:
            log([round(step * DT, 3), *measured, ""])
            return stop
        force = act(step, measured)
        log([round(step * DT, 3), *measured, force])
        velocity += DT * (before + world.gauss(0.0, 0.1) - 2.0 * position)
        position += DT * velocity
        before = force
    raise AssertionError


def main(policy_file: str, trial_file: str, *rest: str) -> int:
    """Run one episode; return the exit code."""
    if policy_file == "--pilot":
        seed, act = f"pilot {trial_file}", pilot(random.Random(trial_file))
        (trial_file,) = rest
    elif policy_file == "--program":
        (command, trial_file), seed = (trial_file, *rest), "program"
        act = program(subprocess.Popen([command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    else:
        text = Path(policy_file).read_text(encoding="utf-8")
        # The same file leads to the same episode, so that what you see here can be repeated.
        policy, seed = json.loads(text), hashlib.sha256(text.encode()).hexdigest()
        act = controller(policy, random.Random(policy["provenance"]["seed"]))
    with open(trial_file, "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["time", "position", "velocity", "before", "force"])
        stopped = run(act, random.Random(seed), rows.writerow)
    if stopped:
        print(f"emergency stop: the cart passed {WALL} m", file=sys.stderr)
    return STOPPED if stopped else 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
