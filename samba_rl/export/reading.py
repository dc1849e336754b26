"""Reading policy files that may be damaged or of another origin."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from samba_rl.data.files import JSON_LIMIT, check_regular, disk_error
from samba_rl.errors import UserError
from samba_rl.export.description import Description, Floats, Layer


def content(path: Path) -> bytes:
    """Return the content of a policy file that the user named."""
    try:
        check_regular(path)
        size = os.stat(path).st_size
        if size > JSON_LIMIT:
            raise UserError(f"{path} has {size:,} bytes; policy files have at most {JSON_LIMIT:,}")
        return path.read_bytes()
    except OSError as error:
        raise disk_error(path, error, reading=True) from error


def damaged(path: Path, why: object) -> UserError:
    """Return the error for a file that cannot be read as a policy."""
    reason = f"it has no {why}" if isinstance(why, KeyError) else str(why) or type(why).__name__
    return UserError(f"{path} is damaged or no policy file ({reason}); export it again")


def sound(path: Path, policy: Description) -> Description:
    """Return the policy if all of its arrays have fitting shapes and finite numbers."""
    no, nu = len(policy.observations), len(policy.actions)
    shapes: dict[str, tuple[Floats, tuple[int, ...]]] = {
        "centre": (policy.centre, (no,)),
        "scale": (policy.scale, (no,)),
        "low": (policy.low, (nu,)),
        "high": (policy.high, (nu,)),
        "std": (policy.std, (nu,)),
    }
    inputs = no + policy.experts if policy.gate else no
    shapes |= _shapes("gate's ", policy.gate, no) | _shapes("", policy.layers, inputs)
    if policy.monitor is not None:
        points = policy.monitor.points
        shapes["points"] = points, (len(np.atleast_1d(points)), no)
        shapes["scale of the monitor"] = policy.monitor.scale, (no,)
    for name, (found, due) in shapes.items():
        if found.shape != due:
            raise damaged(path, f"{name} is {list(found.shape)}; expected {list(due)}")
        if not np.isfinite(found).all():
            raise damaged(path, f"{name} contains NaN or infinity")
    given = len(policy.layers[-1].bias) if policy.layers else inputs
    if not policy.layers or given != nu:
        raise damaged(path, f"its network gives {given} numbers for {nu} actions")
    positive = [policy.scale] if policy.monitor is None else [policy.scale, policy.monitor.scale]
    radius = 1.0 if policy.monitor is None else policy.monitor.radius
    squash = 1.0 if policy.squash is None else policy.squash
    numbers = (radius, squash, policy.dt)
    if not (all((one > 0).all() for one in positive) and all(0 < one < np.inf for one in numbers)):
        raise damaged(path, "a scale, the radius, the squash or dt is not positive")
    if not (policy.low < policy.high).all():
        raise damaged(path, "a lower bound is not below its upper bound")
    return policy


def _shapes(whose: str, layers: tuple[Layer, ...], inputs: int) -> dict[str, tuple[Floats, tuple[int, ...]]]:
    """Return the arrays of a network by name, each with its due shape."""
    shapes: dict[str, tuple[Floats, tuple[int, ...]]] = {}
    for i, (weight, bias) in enumerate(layers):
        rows = len(bias)
        shapes[f"{whose}weight {i}"], shapes[f"{whose}bias {i}"] = (weight, (rows, inputs)), (bias, (rows,))
        inputs = rows
    return shapes
