"""`Task`: what a system is and what it costs, as pure functions on batches; `World`: where its episodes run."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, final

import torch
from torch import Generator, Tensor

from samba_rl.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Quantity:
    """One number of a state, an observation or an action: its name, its unit and the range it stays in."""

    name: str
    unit: str = ""
    low: float = -math.inf
    high: float = math.inf

    def describe(self) -> str:
        """In words, with the unit and the range where there is one."""
        unit = f" [{self.unit}]" if self.unit else ""
        if math.isinf(self.low) and math.isinf(self.high):
            return f"{self.name}{unit}"
        span = f"±{self.high:g}" if self.low == -self.high else f"{self.low:g}..{self.high:g}"
        return f"{self.name} {span}{unit}"


class Charges(NamedTuple):
    """What steps cost."""

    cost: Tensor
    """[B]."""
    safety: Tensor
    """[B, m]."""
    violation: Tensor
    """[B, m] (bool)."""


class Step(NamedTuple):
    """What came of one step of B episodes."""

    x: Tensor
    """The states reached [B, nx]."""
    charges: Charges
    terminated: Tensor
    """The system ended the episode itself [B] (bool)."""
    truncated: Tensor
    """The system cut the episode off without its having ended [B] (bool)."""
    zeta: Tensor | None = None
    """How much the step would teach, where it was imagined and that was asked for [B]."""
    failed: Tensor | None = None
    """Where the system failed, so that the step did not take place and the episode is broken off [B] (bool)."""


def no_costs_yet(task: Task, x: Tensor) -> Tensor:
    """What `Task.done` sees as the latest costs when episodes begin in states x [B, nx]: [B, done_window]."""
    # Stored by columns: one is written at each step, and `done` reduces over them in one sweep.
    return x.new_full((task.done_window, len(x)), math.inf).T


def remember_cost(recent: Tensor, cost: Tensor, t: int) -> None:
    """Put what step t cost [B] in the place of the oldest of the latest costs [B, done_window]."""
    if recent.shape[1]:
        recent[:, t % recent.shape[1]].copy_(cost)


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """A system, its cost and its safety: fields that describe it, and pure functions on batches of states.

    Functions take tensors of any device and floating dtype and answer in the same. A step is charged for the state it
    *reaches*, with the action that led there; only the cost of Safe Pendulum is charged for the state that the step
    leaves, as in Gymnasium (`cost_of`).
    """

    name: str
    """The name by which the command line knows the system."""
    title: str
    """The name for people."""
    states: tuple[Quantity, ...]
    observations: tuple[Quantity, ...]
    """What the policy sees."""
    actions: tuple[Quantity, ...]
    """Each with finite bounds."""
    constraints: tuple[str, ...]
    """The names of the safety costs, in the order of the columns of `safety`."""
    predicted: tuple[int, ...]
    """The columns of the state that a dynamics model predicts; the others stay as they are."""
    horizon: int = 30
    """Steps in an episode."""
    dt: float
    """Seconds between two steps."""
    cost_of: Literal["departure", "arrival"] = "arrival"
    """Whether `cost` is charged for the state that a step leaves or the one that it reaches."""
    done_window: int = 0
    """How many of the latest costs `done` wants to see."""
    parallel: bool = True
    """Whether many episodes can run at once; a rig runs one after the other."""
    pure_start: bool = True
    """Whether `start` only draws numbers. Otherwise it moves a real or simulated system, and imagined episodes begin
    where real ones did."""
    known_dynamics: bool = True
    """Whether `step` knows the equations of motion; otherwise the system runs in `world()` alone."""

    def __post_init__(self) -> None:
        if not isinstance(self.horizon, int) or self.horizon < 1:
            raise UserError(f"{self.name}: horizon = {self.horizon!r} must be a whole number of at least 1 step")
        if not (math.isfinite(self.dt) and self.dt > 0):
            raise UserError(f"{self.name}: dt = {self.dt!r} must be a positive number of seconds")
        for action in self.actions:
            if not (math.isfinite(action.low) and math.isfinite(action.high)):
                raise UserError(
                    f"{self.name}: action '{action.name}' has bounds {action.low}..{action.high}; give finite ones"
                )
            if action.low >= action.high:
                raise UserError(f"{self.name}: action '{action.name}' has low {action.low} ≥ high {action.high}")
        if not self.constraints:
            raise UserError(f"{self.name}: names no safety constraint; give at least one")

    # What a system has to say ---------------------------------------------------------------------------------------

    @abstractmethod
    def start(self, n: int, generator: Generator | None = None, *, dtype: torch.dtype = torch.float64) -> Tensor:
        """Draw n start states [n, nx] on the generator's device."""

    @abstractmethod
    def observe(self, x: Tensor) -> Tensor:
        """What the policy sees [B, no] in states [B, nx]."""

    @abstractmethod
    def model_inputs(self, x: Tensor, u: Tensor) -> Tensor:
        """What a dynamics model sees [B, ni] of states [B, nx] and actions [B, nu]."""

    @abstractmethod
    def _cost(self, x: Tensor, u: Tensor) -> Tensor:
        """The cost, at least zero, of states [B, nx] and actions [B, nu] that are inside the bounds: [B]."""

    @abstractmethod
    def safety(self, x: Tensor, u: Tensor | None = None) -> Tensor:
        """The safety costs of states [B, nx], in [0, 1]: [B, m]. The paper's systems do not look at the action."""

    @abstractmethod
    def _violation(self, x: Tensor, u: Tensor | None, safety: Tensor) -> Tensor:
        """Whether states [B, nx] with these safety costs [B, m] are unsafe, by constraint: [B, m] (bool)."""

    @abstractmethod
    def done(self, x: Tensor, recent: Tensor) -> Tensor:
        """Whether the episode has ended [B] (bool) in states [B, nx].

        `recent` [B, done_window] holds the costs of the latest steps, in any order; before the start they are infinite.
        """

    @abstractmethod
    def hazard_in_words(self) -> str:
        """Where the unsafe and the hazard region lie, for people."""

    @abstractmethod
    def _step(self, x: Tensor, u: Tensor) -> Tensor:
        """The states [B, nx] after one step from [B, nx] under actions [B, nu] that are inside the bounds."""

    @abstractmethod
    def world(self, workers: int | None = None) -> World:
        """A place to run real episodes; simulators that need processes use `workers` of them (None: every core)."""

    # What follows from it -------------------------------------------------------------------------------------------

    @final
    def step(self, x: Tensor, u: Tensor) -> Tensor:
        """The states [B, nx] after one step from [B, nx] under actions [B, nu], which are clipped to their bounds."""
        if x.shape[-1:] != (len(self.states),) or x.dim() != 2:
            raise UserError(f"{self.name}: states of shape {list(x.shape)}; expected [B, {len(self.states)}]")
        return self._step(x, self.admit(u, len(x)))

    @final
    def admit(self, u: Tensor, n: int) -> Tensor:
        """Actions [n, nu] clipped to their bounds (u itself if all lie inside); a wrong shape or NaN is an error.

        On an accelerator the look for NaN and infinity is left out, because it would stall the device at every step;
        there a NaN goes through as a NaN.
        """
        if u.shape != (n, len(self.actions)):
            raise UserError(f"{self.name}: actions of shape {list(u.shape)}; expected [{n}, {len(self.actions)}]")
        clipped = self.clip(u)
        if u.device.type != "cpu":
            return clipped
        # Equality settles the common case in one pass: NaN equals nothing, and infinity is never inside the bounds.
        if torch.equal(clipped, u):
            return u
        bad = ~torch.isfinite(u)
        if bad.any():
            row, column = (int(i) for i in bad.nonzero()[0])
            raise UserError(
                f"{self.name}: action {row}, '{self.actions[column].name}', is {u[row, column].item()}; "
                f"{int(bad.sum())} of {u.numel()} numbers are not finite. Check what the policy computes"
            )
        return clipped

    @cached_property
    def _common_bounds(self) -> tuple[float, float] | None:
        """The bounds of every action, if they are the same: one clamp by numbers is the fastest."""
        bounds = {(action.low, action.high) for action in self.actions}
        return bounds.pop() if len(bounds) == 1 else None

    @final
    def clip(self, u: Tensor) -> Tensor:
        """Actions [..., nu] moved into their bounds."""
        if self._common_bounds is not None:
            return u.clamp(*self._common_bounds)
        return torch.stack([u[..., i].clamp(action.low, action.high) for i, action in enumerate(self.actions)], dim=-1)

    @final
    def cost(self, x: Tensor, u: Tensor) -> Tensor:
        """The cost, at least zero, of states [B, nx] and actions [B, nu], which are clipped to their bounds: [B]."""
        return self._cost(x, self.clip(u))

    @final
    def violation(self, x: Tensor, u: Tensor | None = None) -> Tensor:
        """Whether states [B, nx] are unsafe, by constraint: [B, m] (bool)."""
        return self._violation(x, u, self.safety(x, u))

    @final
    def observation_scale(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Centre and scale [no] of the observations: of their ranges where those are finite, else of states [N, nx]."""
        observed = self.observe(x)
        centre, scale = observed.mean(0), observed.std(0, correction=0)
        for i, quantity in enumerate(self.observations):
            if math.isfinite(quantity.low) and math.isfinite(quantity.high):
                centre[i], scale[i] = (quantity.low + quantity.high) / 2, (quantity.high - quantity.low) / 2
        return centre, torch.where(scale > 1e-9, scale, torch.ones_like(scale))

    @final
    def charge(self, x: Tensor, u: Tensor, x_next: Tensor) -> Charges:
        """What steps from [B, nx] to [B, nx] cost under actions [B, nu] that are inside the bounds."""
        at = x if self.cost_of == "departure" else x_next
        safety = self.safety(x_next, u)
        return Charges(self._cost(at, u), safety, self._violation(x_next, u, safety))


class World(Protocol):
    """A place where episodes of a task run: the equations, a simulator, a rig, or a learned model."""

    @property
    def task(self) -> Task:
        """The system whose episodes run here."""
        ...

    def reset(self, n: int, generator: Generator, *, slots: Tensor | None = None, x: Tensor | None = None) -> Tensor:
        """Start n episodes afresh and give their states [n, nx].

        They take the places 0..n-1, or the given `slots` [n] of a batch that is running; they begin in the states `x`
        [n, nx] if those are given.
        """
        ...

    def step(self, x: Tensor, u: Tensor, active: Tensor | None = None) -> Step:
        """Take one step in every episode, or only where `active` [B] (bool).

        x [B, nx] is what the last step gave, u [B, nu] what `Task.admit` gives: checked and inside the bounds.
        """
        ...

    def render(self, x: Tensor, u: Tensor | None, slot: int, size: int) -> NDArray[np.uint8]:
        """A picture [size, size, 3] of episode `slot`, whose state is x [nx] after the action u [nu]."""
        ...

    def close(self) -> None:
        """Let go of simulators and processes."""
        ...


@final
@dataclass(frozen=True)
class EquationsWorld:
    """The world of a task whose dynamics are known: all episodes at once, as one batch."""

    task: Task
    picture: Callable[[Tensor, Tensor | None, int], NDArray[np.uint8]]
    """(state [nx], action [nu] or None, size) -> picture [size, size, 3]."""

    def reset(self, n: int, generator: Generator, *, slots: Tensor | None = None, x: Tensor | None = None) -> Tensor:
        """Start n episodes: see `World.reset`."""
        return self.task.start(n, generator) if x is None else x

    def step(self, x: Tensor, u: Tensor, active: Tensor | None = None) -> Step:
        """Step every episode, also those that have ended: on a batch that is cheaper than leaving them out."""
        x_next = self.task._step(x, u)
        never = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        return Step(x_next, self.task.charge(x, u, x_next), never, never)

    def render(self, x: Tensor, u: Tensor | None, slot: int, size: int) -> NDArray[np.uint8]:
        """Draw the state: see `World.render`."""
        return self.picture(x, u, size)

    def close(self) -> None:
        """Nothing to let go of."""
