"""Calibration of the GP model: the share of fresh steps inside its predictive intervals.

A model is fitted to real steps of a mixture of random policies (uniform, held and, on Safe Pendulum, pumping energy).
It then predicts steps of fresh episodes, from other seeds: of the same mixture, and of other policies, which act on the
state (swinging up or reaching, and random feedback). Coverage is given by output and overall, with the deviation of the
z-scores, the error of the mean relative to the spread of the targets, and the calibration factor of the predicted
standard deviation. The coverage of the 95 % interval is also given without that factor. The last lines are a table.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from dataclasses import fields
from typing import Literal, TypeAlias

import torch
from torch import Generator, Tensor

from samba_rl import SafeCartPoleDoublePendulum, SafePendulum, Task, Transitions, rollout
from samba_rl.models.calibration import AIM, LEVELS, coverage
from samba_rl.models.gp import GPDynamics
from samba_rl.tasks.fetch_reach import SafeFetchReach
from samba_rl.types import Policy

HOLD = 5
"""Steps for which a held action stays the same."""
SYSTEMS: dict[str, Task] = {
    "pendulum": SafePendulum(),
    "double-pendulum": SafeCartPoleDoublePendulum(),
    "fetch": SafeFetchReach(),
}
PUMPED = "pendulum"
Kind: TypeAlias = Literal["mixture", "feedback"]
KINDS: dict[Kind, int] = {"mixture": 10_000, "feedback": 20_000}
"""Kinds of policies that fresh steps are of, with the number that is added to the seed."""
Row: TypeAlias = tuple[float, float, float]
"""Coverage of the 95 % interval over all outputs, without and with calibration, and with it of the lowest output."""


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


class Feedback:
    """A policy that in each episode either solves the task roughly or is a random function of the observation."""

    def __init__(self, task: Task, episodes: int, generator: Generator) -> None:
        self._task, (self._low, self._high) = task, task.action_bounds()
        self._gain = 0.2 + 0.8 * torch.rand(episodes, 1, generator=generator, dtype=torch.float64)
        shape = episodes, len(self._low), len(task.observations)
        self._weights = torch.randn(shape, generator=generator, dtype=torch.float64)
        self._random = torch.randint(2, (episodes, 1), generator=generator) == 1

    def __call__(self, observation: Tensor, generator: Generator) -> Tensor:  # noqa: ARG002
        some = self._high * torch.tanh((self._weights @ observation[..., None])[..., 0])
        aimed = self._gain * self._aimed(observation)
        return torch.where(self._random, some, aimed).clamp(self._low, self._high)

    def _aimed(self, observation: Tensor) -> Tensor:
        o = observation
        if isinstance(self._task, SafePendulum):
            swing, balance = 2 * o[:, 2:3].sign(), -8 * o[:, 1:2] - 2 * o[:, 2:3]
            return torch.where(o[:, :1] > 0.9, balance, swing)
        if isinstance(self._task, SafeCartPoleDoublePendulum):
            return 20 * (o[:, 2:3] * o[:, 5:6]).sign() - 10 * o[:, :1] - 3 * o[:, 1:2]
        return torch.cat([10 * (o[:, 6:9] - o[:, :3]), torch.zeros_like(o[:, :1])], dim=1)


def collect(name: str, steps: int, seed: int, kind: Kind = "mixture") -> Transitions:
    """Collect real steps of one kind of policy in whole episodes, cut to `steps`."""
    task, generator = SYSTEMS[name], Generator().manual_seed(seed)
    world = task.world(0) if name == "fetch" else task.world()
    episodes = math.ceil(1.2 * steps / task.horizon) + 1
    if kind == "mixture":
        policy: Policy = Mixture(task, episodes, generator, pump=name == PUMPED)
    else:
        policy = Feedback(task, episodes, generator)
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


def measure(model: GPDynamics, fresh: Transitions, title: str) -> Row:
    """Print a table, and return the overall coverage of the 95 % interval without and with calibration."""
    z, error = scores(model, fresh)
    print(title)
    heads = (*(f"{level:.0%}" for level in LEVELS), "plain 95%", "z", "error", "factor")
    print(f"  {'output':>8}" + "".join(f"{head:>10}" for head in heads))
    calibrated, plain = torch.tensor(coverage(z)), torch.tensor(coverage(z * model.factor))[AIM]
    for i in range(z.shape[1]):
        shares = (*calibrated[:, i].tolist(), float(plain[i]))
        deviation = float(z[:, i].square().mean().sqrt())
        rest = f"{deviation:>10.2f}{float(error[i]):>10.1%}{float(model.factor[i]):>10.2f}"
        print(f"  {i:>8}" + "".join(f"{share:>10.1%}" for share in shares) + rest)
    overall = (*calibrated.mean(1).tolist(), float(plain.mean()))
    print(f"  {'overall':>8}" + "".join(f"{share:>10.1%}" for share in overall), flush=True)
    return float(plain.mean()), float(calibrated[AIM].mean()), float(calibrated[AIM].min())


def main() -> None:
    """Measure every system, number of points and seed that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), help="default: all")
    parser.add_argument("--points", nargs="+", type=int, default=[300, 1000, 3000], help="default: %(default)s")
    parser.add_argument("--fresh", type=int, default=1500, help="number of fresh steps (default: %(default)s)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], help="default: %(default)s")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: dict[tuple[str, int, Kind], list[Row]] = defaultdict(list)
    for name in options.systems:
        for seed in options.seeds:
            fresh = {kind: collect(name, options.fresh, base + seed, kind) for kind, base in KINDS.items()}
            for points in options.points:
                model = GPDynamics(SYSTEMS[name])
                report = model.fit(collect(name, points, seed))
                for kind, steps in fresh.items():
                    title = f"{name}, n = {points}, seed {seed}, fitted in {report.seconds:.1f} s, fresh steps: {kind}"
                    rows[name, points, kind].append(measure(model, steps, title))
    print("\nsystem | n | fresh steps | 95 % interval, by seed: without calibration | with it | its lowest output")
    for (name, points, kind), values in rows.items():
        columns = (", ".join(f"{100 * share:.1f}" for share in column) for column in zip(*values, strict=True))
        print(" | ".join([name, str(points), kind, *columns]))


if __name__ == "__main__":
    main()
