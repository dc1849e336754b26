"""Policies as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from samba_rl.errors import UserError
from samba_rl.export.description import Description, Floats, Layer, Monitor
from samba_rl.export.reading import content, damaged, sound
from samba_rl.runs.policy_file import FORMAT, SEVERAL, VERSION, plain_layers


def encode(policy: Description, stem: str) -> bytes:  # noqa: ARG001 - a JSON file does not contain its name
    """Return the content of a JSON file."""
    monitor = policy.monitor
    value = {
        "format": FORMAT,
        "version": SEVERAL if policy.gate else VERSION,
        "observation": {
            "names": policy.observations,
            "centre": policy.centre.tolist(),
            "scale": policy.scale.tolist(),
        },
        "action": {
            "names": policy.actions,
            "low": policy.low.tolist(),
            "high": policy.high.tolist(),
            "squash": policy.squash,
        },
        "dt": policy.dt,
        **({"gate": plain_layers(policy.gate)} if policy.gate else {}),
        "layers": plain_layers(policy.layers),
        "activation": "tanh",
        "std": policy.std.tolist(),
        "monitor": None
        if monitor is None
        else {"points": monitor.points.tolist(), "scale": monitor.scale.tolist(), "radius": monitor.radius},
        "provenance": dict(policy.provenance),
    }
    return (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode(errors="backslashreplace")


def load(path: Path) -> Description:
    """Read a policy from a JSON file."""
    try:
        value = json.loads(content(path))
    except (ValueError, RecursionError) as error:
        raise damaged(path, error) from error
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise UserError(f'{path} is no policy file: it does not begin with "format": "{FORMAT}"')
    if value.get("version") not in (VERSION, SEVERAL):
        raise UserError(
            f"{path} has version {value.get('version')!r}; this version of samba_rl reads versions {VERSION} and "
            f"{SEVERAL}"
        )
    if value.get("activation") != "tanh":
        raise UserError(f"{path}: the activation is {value.get('activation')!r}; only 'tanh' is known")
    try:
        return sound(path, _description(value))
    except UserError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(path, error) from error


def _description(value: dict[str, Any]) -> Description:
    observation, action = _group(value, "observation"), _group(value, "action")
    squash = action["squash"]
    return Description(
        observations=tuple(str(name) for name in observation["names"]),
        actions=tuple(str(name) for name in action["names"]),
        centre=_floats(observation["centre"]),
        scale=_floats(observation["scale"]),
        low=_floats(action["low"]),
        high=_floats(action["high"]),
        squash=None if squash is None else float(squash),
        layers=_layers(value["layers"]),
        std=_floats(value["std"]),
        dt=float(value["dt"]),
        monitor=None if value.get("monitor") is None else _monitor(_group(value, "monitor")),
        provenance=_group({"provenance": {}, **value}, "provenance"),
        gate=_layers(value["gate"]) if value["version"] == SEVERAL else (),
    )


def _layers(value: list[Any]) -> tuple[Layer, ...]:
    return tuple(Layer(_floats(one["weight"]), _floats(one["bias"])) for one in value)


def _group(value: dict[str, Any], name: str) -> dict[str, Any]:
    found = value[name]
    if not isinstance(found, dict):
        raise TypeError(f"'{name}' is not a group of named values")
    return found


def _monitor(value: dict[str, Any]) -> Monitor:
    return Monitor(_floats(value["points"]), _floats(value["scale"]), float(value["radius"]))


def _floats(numbers: Any) -> Floats:
    return np.array(numbers, dtype=np.float64)
