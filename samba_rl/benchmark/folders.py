"""What the folder of a run says by itself, without its system."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from samba_rl.benchmark.audit import read_audit
from samba_rl.benchmark.cells import Cell, CellResult, curve_of, tail_of
from samba_rl.data.plain import from_plain
from samba_rl.errors import UserError
from samba_rl.events import Event
from samba_rl.runs.certify import CERTIFICATE, Certificate
from samba_rl.runs.evaluation import read_evaluations
from samba_rl.runs.folder import EXTENDED, SUMMARY, read_json
from samba_rl.runs.following import Follower
from samba_rl.runs.listing import Overview


def events_in(folder: Path) -> list[Event]:
    """Return the events of a run so far; those before the damage, if its metrics are damaged."""
    follower = Follower(folder)
    with contextlib.suppress(UserError):
        follower.refresh()
    return follower.events


def result_in(folder: Path, seen: Overview) -> CellResult | None:
    """Return the result of a finished run from its files; None if it was not evaluated."""
    summary, both, events = read_json(folder / SUMMARY), read_evaluations(folder), events_in(folder)
    if both is None:
        return None
    where, words = str(folder / SUMMARY), ", ".join(seen.changes)
    versions = summary.get("versions")
    return CellResult(
        cell=Cell(seen.task, seen.learner, seen.seed or 0, f"{seen.preset} with {words}" if words else seen.preset),
        real_samples=from_plain(int, summary.get("real_samples"), where),
        learning_TC=from_plain(float, summary.get("learning_TC"), where),
        learning_TV=from_plain(int, summary.get("learning_TV"), where),
        seconds=from_plain(float, summary.get("seconds"), where),
        device=str(summary.get("device")),
        with_noise=both[0],
        without_noise=both[1],
        curve=curve_of(events),
        tail=tail_of(events, read_audit(folder)),
        versions=tuple((str(name), str(of)) for name, of in versions.items()) if isinstance(versions, dict) else (),
    )


def bounds_in(summary: Mapping[str, object]) -> tuple[float, ...]:
    """Return the upper bound of each constraint on the model, from a run's summary; empty if it has none."""
    limits = summary.get("constraints")
    found = [each.get("bound") for each in limits if isinstance(each, dict)] if isinstance(limits, list) else []
    return tuple(float(bound) for bound in found if isinstance(bound, (int, float)))


def certificate_in(folder: Path) -> Certificate | None:
    """Return the latest certificate of a run; None without one, and if the run has gone on since."""
    path = folder / CERTIFICATE
    if not path.exists():
        return None
    if (folder / EXTENDED).exists() and path.stat().st_mtime < (folder / SUMMARY).stat().st_mtime:
        return None
    try:
        kept = read_json(path)
        kept.pop("certified", None)
        for limit in kept.get("limits", ()):
            for name in ("certified", "verdict"):
                limit.pop(name, None)
        found: Certificate = from_plain(Certificate, kept, str(path))
    except (UserError, TypeError, AttributeError):
        return None  # of another version, or damaged: the limits are judged without it
    return found
