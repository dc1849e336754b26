"""Learn an environment of your own: define it, state what is costly and what is unsafe, and train within a limit.

The system is a cart on a spring with a noisy motor. It starts at 0 m and should be held at 1 m, but a wall stands at
1.2 m: the cart must be fast without overshooting.

Usage:
    python examples/own_system.py            # about a minute on two cores
    python examples/own_system.py smoke      # seconds: checks that everything works, learns little
"""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray
from torch import Tensor

import samba_rl
from samba_rl import GymTask

State = NDArray[np.float32]


class SpringCart(gymnasium.Env[State, State]):
    """A cart of 1 kg on a spring of 2 N/m; the motor pushes with up to 4 N, give or take 0.1 N."""

    observation_space = gymnasium.spaces.Box(-10.0, 10.0, (2,))  # position [m], velocity [m/s]
    action_space = gymnasium.spaces.Box(-4.0, 4.0, (1,))  # force [N]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[State, dict[str, Any]]:
        """Start near 0 m, at rest."""
        super().reset(seed=seed, options=options)
        self.position, self.velocity = self.np_random.normal(0.0, 0.05), 0.0
        return self._state(), {}

    def step(self, action: State) -> tuple[State, float, bool, bool, dict[str, Any]]:
        """Move for 0.1 s; the reward is unused because the cost is given as a function."""
        force = float(action[0]) + self.np_random.normal(0.0, 0.1)
        self.velocity += 0.1 * (force - 2.0 * self.position)
        self.position += 0.1 * self.velocity
        return self._state(), 0.0, False, False, {}

    def _state(self) -> State:
        return np.array([self.position, self.velocity], dtype=np.float32)


def cost(x: Tensor, u: Tensor) -> Tensor:
    """Return the squared distance from 1 m, and a little for effort; x [B, 2] and u [B, 1] to [B]."""
    return (x[..., 0] - 1.0).square() + 0.001 * u[..., 0].square()


def safety(x: Tensor, _u: Tensor) -> Tensor:
    """Return 0 up to 1.0 m, rising to 1 at the wall; x [B, 2] to [B]. The force does not matter."""
    return ((x[..., 0] - 1.0) / 0.2).clamp(0, 1)


def main(preset: str = "default") -> None:
    """Train so that the worst tenth of the episodes has a mean safety cost of at most 1."""
    task = GymTask(SpringCart, cost=cost, safety=safety, horizon=25, dt=0.1)
    limit = {"limit": 1.0, "alpha": 0.9}
    # Workers are processes that run environments in parallel; this one is too cheap to need them.
    run = samba_rl.train(task, preset=preset, real_samples=250, episodes=1, constraint=limit, workers=0)
    result = run.evaluate(steps=2500, workers=0)
    print(f"{run.summary['real_samples']} real steps, cost of an episode {-result.return_mean:.2f}")
    print(f"CVaR of its safety cost {result.cvar:.2f}, limit {result.limit}")


if __name__ == "__main__":
    main(*sys.argv[1:])
