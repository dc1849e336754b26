"""Policies to export, made without learning."""

from __future__ import annotations

import itertools

import numpy as np

from samba_rl.export.description import Description, Layer, Monitor


def _layers(random: np.random.Generator, *sizes: int) -> tuple[Layer, ...]:
    return tuple(
        Layer(random.normal(size=(rows, columns)), random.normal(size=rows))
        for columns, rows in itertools.pairwise(sizes)
    )


def a_policy(
    *, squash: float | None = 1.1, hidden: tuple[int, ...] = (7, 5), monitor: bool = True, experts: int = 1
) -> Description:
    """Describe a random policy of three observations and two actions whose actions often meet their bounds.

    Several experts have a gate with hidden layers of the same sizes.
    """
    random = np.random.default_rng(0)
    layers = _layers(random, 3 + (experts if experts > 1 else 0), *hidden, 2)
    return Description(
        observations=("angle */ \\", "speed ??/", "x"),
        actions=("force", "torque"),
        centre=np.array([1.0, 0.0, -5.0]),
        scale=np.array([2.0, 1e-3, 0.5]),
        low=np.array([-2.0, 0.1]),
        high=np.array([2.0, 0.7]),
        squash=squash,
        layers=layers,
        std=np.array([0.1, 0.2]),
        dt=0.02,
        monitor=Monitor(random.normal(size=(40, 3)), np.array([2.0, 1e-3, 0.5]), 0.25) if monitor else None,
        provenance={"system": "rig /* 7 */ \n#error", "units": {"force": "N"}, "limits": ["mean at most 1"]},
        gate=_layers(np.random.default_rng(1), 3, *hidden, experts) if experts > 1 else (),
    )


def observations(
    policy: Description, n: int = 10_000, seed: int = 1
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Draw observations [n, no] around the centre of the policy and far beyond."""
    spread = np.random.default_rng(seed).normal(size=(n, 3)) * 3
    return np.asarray(policy.centre + policy.scale * spread, dtype=np.float64)
