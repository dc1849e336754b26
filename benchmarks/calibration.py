"""Calibration of the GP model: the share of fresh steps inside its predictive intervals.

Real steps of a mixture of random policies (uniform, held and, on Safe Pendulum, pumping energy) are fitted with and
without conformal calibration. Steps of fresh episodes of the same kind, from other seeds, are then predicted. Coverage
is given by output and overall, with the deviation of the z-scores, the error of the mean relative to the spread of the
targets, and the factor of the predicted standard deviation. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import fields, replace
from typing import Literal, TypeAlias

import torch
from torch import Generator, Tensor

from samba_rl import SafeCartPoleDoublePendulum, SafePendulum, Task, Transitions, rollout
from samba_rl.models.calibration import LEVELS, coverage
from samba_rl.models.gp import GPDynamics, GPSettings
from samba_rl.tasks.fetch_reach import SafeFetchReach

HOLD = 5
"""Steps for which a held action stays the same."""
SYSTEMS: dict[str, Task] = {
    "pendulum": SafePendulum(),
    "double-pendulum": SafeCartPoleDoublePendulum(),
    "fetch": SafeFetchReach(),
}
PUMPED = "pendulum"
Kind: TypeAlias = Literal["none", "conformal"]
KINDS: tuple[Kind, ...] = ("none", "conformal")


class Mixture:
    """A policy that in each episode draws uniform actions, holds them or (with `pump`) swings up, chosen at random."""

    def __init__(self, task: Task, episodes: int, generator: Generator, *, pump: bool) -> None:
        low, high = task.action_bounds()
        blocks = -(-task.horizon // HOLD) + 1
        unit = torch.rand(episodes, task.horizon, len(low), generator=generator, dtype=torch.float64)
        held = torch.rand(episodes, blocks, len(low), generator=generator, dtype=torch.float64)
        block = (torch.arange(task.horizon) + torch.randint(HOLD, (episodes, 1), generator=generator)) // HOLD
        kind = torch.randint(3 if pump else 2, (episodes,), generator=generator)
        unit[kind == 1] = held.gather(1, block[..., None].expand(-1, -1, len(low)))[kind == 1]
        self._actions, self._pumped, self._step = low + (high - low) * unit, kind == 2, 0

    def __call__(self, observation: Tensor, generator: Generator) -> Tensor:  # noqa: ARG002
        action = self._actions[:, self._step].clone()
        self._step += 1
        if bool(self._pumped.any()):
            # Torque in the direction of motion adds energy; the noise keeps the actions apart.
            pushed = 2 * observation[:, 2:3].sign() + 0.25 * action
            action = torch.where(self._pumped[:, None], pushed.clamp(-2, 2), action)
        return action


def collect(name: str, steps: int, seed: int) -> Transitions:
    """Collect real steps of the mixture in whole episodes, cut to `steps`."""
    task, generator = SYSTEMS[name], Generator().manual_seed(seed)
    world = task.world(0) if name == "fetch" else task.world()
    episodes = math.ceil(1.2 * steps / task.horizon) + 1
    policy = Mixture(task, episodes, generator, pump=name == PUMPED)
    data = rollout(world, policy, episodes, generator=generator).transitions()
    world.close()
    return Transitions(**{part.name: getattr(data, part.name)[:steps] for part in fields(Transitions)})


def scores(model: GPDynamics, fresh: Transitions) -> tuple[Tensor, Tensor]:
    """Return the z-scores [m, D] of fresh steps, and the rms error relative to the spread of their targets [D]."""
    task = model.task
    changes = (fresh.x_next - fresh.x)[:, list(task.predicted)].double()
    mean, variance, _ = model.predict(task.model_inputs(fresh.x, fresh.u))
    error = changes - mean
    return error / (variance + model.noise).sqrt(), error.square().mean(0).sqrt() / changes.std(0)


def measure(name: str, data: Transitions, fresh: Transitions, calibration: Kind) -> float:
    """Fit, print a table, and return the overall coverage of the 95 % interval."""
    model = GPDynamics(SYSTEMS[name], replace(GPSettings(), calibration=calibration))
    report = model.fit(data)
    z, error = scores(model, fresh)
    print(f"{name}, n = {len(data)}, calibration {calibration}, fitted in {report.seconds:.1f} s")
    print(f"  {'output':>8}" + "".join(f"{level:>8.0%}" for level in LEVELS) + f"{'z':>8}{'error':>8}{'factor':>8}")
    by_output: list[tuple[float, ...]] = list(zip(*coverage(z), strict=True))
    for i, shares in enumerate(by_output):
        row = "".join(f"{share:>8.1%}" for share in shares)
        deviation = float(z[:, i].square().mean().sqrt())
        print(f"  {i:>8}{row}{deviation:>8.2f}{float(error[i]):>8.1%}{report.factor[i]:>8.2f}")
    overall: list[float] = [sum(column) / len(column) for column in zip(*by_output, strict=True)]
    print(f"  {'overall':>8}" + "".join(f"{share:>8.1%}" for share in overall), flush=True)
    return overall[LEVELS.index(0.95)]


def main() -> None:
    """Measure every system, number of points and seed that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), help="default: all")
    parser.add_argument("--points", nargs="+", type=int, default=[300, 1000, 3000], help="default: %(default)s")
    parser.add_argument("--fresh", type=int, default=1500, help="number of fresh steps (default: %(default)s)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], help="default: %(default)s")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="default: both")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = []
    for name in options.systems:
        for seed in options.seeds:
            fresh = collect(name, options.fresh, 10_000 + seed)
            for points in options.points:
                data = collect(name, points, seed)
                for kind in options.kinds:
                    share = measure(name, data, fresh, kind)
                    results.append({"system": name, "n": points, "seed": seed, "kind": kind, "coverage95": share})
    print(json.dumps(results))


if __name__ == "__main__":
    main()
