"""Writing a policy in the format that a file's suffix names, and comparing files with the policy of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, final

import numpy as np
import torch

from samba_rl.data.coverage import POINTS
from samba_rl.data.files import replacing
from samba_rl.errors import UserError
from samba_rl.export import as_c, as_json, as_npz, as_onnx
from samba_rl.export.description import Description, Floats, Output, describe
from samba_rl.improve.policies import GaussianPolicy
from samba_rl.runs.folder import writing

if TYPE_CHECKING:
    from samba_rl.runs import Run

OBSERVATIONS = 10_000
"""Observations on which a file is compared with a policy."""
FAR = 5.0
"""Largest distance of half of these from the centre of the observations, in their scale."""


class Format(NamedTuple):
    """A format of policy files."""

    encode: Callable[[Description, str], bytes]
    """Return the content of a file, given the policy and the stem of the file's name."""
    load: Callable[[Path], Callable[[Floats], Output]]
    """Read a file; the result maps observations [B, no] to actions and monitor."""


FORMATS = {
    ".onnx": Format(as_onnx.encode, as_onnx.load),
    ".c": Format(as_c.encode_source, as_c.load),
    ".h": Format(as_c.encode_header, as_c.load),
    ".npz": Format(as_npz.encode, as_npz.load),
    ".json": Format(as_json.encode, as_json.load),
}
"""Formats by the suffix of a file."""


@final
@dataclass(frozen=True)
class Comparison:
    """Largest differences between a policy file and the policy of a run."""

    observations: int
    """Number of observations."""
    action: float
    """Largest difference of an action, as a share of its range."""
    monitor: float | None
    """Largest difference of the monitor, relative to the larger of 1 and its value; None if the file has none."""

    def within(self, tolerance: float) -> bool:
        """Return whether both differences are at most the tolerance."""
        return max(self.action, self.monitor or 0.0) <= tolerance


def format_of(path: Path) -> Format:
    """Return the format that a path names."""
    if path.suffix.lower() not in FORMATS:
        raise UserError(f"cannot write or read a policy as '{path}'; its name must end in {', '.join(FORMATS)}")
    return FORMATS[path.suffix.lower()]


def write(policy: Description, path: str | Path) -> None:
    """Write a policy in the format that the path names, completely or not at all."""
    packed = format_of(Path(path)).encode(policy, Path(path).stem)
    with writing(Path(path)), replacing(path) as file:
        file.write(packed)


def compare(
    run: Run, path: str | Path, *, points: int = POINTS, count: int = OBSERVATIONS, seed: int = 0
) -> Comparison:
    """Compare a policy file with `run.policy.act` on observations around the data and far beyond them.

    `points` is the number of representatives with which the file was exported.
    """
    described, loaded = describe(run, points=points), format_of(Path(path)).load(Path(path))
    assert isinstance(run.policy, GaussianPolicy)
    if isinstance(loaded, Description):
        for kind in ("observations", "actions"):
            found, due = getattr(loaded, kind), getattr(described, kind)
            if len(found) != len(due):
                raise UserError(f"{path} has the {kind} {', '.join(found)}; those of the run are {', '.join(due)}")
    probes = _probes(run, described, count, seed)
    found = loaded(probes)
    if found.action.shape != (count, len(described.actions)):
        raise UserError(f"{path} gives actions {list(found.action.shape)}; expected {[count, len(described.actions)]}")
    span = described.high - described.low
    action = float((np.abs(found.action - run.policy.act(probes)) / span).max())
    due = None if found.monitor is None else described(probes).monitor
    if due is None or found.monitor is None:
        return Comparison(count, action, None)
    return Comparison(count, action, float((np.abs(found.monitor - due) / np.maximum(1, due)).max()))


def _probes(run: Run, policy: Description, count: int, seed: int) -> Floats:
    """Return observations [count, no]: half of them near the data, the others spread far beyond."""
    random = np.random.default_rng(seed)
    steps = run.data.transitions
    rows = torch.from_numpy(random.integers(len(steps), size=count - count // 2))
    near = run.task.observe(steps.x[rows]).double().numpy()
    near = near + 0.1 * policy.scale * random.normal(size=near.shape)
    far = policy.centre + FAR * policy.scale * random.uniform(-1, 1, size=(count // 2, len(policy.centre)))
    return np.asarray(np.concatenate([near, far]), dtype=np.float64)
