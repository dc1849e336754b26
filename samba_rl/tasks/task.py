"""`Task`: what a system is and what it costs, as pure functions on batches of states."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, final

import torch
from torch import Generator, Tensor

from samba_rl.errors import UserError
from samba_rl.tasks.world import Charges, World


class Measured(UserError):  # noqa: N818 - it says what is so, and need not be a mistake
    """A cost was asked for as a function, but the system measures it."""


@dataclass(frozen=True)
class Quantity:
    """One component of a state, an observation or an action: its name, unit and range."""

    name: str
    """Name of the quantity."""
    unit: str = ""
    """Unit of the quantity; empty if it has none."""
    low: float = -math.inf
    """Lower bound, in the unit."""
    high: float = math.inf
    """Upper bound, in the unit."""

    def describe(self) -> str:
        """Return the name with the unit and the range, if there is one."""
        unit = f" [{self.unit}]" if self.unit else ""
        if math.isinf(self.low) and math.isinf(self.high):
            return f"{self.name}{unit}"
        span = f"±{self.high:g}" if self.low == -self.high else f"{self.low:g}..{self.high:g}"
        return f"{self.name} {span}{unit}"


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """A system, its cost and its safety: fields that describe it and pure functions on batches of states.

    Functions accept tensors of any device and floating dtype and return the same. The cost of a step is that of the
    state it *reaches* with the action that led there; only Safe Pendulum charges for the state that the step leaves,
    as Gymnasium does (see `cost_of`).
    """

    name: str
    """Name of the system on the command line."""
    title: str
    """Name of the system in tables and figures."""
    states: tuple[Quantity, ...]
    """Components of the state, in the order of its nx columns."""
    observations: tuple[Quantity, ...]
    """Components of the observation that the policy receives, in the order of its no columns."""
    actions: tuple[Quantity, ...]
    """Components of the action, each with finite bounds, in the order of its nu columns."""
    constraints: tuple[str, ...]
    """Names of the m safety costs, in the order of the columns of `safety`."""
    predicted: tuple[int, ...]
    """Columns of the state that a dynamics model predicts."""
    carried: tuple[int, ...] = ()
    """Column of the state and action [nx + nu] that each column of the next state holds, before the predicted change is
    added; empty: a state keeps what is not predicted."""
    horizon: int = 30
    """Number of steps per episode."""
    dt: float
    """Time between two steps, in seconds."""
    cost_of: Literal["departure", "arrival"] = "arrival"
    """State that `cost` is charged for: the one a step leaves (departure) or the one it reaches (arrival)."""
    done_window: int = 0
    """Number of most recent costs that `done` receives."""
    parallel: bool = True
    """True if many episodes can run at once; False for a rig, which runs one after the other."""
    pure_start: bool = True
    """True if `start` only draws random numbers. If False, it moves a real or simulated system, and imagined episodes
    start from recorded start states instead."""
    known_dynamics: bool = True
    """True if `step` implements the equations of motion; if False, the system runs only in `world()`."""
    known_cost: bool = True
    """True if the cost is a function; if False, it is only measured, and a model learns it beside the dynamics."""
    known_safety: bool = True
    """True if the safety cost is a function; if False, it is only measured, and a model learns it likewise."""

    def __post_init__(self) -> None:
        if not isinstance(self.horizon, int) or self.horizon < 1:
            raise UserError(f"{self.name}: horizon = {self.horizon!r} must be a whole number of at least 1 step")
        if not (math.isfinite(self.dt) and self.dt > 0):
            raise UserError(f"{self.name}: dt = {self.dt!r} must be a positive number of seconds")
        for action in self.actions:
            if not (math.isfinite(action.low) and math.isfinite(action.high)):
                raise UserError(
                    f"{self.name}: action '{action.name}' has bounds {action.low}..{action.high}; give finite bounds"
                )
            if action.low >= action.high:
                raise UserError(
                    f"{self.name}: action '{action.name}' has low {action.low} ≥ high {action.high}; low must be below "
                    "high"
                )
        if not self.constraints:
            raise UserError(f"{self.name}: has no safety constraint; name at least one in `constraints`")

    # Implemented by each system -------------------------------------------------------------------------------------

    @abstractmethod
    def start(self, n: int, generator: Generator | None = None, *, dtype: torch.dtype = torch.float64) -> Tensor:
        """Draw n start states [n, nx] on the generator's device."""

    @abstractmethod
    def observe(self, x: Tensor) -> Tensor:
        """Return the observations [B, no] of states [B, nx]."""

    @abstractmethod
    def model_inputs(self, x: Tensor, u: Tensor) -> Tensor:
        """Return the inputs [B, ni] of a dynamics model for states [B, nx] and actions [B, nu]."""

    @abstractmethod
    def _cost(self, x: Tensor, u: Tensor) -> Tensor:
        """Return the costs [B], at least zero, of states [B, nx] and actions [B, nu] within their bounds."""

    @abstractmethod
    def safety(self, x: Tensor, u: Tensor | None = None) -> Tensor:
        """Return the safety costs [B, m], in [0, 1], of states [B, nx]; the paper's systems ignore the action."""

    @abstractmethod
    def _violation(self, x: Tensor, u: Tensor | None, safety: Tensor) -> Tensor:
        """Return [B, m] (bool), True where states [B, nx] with safety costs [B, m] are unsafe."""

    @abstractmethod
    def done(self, x: Tensor, recent: Tensor) -> Tensor:
        """Return [B] (bool), True where the episode has ended in states [B, nx].

        `recent` [B, done_window] holds the most recent costs in any order; those from before the start are infinite.
        """

    @abstractmethod
    def hazard_in_words(self) -> str:
        """Describe the unsafe and the hazard region in one line."""

    @abstractmethod
    def _step(self, x: Tensor, u: Tensor) -> Tensor:
        """Return the states [B, nx] one step after x [B, nx], under actions [B, nu] within their bounds."""

    @abstractmethod
    def world(self, workers: int | None = None) -> World:
        """Return a world for real episodes; simulators run in `workers` processes (None: one per core)."""

    # Derived --------------------------------------------------------------------------------------------------------

    @final
    def action_bounds(self) -> tuple[Tensor, Tensor]:
        """Return the lower and upper bounds of the actions, each [nu], float64 on the CPU."""
        low, high = [action.low for action in self.actions], [action.high for action in self.actions]
        return torch.tensor(low, dtype=torch.float64), torch.tensor(high, dtype=torch.float64)

    @final
    def step(self, x: Tensor, u: Tensor) -> Tensor:
        """Return the states [B, nx] one step after x [B, nx], under actions [B, nu] clipped to their bounds."""
        if x.shape[-1:] != (len(self.states),) or x.dim() != 2:
            raise UserError(f"{self.name}: states of shape {list(x.shape)}; expected [B, {len(self.states)}]")
        return self._step(x, self.admit(u, len(x)))

    @final
    def admit(self, u: Tensor, n: int) -> Tensor:
        """Return actions [n, nu] clipped to their bounds (u itself if all are inside); raise on a wrong shape or NaN.

        On an accelerator NaN and infinity are not checked, because that would stall the device at every step; a NaN
        then stays a NaN.
        """
        if u.shape != (n, len(self.actions)):
            raise UserError(f"{self.name}: actions of shape {list(u.shape)}; expected [{n}, {len(self.actions)}]")
        clipped = self.clip(u)
        if u.device.type != "cpu":
            return clipped
        # Equality covers the common case in one pass: NaN equals nothing, and infinity is never inside the bounds.
        if torch.equal(clipped, u):
            return u
        bad = ~torch.isfinite(u)
        if bad.any():
            row, column = (int(i) for i in bad.nonzero()[0])
            raise UserError(
                f"{self.name}: action {row}, '{self.actions[column].name}', is {u[row, column].item()}; "
                f"{int(bad.sum())} of {u.numel()} numbers are not finite. Check the output of the policy"
            )
        return clipped

    @cached_property
    def _common_bounds(self) -> tuple[float, float] | None:
        """Return the bounds if all actions share them, else None: clamping by two numbers is the fastest way."""
        bounds = {(action.low, action.high) for action in self.actions}
        return bounds.pop() if len(bounds) == 1 else None

    @final
    def clip(self, u: Tensor) -> Tensor:
        """Return actions [..., nu] clipped to their bounds."""
        if self._common_bounds is not None:
            return u.clamp(*self._common_bounds)
        low, high = self.action_bounds()
        return u.clamp(low.to(u), high.to(u))

    @final
    def cost(self, x: Tensor, u: Tensor) -> Tensor:
        """Return the costs [B], at least zero, of states [B, nx] and actions [B, nu] clipped to their bounds."""
        return self._cost(x, self.clip(u))

    @final
    def violation(self, x: Tensor, u: Tensor | None = None) -> Tensor:
        """Return [B, m] (bool), True where states [B, nx] are unsafe, by constraint."""
        return self._violation(x, u, self.safety(x, u))

    @final
    def observation_scale(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return centre and scale [no] of the observations, from their ranges if finite, else from states [N, nx]."""
        observed = self.observe(x)
        centre, scale = observed.mean(0), observed.std(0, correction=0)
        for i, quantity in enumerate(self.observations):
            if math.isfinite(quantity.low) and math.isfinite(quantity.high):
                centre[i], scale[i] = (quantity.low + quantity.high) / 2, (quantity.high - quantity.low) / 2
        return centre, torch.where(scale > 1e-9, scale, torch.ones_like(scale))

    @final
    def carry(self, x: Tensor, u: Tensor) -> Tensor:
        """Return the states [B, nx] after x [B, nx] and actions u [B, nu], without the predicted changes."""
        return torch.cat([x, u], dim=-1)[:, list(self.carried)] if self.carried else x

    @cached_property
    def measured(self) -> tuple[str, ...]:
        """Return the names of the k costs that are only measured: "cost", the constraints, both or none."""
        return (() if self.known_cost else ("cost",)) + (() if self.known_safety else self.constraints)

    @final
    def charge(self, x: Tensor, u: Tensor, x_next: Tensor, measured: Tensor | None = None) -> Charges:
        """Return the costs of steps from x to x_next, both [B, nx], under actions [B, nu] within their bounds.

        `measured` [B, k] are the costs that are not known as functions, in the order of their names.
        """
        at = x if self.cost_of == "departure" else x_next
        cost = self._cost(at, u) if self.known_cost or measured is None else measured[:, 0]
        m = len(self.constraints)
        safety = self.safety(x_next, u) if self.known_safety or measured is None else measured[:, -m:]
        return Charges(cost, safety, self._violation(x_next, u, safety))


def no_costs_yet(task: Task, x: Tensor) -> Tensor:
    """Return the window of recent costs [B, done_window] for episodes that start in states x [B, nx]."""
    # Stored by columns: each step writes one, and `done` reduces over them in one sweep.
    return x.new_full((task.done_window, len(x)), math.inf).T


def remember_cost(recent: Tensor, cost: Tensor, t: int) -> None:
    """Overwrite the oldest of the recent costs [B, done_window] with the cost [B] of step t."""
    if recent.shape[1]:
        recent[:, t % recent.shape[1]].copy_(cost)
