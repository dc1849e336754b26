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
from samba_rl.export import as_c, as_json, as_npz, as_onnx, from_c
from samba_rl.export.description import Acts, Description, Floats, Output, describe
from samba_rl.improve.experts import MixturePolicy
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
    load: Callable[[Path], Acts]
    """Read a file; the result maps observations [B, no] to actions and monitor."""


FORMATS = {
    ".onnx": Format(as_onnx.encode, as_onnx.load),
    ".c": Format(as_c.encode_source, from_c.load),
    ".h": Format(as_c.encode_header, from_c.load),
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
    choice: float | None = None
    """Largest amount by which the gate rates an expert that the file chooses below the best one, relative to the larger
    of 1 and its largest rating; None for a single expert."""

    def within(self, tolerance: float) -> bool:
        """Return whether all differences are at most the tolerance."""
        return max(self.action, self.monitor or 0.0, self.choice or 0.0) <= tolerance


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

    `points` is the number of representatives with which the file was exported. Several experts are compared in episodes
    that began with another observation.
    """
    described, loaded = describe(run, points=points), format_of(Path(path)).load(Path(path))
    if isinstance(loaded, Description):
        for kind in ("observations", "actions"):
            found, due = getattr(loaded, kind), getattr(described, kind)
            if len(found) != len(due):
                raise UserError(f"{path} has the {kind} {', '.join(found)}; those of the run are {', '.join(due)}")
    probes = _probes(run, described, count, seed)
    first = _probes(run, described, count, seed + 1)
    found = loaded(probes, first)
    if found.action.shape != (count, len(described.actions)):
        raise UserError(f"{path} gives actions {list(found.action.shape)}; expected {[count, len(described.actions)]}")
    acting, choice = _reference(run, found, probes, first, path)
    action = float((np.abs(found.action - acting) / (described.high - described.low)).max())
    due = None if found.monitor is None else described(probes).monitor
    if due is None or found.monitor is None:
        return Comparison(count, action, None, choice)
    return Comparison(count, action, float((np.abs(found.monitor - due) / np.maximum(1, due)).max()), choice)


def _reference(run: Run, found: Output, probes: Floats, first: Floats, path: str | Path) -> tuple[Floats, float | None]:
    """Return the actions of the run's policy [B, nu] by the experts that the file chose, and the choice's error."""
    policy, chosen = run.policy, found.expert
    assert isinstance(policy, GaussianPolicy | MixturePolicy)
    experts = policy.gate.experts if isinstance(policy, MixturePolicy) else 1
    if (experts > 1) != (chosen is not None) or (chosen is not None and not np.isin(chosen, range(experts)).all()):
        has = "a single expert" if chosen is None else "other experts"
        raise UserError(f"{path} has {has}; the policy of the run has {experts} (policy.experts)")
    if isinstance(policy, GaussianPolicy) or chosen is None:
        return policy.act(probes), None
    ratings = policy.exact_logits(torch.from_numpy(first))
    short = ratings.amax(1) - ratings[torch.arange(len(ratings)), torch.from_numpy(chosen)]
    noted = np.concatenate([probes, np.eye(experts)[chosen]], axis=1)
    return policy.actor.act(noted), float(short.max() / ratings.abs().max().clamp(min=1))


def _probes(run: Run, policy: Description, count: int, seed: int) -> Floats:
    """Return observations [count, no]: half of them near the data, the others spread far beyond."""
    random = np.random.default_rng(seed)
    steps = run.data.transitions
    rows = torch.from_numpy(random.integers(len(steps), size=count - count // 2))
    near = run.task.observe(steps.x[rows]).double().numpy()
    near = near + 0.1 * policy.scale * random.normal(size=near.shape)
    far = policy.centre + FAR * policy.scale * random.uniform(-1, 1, size=(count // 2, len(policy.centre)))
    return np.asarray(np.concatenate([near, far]), dtype=np.float64)
