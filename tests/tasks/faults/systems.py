"""Systems that misbehave in chosen ways at chosen steps."""

import os
import signal
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from samba_rl import GymTask, SafePendulum, UserError
from samba_rl.tasks.task import Task
from samba_rl.tasks.world import Step
from samba_rl.types import Policy, Traces

TROUBLES = (
    "nan",
    "infinity",
    "shape",
    "exception",
    "user error",
    "nan reward",
    "infinite cost",
    "slow",
    "hang",
    "death",
    "interrupt",
)
FAULTS = {
    "nan": "<FromSixTuple<Moody instance>>: the observation holds NaN or infinity: observation 1 is nan",
    "infinity": "<FromSixTuple<Moody instance>>: the observation holds NaN or infinity: observation 0 is -inf",
    "shape": "step returned a state of shape [3]; expected [2]",
    "exception": "RuntimeError: motor fault at 80 °C",
    "user error": "the lid is open; close it",
    "nan reward": "<FromSixTuple<Moody instance>>: reward is nan; a cost must be a finite number",
    "infinite cost": (
        "<FromSixTuple<Moody instance>>: info[\"cost\"] is inf for 'heat'; a cost must be a finite number"
    ),
}
"""Expected reasons of the troubles that are caught without a timeout."""
RELEASE = threading.Event()
"""Ends the hangs in this process after each test."""


class Moody(gymnasium.Env[Any, Any]):
    """A point that moves by a tenth of the action; some actions cause trouble, unless it is calm."""

    def __init__(self, *, calm: bool = False) -> None:
        self.calm = calm
        self.at_reset = ""
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), dtype=np.float64)
        self.action_space = gymnasium.spaces.Box(-1, 1, (1,), dtype=np.float32)
        self.x = np.zeros(2)
        self.threads: set[int] = set()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.threads.add(threading.get_ident())
        self.x = np.array([self.np_random.uniform(-0.5, 0.5), 0.0])
        return self._trouble(self.at_reset, self.x.copy()), {}

    def step(self, action: Any) -> Any:
        self.threads.add(threading.get_ident())
        self.x = np.array([self.x[0] + 0.1 * action[0], self.x[1] + 1])
        number = 0 if self.calm else round((float(action[0]) - 0.5) * 64)
        trouble = TROUBLES[number - 1] if number > 0 else ""
        observation = self._trouble(trouble, self.x.copy())
        reward = np.nan if trouble == "nan reward" else -abs(self.x[0])
        cost = np.inf if trouble == "infinite cost" else 0.25
        return observation, reward, False, False, {"cost": cost}

    def _trouble(self, trouble: str, observation: NDArray[np.float64]) -> NDArray[np.float64]:
        if trouble == "nan":
            observation[1] = np.nan
        if trouble == "infinity":
            observation[0] = -np.inf
        if trouble == "shape":
            return np.zeros(3)
        if trouble == "exception":
            raise RuntimeError("motor fault\nat 80 °C")
        if trouble == "user error":
            raise UserError("the lid is open; close it")
        if trouble == "slow":
            time.sleep(1.2)
        if trouble == "hang":
            RELEASE.wait(30)
        if trouble == "death":
            os.kill(os.getpid(), signal.SIGKILL)
        if trouble == "interrupt":
            raise KeyboardInterrupt
        return observation


def rig_task(env: Moody) -> GymTask:
    return GymTask(env, horizon=6, constraints=("heat",))


def task_of(*, calm: bool = False) -> GymTask:
    return GymTask(lambda: Moody(calm=calm), horizon=6, constraints=("heat",))


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def script(n: int, troubles: dict[int, tuple[int, str]] | None = None) -> Policy:
    """Return a policy with small actions for n episodes, with troubles at {episode: (step, trouble)}."""
    actions = torch.linspace(-0.4, 0.4, 6 * n, dtype=torch.float64).view(n, 6, 1)
    for episode, (step, trouble) in (troubles or {}).items():
        actions[episode, step] = 0.5 + (TROUBLES.index(trouble) + 1) / 64
    steps = iter(range(6))
    return lambda observation, generator: actions[:, next(steps)]


def all_finite(traces: Traces) -> bool:
    parts = (traces.x, traces.observation, traces.u, traces.cost, traces.safety)
    return all(bool(torch.isfinite(part).all()) for part in parts)


def same_up_to(traces: Traces, other: Traces, episode: int, steps: int) -> bool:
    return (
        torch.equal(traces.x[episode, : steps + 1], other.x[episode, : steps + 1])
        and torch.equal(traces.cost[episode, :steps], other.cost[episode, :steps])
        and torch.equal(traces.safety[episode, :steps], other.safety[episode, :steps])
        and int(traces.active[episode].sum()) == steps
    )


class Loose:
    """A user-defined world around that of the pendulum, with `trouble` in reset or at step 2."""

    def __init__(self, trouble: str = "") -> None:
        self.task: Task = SafePendulum(horizon=6)
        self.trouble = trouble
        self.inner = self.task.world()
        self.steps = 0
        self.gradients: set[bool] = set()

    def reset(self, n: int, generator: Generator, *, slots: Tensor | None = None, x: Tensor | None = None) -> Tensor:
        if slots is None:
            self.steps = 0
        x = self.inner.reset(n, generator, slots=slots, x=x)
        if self.trouble == "reset shape":
            return x[:, :1]
        if self.trouble == "reset nan":
            x[1, 0] = np.nan
        if self.trouble == "reset exception":
            raise ValueError
        if self.trouble == "reset hang":
            RELEASE.wait(30)
        return x

    def step(self, x: Tensor, u: Tensor, active: Tensor | None = None) -> Step:
        self.gradients.add(torch.is_grad_enabled())
        self.steps += 1
        step = self.inner.step(x, u, active)
        if self.steps != 3:
            return step
        charges = step.charges
        if self.trouble == "state":
            step.x[1, 1] = torch.inf
        if self.trouble == "cost":
            charges.cost[1] = -torch.inf
        if self.trouble == "safety":
            charges.safety[1, 0] = torch.nan
        if self.trouble == "both":
            step.x[1, 0] = torch.nan
            charges.cost[1] = torch.nan
        if self.trouble == "own":
            return step._replace(failed=torch.tensor([False, True, False]))
        if self.trouble == "shape":
            return step._replace(charges=charges._replace(cost=charges.cost[:, None]))
        if self.trouble == "no tensor":
            return step._replace(terminated=False)  # type: ignore[arg-type]
        if self.trouble == "no step":
            return None  # type: ignore[return-value]
        if self.trouble == "exception":
            raise ZeroDivisionError("division by zero")
        if self.trouble == "hang":
            RELEASE.wait(30)
        return step

    def render(self, x: Tensor, u: Tensor | None, slot: int, size: int) -> NDArray[np.uint8]:
        return self.inner.render(x, u, slot, size)

    def close(self) -> None:
        if self.trouble == "close":
            raise OSError("cannot close")


@dataclass
class Notes:
    """A recorder that keeps everything."""

    starts: list[Tensor] = field(default_factory=list)
    steps: list[tuple[Tensor, Tensor, Step]] = field(default_factory=list)

    def begin(self, x: Tensor) -> None:
        self.starts.append(x)

    def step(self, x: Tensor, u: Tensor, step: Step) -> None:
        self.steps.append((x, u, step))
