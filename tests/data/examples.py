"""Transitions and data sets that tests share."""

import dataclasses
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Generator, Tensor

from samba_rl.data import DataSet, Schema
from samba_rl.types import Transitions

SCHEMA = Schema(("θ", "θ̇"), ("torque",), ("hazard", "wall, left"))
NASTY = (-0.0, 5e-324, -2.2250738585072011e-308, 1e308, -1.7976931348623157e308, 0.1 + 0.2, 1 / 3)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(NASTY)
ODD = ("θ̇", "a,b", '"', "'", "x:", "cost", "\r", "\n", " ", "/", ".", "a\tb", "\ufeff", "🙂")
NAMES = st.sampled_from(ODD) | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)

Change = Callable[[Transitions], Transitions]


def joined(parts: list[Transitions]) -> Transitions:
    names = [part.name for part in dataclasses.fields(Transitions)]
    return Transitions(**{name: torch.cat([getattr(part, name) for part in parts]) for name in names})


def make(
    schema: Schema, lengths: dict[int, int], draw: Callable[[int, int], Tensor], ends: tuple[int, ...] = ()
) -> Transitions:
    """Make episodes of these lengths by number, filled by `draw(rows, columns)`; those in `ends` are terminated."""
    parts = []
    for number, n in lengths.items():
        x = draw(n + 1, len(schema.states))
        terminated = torch.zeros(n, dtype=torch.bool)
        terminated[-1] = number in ends
        parts.append(
            Transitions(
                x=x[:-1],
                u=draw(n, len(schema.actions)),
                x_next=x[1:],
                cost=draw(n, 1)[:, 0],
                safety=draw(n, len(schema.constraints)),
                violation=draw(n, len(schema.constraints)) > 0,
                terminated=terminated,
                episode=torch.full((n,), number),
                step=torch.arange(n),
            )
        )
    return joined(parts)


def steps(lengths: dict[int, int], ends: tuple[int, ...] = (), seed: int = 0) -> Transitions:
    generator = Generator().manual_seed(seed)
    return make(SCHEMA, lengths, lambda n, k: torch.randn(n, k, generator=generator, dtype=torch.float64), ends)


def full(lengths: dict[int, int], ends: tuple[int, ...] = (), seed: int = 0) -> DataSet:
    return DataSet.empty(SCHEMA).append(steps(lengths, ends, seed))


@st.composite
def data_sets(draw: st.DrawFn) -> DataSet:
    names = st.lists(NAMES, min_size=1, max_size=2, unique=True).map(tuple)
    schema = Schema(draw(names), draw(names), draw(names))
    lengths = draw(st.dictionaries(st.integers(0, 2**62), st.integers(1, 3), max_size=3))
    if not lengths:
        return DataSet.empty(schema)

    def numbers(rows: int, columns: int) -> Tensor:
        return torch.from_numpy(draw(arrays(np.float64, (rows, columns), elements=NUMBERS)))

    ends = tuple(number for number in lengths if draw(st.booleans()))
    return DataSet.empty(schema).append(make(schema, lengths, numbers, ends))


def same(a: Transitions, b: Transitions) -> bool:
    """Return whether both have the same types and bits."""

    def alike(p: Tensor, q: Tensor) -> bool:
        if p.dtype != q.dtype or p.shape != q.shape:
            return False
        return torch.equal(p.view(torch.int64), q.view(torch.int64)) if p.dtype == torch.float64 else torch.equal(p, q)

    return all(alike(getattr(a, part.name), getattr(b, part.name)) for part in dataclasses.fields(Transitions))


def alter(name: str, where: Any, value: Any) -> Change:
    """Return a function that changes one value."""

    def change(old: Transitions) -> Transitions:
        values = getattr(old, name).clone()
        values[where] = value
        return dataclasses.replace(old, **{name: values})

    return change


def needs(kind: str) -> None:
    if kind != "csv":
        pytest.importorskip({"parquet": "pyarrow", "minari": "minari"}[kind])


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Set the system's limit on file sizes, in bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
