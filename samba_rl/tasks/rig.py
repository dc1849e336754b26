"""A system that runs outside of this program, and is known here by its quantities, its cost and its safety alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

import torch
from torch import Generator, Tensor

from samba_rl.errors import UserError
from samba_rl.tasks.task import Quantity, Task
from samba_rl.tasks.world import World

Function: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""Function from (states [B, nx], actions [B, nu]) to [B], or to [B, m] for a safety cost with m constraints."""


@final
@dataclass(frozen=True, init=False)
class RigTask(Task):
    """A rig: a system without an environment, whose trials another program makes.

    Its state is what is measured. It learns from trials that are told to it (`samba-rl tell`) or that a command makes
    (`samba-rl train --rig`).
    """

    cost_function: Function
    """Cost of states and actions."""
    safety_function: Function
    """Safety cost of states and actions."""
    violation_function: Function | None
    """True where states and actions are unsafe; None: where the safety cost is positive."""
    done_function: Callable[[Tensor], Tensor] | None
    """True where states end an episode; None: only the horizon ends it."""

    def __init__(
        self,
        states: Sequence[str | Quantity],
        actions: Sequence[str | Quantity],
        *,
        cost: Function,
        safety: Function,
        horizon: int,
        dt: float,
        low: Sequence[float] | float | None = None,
        high: Sequence[float] | float | None = None,
        name: str = "rig",
        violation: Function | None = None,
        done: Callable[[Tensor], Tensor] | None = None,
        constraints: Sequence[str] = ("safety",),
        cost_of: Literal["departure", "arrival"] = "arrival",
    ) -> None:
        """Describe the rig.

        Args:
            states: Measured quantities: names, or `Quantity(name, unit, low, high)` with a unit and a range.
            actions: Actions, likewise; each needs bounds.
            cost: Cost of states and actions [B].
            safety: Safety cost of states and actions, in [0, 1]: [B], or [B, m] with m constraints.
            horizon: Number of steps per episode.
            dt: Time between two steps, in seconds.
            low: Lower bounds of the actions, one for each or one for all; not needed where `actions` are quantities.
            high: Upper bounds of the actions, likewise.
            name: Name of the rig, for folders and figures.
            violation: True where states and actions are unsafe; None: where the safety cost is positive.
            done: True where states [B, nx] end an episode [B], for imagined trajectories.
            constraints: Names of the safety costs.
            cost_of: State that a step is charged for: the one it leaves (departure) or the one it reaches (arrival).
        """
        measured = tuple(_quantity(one) for one in states)
        super().__init__(
            name=name,
            title=name,
            states=measured,
            observations=measured,
            actions=_bounded(name, actions, low, high),
            constraints=tuple(constraints),
            predicted=tuple(range(len(measured))),
            horizon=horizon,
            dt=dt,
            cost_of=cost_of,
            parallel=False,
            pure_start=False,
            known_dynamics=False,
        )
        own = {"cost": cost, "safety": safety, "violation": violation, "done": done}
        for key, value in own.items():
            object.__setattr__(self, f"{key}_function", value)

    def start(self, n: int, generator: Generator | None = None, *, dtype: torch.dtype = torch.float64) -> Tensor:
        """Refuse: only the rig itself can start an episode."""
        raise self.outside()

    def observe(self, x: Tensor) -> Tensor:
        """Return the state [B, nx]."""
        return x

    def model_inputs(self, x: Tensor, u: Tensor) -> Tensor:
        """Return the state and the action [B, nx + nu]."""
        return torch.cat([x, u], dim=-1)

    def _cost(self, x: Tensor, u: Tensor) -> Tensor:
        return self._checked("cost", self.cost_function(x, u), (len(x),)).to(x.dtype)

    def safety(self, x: Tensor, u: Tensor | None = None) -> Tensor:
        """Return the values of the safety function [B, m]."""
        return self._columns("safety", self.safety_function, x, u).to(x.dtype)

    def _violation(self, x: Tensor, u: Tensor | None, safety: Tensor) -> Tensor:
        if self.violation_function is None:
            return safety > 0
        return self._columns("violation", self.violation_function, x, u).bool()

    def done(self, x: Tensor, recent: Tensor) -> Tensor:
        """Return the values of the done function [B] (bool), or False without one."""
        if self.done_function is None:
            return torch.zeros(len(x), dtype=torch.bool, device=x.device)
        return self._checked("done", self.done_function(x), (len(x),)).bool()

    def hazard_in_words(self) -> str:
        """Name the function that the safety cost comes from."""
        return f"the function {getattr(self.safety_function, '__name__', self.safety_function)!s}"

    def _step(self, x: Tensor, u: Tensor) -> Tensor:
        raise self.outside()

    def world(self, workers: int | None = None) -> World:
        """Refuse: this program cannot run the rig."""
        raise self.outside()

    def outside(self) -> UserError:
        """Return the error for whatever would need an episode."""
        return UserError(
            f"{self.name} runs outside of this program, which cannot run an episode by itself; give the command that "
            "runs one (train --rig), or make the trials yourself (samba-rl new, ask and tell)"
        )

    def _columns(self, what: str, function: Function, x: Tensor, u: Tensor | None) -> Tensor:
        """Return the values of a function by constraint [B, m]; with one constraint it may return [B]."""
        value: object = function(x, x.new_zeros(len(x), len(self.actions)) if u is None else u)
        m = len(self.constraints)
        if isinstance(value, Tensor) and m == 1 and value.shape == (len(x),):
            value = value[:, None]
        return self._checked(what, value, (len(x), m))

    def _checked(self, what: str, value: object, shape: tuple[int, ...]) -> Tensor:
        """Return the value of a user's function; raise unless it is a tensor of the given shape."""
        if not isinstance(value, Tensor):
            raise UserError(
                f"{self.name}: the {what} function returned a {type(value).__name__}; write it with torch operations "
                "on whole batches, so that it returns a tensor"
            )
        if value.shape != shape:
            raise UserError(
                f"{self.name}: the {what} function returned shape {list(value.shape)} for a batch of {shape[0]}; "
                f"expected {list(shape)}. Index columns as x[..., i], not x[i]"
            )
        return value


def _quantity(one: str | Quantity) -> Quantity:
    return one if isinstance(one, Quantity) else Quantity(one)


def _bounded(
    name: str,
    actions: Sequence[str | Quantity],
    low: Sequence[float] | float | None,
    high: Sequence[float] | float | None,
) -> tuple[Quantity, ...]:
    """Return the actions with their bounds."""
    bounds = {}
    for side, given in (("low", low), ("high", high)):
        each = [given] * len(actions) if given is None or isinstance(given, (int, float)) else list(given)
        if len(each) != len(actions):
            raise UserError(f"{name}: {side} has {len(each)} numbers for {len(actions)} actions; give one for each")
        bounds[side] = each
    found = []
    for one, lowest, highest in zip(actions, bounds["low"], bounds["high"], strict=True):
        quantity = _quantity(one)
        lows = quantity.low if lowest is None else float(lowest)
        highs = quantity.high if highest is None else float(highest)
        found.append(Quantity(quantity.name, quantity.unit, lows, highs))
    return tuple(found)
