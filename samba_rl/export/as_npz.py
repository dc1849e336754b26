"""Policies as plain NumPy arrays."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from samba_rl.errors import UserError
from samba_rl.export.description import Description, Floats, Layer, Monitor
from samba_rl.export.reading import content, damaged, sound
from samba_rl.runs.policy_file import FORMAT, SEVERAL, VERSION

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOMENT = (1980, 1, 1, 0, 0, 0)
"""Date of all entries, so that the same policy gives the same file."""


def encode(policy: Description, stem: str) -> bytes:  # noqa: ARG001 - the file does not contain its name
    """Return the content of a file that `numpy.load` reads."""
    arrays: dict[str, NDArray[np.float64] | NDArray[np.str_] | NDArray[np.int64]] = {
        "format": np.array(f"{FORMAT} {SEVERAL if policy.gate else VERSION}"),
        "observations": np.array(policy.observations, dtype=np.str_),
        "actions": np.array(policy.actions, dtype=np.str_),
        "centre": policy.centre,
        "scale": policy.scale,
        "low": policy.low,
        "high": policy.high,
        # Infinity: no squash.
        "squash": np.array(np.inf if policy.squash is None else policy.squash),
        "std": policy.std,
        "dt": np.array(policy.dt),
        "layers": np.array(len(policy.layers)),
        "provenance": np.array(json.dumps(dict(policy.provenance), ensure_ascii=True)),
    }
    for i, (weight, bias) in enumerate(policy.layers):
        arrays[f"weight{i}"], arrays[f"bias{i}"] = weight, bias
    if policy.gate:
        arrays["gate_layers"] = np.array(len(policy.gate))
    for i, (weight, bias) in enumerate(policy.gate):
        arrays[f"gate_weight{i}"], arrays[f"gate_bias{i}"] = weight, bias
    if policy.monitor is not None:
        arrays["points"], arrays["spread"] = policy.monitor.points, policy.monitor.scale
        arrays["radius"] = np.array(policy.monitor.radius)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, value in arrays.items():
            entry = io.BytesIO()
            np.lib.format.write_array(entry, np.ascontiguousarray(value).reshape(value.shape), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", _MOMENT), entry.getvalue())
    return packed.getvalue()


def load(path: Path) -> Description:
    """Read a policy from an exported .npz file."""
    packed = content(path)
    try:
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            # Compressed entries, which no export has, could be far larger than the file.
            if any(entry.file_size != entry.compress_size for entry in archive.infolist()):
                raise UserError("its entries are compressed")
        with np.load(io.BytesIO(packed), allow_pickle=False) as found:
            arrays = {name: np.array(found[name]) for name in found.files}
    except Exception as error:
        # NumPy and zipfile raise a dozen kinds of errors for a file that is not an archive of arrays.
        raise damaged(path, error) from error
    if "centre" in arrays and "format" not in arrays:
        raise UserError(
            f"{path} is the policy of a run's folder, which only samba_rl reads; give a file that samba-rl export wrote"
        )
    if str(arrays.get("format")) not in (f"{FORMAT} {VERSION}", f"{FORMAT} {SEVERAL}"):
        raise UserError(
            f"{path} is no policy file of version {VERSION} or {SEVERAL}; give one that samba-rl export wrote"
        )
    try:
        return sound(path, _description(arrays))
    except UserError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(path, error) from error


def _description(arrays: Mapping[str, NDArray[np.generic]]) -> Description:
    def floats(name: str) -> Floats:
        return np.asarray(arrays[name], dtype=np.float64)

    def layers(count: str, kind: str) -> tuple[Layer, ...]:
        numbers = range(min(int(arrays[count]), len(arrays)))
        return tuple(Layer(floats(f"{kind}weight{i}"), floats(f"{kind}bias{i}")) for i in numbers)

    squash = float(floats("squash"))
    has_monitor = "points" in arrays
    return Description(
        observations=tuple(arrays["observations"].tolist()),
        actions=tuple(arrays["actions"].tolist()),
        centre=floats("centre"),
        scale=floats("scale"),
        low=floats("low"),
        high=floats("high"),
        squash=None if np.isinf(squash) else squash,
        layers=layers("layers", ""),
        std=floats("std"),
        dt=float(floats("dt")),
        monitor=Monitor(floats("points"), floats("spread"), float(floats("radius"))) if has_monitor else None,
        provenance=dict(json.loads(str(arrays["provenance"]))),
        gate=layers("gate_layers", "gate_") if str(arrays["format"]).endswith(f" {SEVERAL}") else (),
    )
