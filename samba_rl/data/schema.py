"""`Schema`: the columns of a data set, and checks that steps fit them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, final

import torch
from torch import Tensor

from samba_rl.errors import UserError
from samba_rl.types import Transitions

FIELDS = tuple(part.name for part in dataclasses.fields(Transitions))
DTYPES = dict.fromkeys(FIELDS, torch.float64) | {
    "violation": torch.bool,
    "terminated": torch.bool,
    "episode": torch.int64,
    "step": torch.int64,
}
# Above it, float64 cannot represent every whole number.
_WHOLE = 2**53


class Column(NamedTuple):
    """A column of a table of transitions."""

    name: str
    """Name in the header."""
    field: str
    """Field of `Transitions` that holds its values."""
    place: int | None = None
    """Column of that field; None where the field is a vector."""

    def of(self, steps: Transitions) -> Tensor:
        """Return its values [N]."""
        values: Tensor = getattr(steps, self.field)
        return values if self.place is None else values[:, self.place]


@final
@dataclass(frozen=True)
class Schema:
    """Names of the columns of a data set; any text will do."""

    states: tuple[str, ...]
    """Names of the state dimensions [nx]."""
    actions: tuple[str, ...]
    """Names of the action dimensions [nu]."""
    constraints: tuple[str, ...]
    """Names of the constraints [m]."""

    def __post_init__(self) -> None:
        for kind in ("states", "actions", "constraints"):
            names = getattr(self, kind)
            if isinstance(names, str) or not names:
                raise UserError(f"schema: {kind} = {names!r}; give at least one name, as a tuple")
            object.__setattr__(self, kind, tuple(names))
            for name in names:
                if not isinstance(name, str) or not name or "\0" in name:
                    raise UserError(f"schema: {kind} has the name {name!r}; give non-empty text without NUL")
                try:
                    name.encode()
                except UnicodeEncodeError as error:
                    raise UserError(f"schema: {kind} has the name {name!r}, which is not valid Unicode") from error
        for name in self.columns:
            if self.columns.count(name) > 1:
                raise UserError(f"schema: there are two columns '{name}'; give each its own name")

    @cached_property
    def _layout(self) -> tuple[Column, ...]:
        groups = (("x:", "x", self.states), ("u:", "u", self.actions), ("next:", "x_next", self.states))
        safety = (("safety:", "safety", self.constraints), ("violation:", "violation", self.constraints))
        return (
            *(Column(name, name) for name in ("episode", "step", "terminated")),
            *(Column(p + name, part, i) for p, part, names in groups for i, name in enumerate(names)),
            Column("cost", "cost"),
            *(Column(p + name, part, i) for p, part, names in safety for i, name in enumerate(names)),
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns of a table: `episode`, `step`, `terminated`, `x:…`, `u:…`, `next:…`, `cost`, …."""
        return tuple(column.name for column in self._layout)

    @property
    def _widths(self) -> dict[str, int]:
        nx, nu, m = len(self.states), len(self.actions), len(self.constraints)
        return {"x": nx, "u": nu, "x_next": nx, "safety": m, "violation": m}

    def _shapes(self, size: int) -> dict[str, tuple[int, ...]]:
        widths = self._widths
        return {name: (size, widths[name]) if name in widths else (size,) for name in FIELDS}


def room(schema: Schema, size: int) -> Transitions:
    """Return uninitialised transitions [size] on the CPU."""
    # A tensor made in inference mode cannot be written to outside of it.
    with torch.inference_mode(False):
        shapes = schema._shapes(size)
        return Transitions(
            **{name: torch.empty(shape, dtype=DTYPES[name], device="cpu") for name, shape in shapes.items()}
        )


# Checks ---------------------------------------------------------------------------------------------------------------


def exact(what: str, values: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert values to a wider type on the CPU; raise UserError if that could change them."""
    whole = values.dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
    if dtype == torch.float64 and whole:
        fits = not bool(((values > _WHOLE) | (values < -_WHOLE)).any())
    else:
        fits = {torch.float64: values.dtype.is_floating_point, torch.int64: whole}.get(dtype, values.dtype == dtype)
    if not fits:
        raise UserError(f"{what} is of type {values.dtype}, which {dtype} cannot represent exactly; convert it first")
    return values.detach().to("cpu", dtype)


def fitted(schema: Schema, steps: Transitions) -> Transitions:
    """Convert steps to float64, int64 and bool on the CPU; raise UserError unless their shapes fit the schema."""
    fitting = {}
    for name, shape in schema._shapes(len(steps)).items():
        values = getattr(steps, name)
        if values.shape != shape:
            raise UserError(
                f"{name} of {len(steps)} steps has shape {list(values.shape)}; {schema} needs {list(shape)}"
            )
        fitting[name] = exact(name, values, DTYPES[name])
    return Transitions(**fitting)


def step_in_words(steps: Transitions, row: int) -> str:
    """Return the episode and step of a row, for an error message."""
    return f"episode {int(steps.episode[row])}, step {int(steps.step[row])}"


def check_finite(schema: Schema, steps: Transitions) -> None:
    """Raise UserError unless every value is finite."""
    for column in schema._layout:
        values = column.of(steps)
        bad = ~values.isfinite()
        if bad.any():
            row = int(bad.nonzero()[0])
            raise UserError(
                f"{step_in_words(steps, row)}: '{column.name}' is {values[row].item()}; it must be finite. Fix the "
                "measurement, or leave the episode out"
            )


def check_episodes(schema: Schema, steps: Transitions) -> list[int]:
    """Return the numbers of the episodes; raise UserError unless each is whole, with consecutive steps from 0."""
    runs = blocks(steps.episode)
    numbers = [int(steps.episode[rows.start]) for rows in runs]
    for number, times in Counter(numbers).items():
        if times > 1:
            raise UserError(f"episode {number} is split into {times} pieces; give its steps one after the other")
    for number, rows in zip(numbers, runs, strict=True):
        step = steps.step[rows]
        wrong = (step != torch.arange(len(step), device="cpu")).nonzero()
        if len(wrong):
            due = int(wrong[0])
            raise UserError(
                f"episode {number} has step {int(step[due])} in place of step {due}; give all steps in order"
            )
        # Compare bits: 0 and -0 are different measurements, and a Minari dataset would keep only one of them.
        jumps = steps.x[rows][1:].view(torch.int64) != steps.x_next[rows][:-1].view(torch.int64)
        if jumps.any():
            due, place = (int(i) for i in jumps.nonzero()[0])
            before, after = steps.x_next[rows][due, place].item(), steps.x[rows][due + 1, place].item()
            raise UserError(
                f"episode {number}, step {due + 1} starts at '{schema.states[place]}' = {after!r}, but step {due} "
                f"ended at {before!r}; start each step exactly where the last one ended, or begin a new episode"
            )
        early = steps.terminated[rows][:-1].nonzero()
        if len(early):
            raise UserError(
                f"episode {number} is terminated at step {int(early[0])} of 0..{len(step) - 1}; only its last step may "
                "be terminated"
            )
    return numbers


def blocks(episode: Tensor) -> list[slice]:
    """Return the rows of each run of equal episode numbers [N]."""
    ends = [*((episode[1:] != episode[:-1]).nonzero()[:, 0] + 1).tolist(), len(episode)]
    return [slice(start, end) for start, end in zip([0, *ends], ends, strict=False) if end > start]
