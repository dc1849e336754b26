"""Episodes in logs: which lines follow each other, and what they are at the rate of the system."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

import numpy as np

from samba_rl.errors import UserError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from samba_rl.data.logs import Floats, Log

SAME_RATE = 0.01
"""Relative difference of two sampling times that counts as none."""
GAP = 1.5
"""Time between two samples, in sampling times, from which something is missing between them."""
SLOWEST = 1.25
"""Sampling time of a log, in time steps of the system, up to which it is interpolated."""


@final
@dataclass(frozen=True)
class Recording:
    """Samples of a log: the state at a line, and what was applied and measured from there to the next."""

    x: Floats
    """States [N, nx]."""
    held: Mapping[str, Floats]
    """Values that hold from a sample to the next [N], by name: actions, and costs if the log has them."""
    x_next: Floats | None = None
    """States reached [N, nx], if the log has a line for each step; else the next line has them."""
    episode: Floats | None = None
    """Number of the episode [N]; None: one, or as many as the time begins anew."""
    step: Floats | None = None
    """Number of the step in its episode [N]."""
    time: Floats | None = None
    """Time of each sample [N], in seconds."""


@final
@dataclass(frozen=True)
class Piece:
    """Consecutive steps of one episode at the rate of the system."""

    x: Floats
    """States [n + 1, nx]."""
    held: Mapping[str, Floats]
    """Values of each step [n], by name."""


@final
@dataclass
class Found:
    """What a log contains."""

    pieces: list[Piece] = field(default_factory=list)
    dropped: dict[str, list[int]] = field(default_factory=dict)
    """Lines that belong to no step, by reason."""
    rate: str = ""
    """What was done about the rate of the log."""


def pieces_of(log: Log, recording: Recording, dt: float, log_dt: float | None) -> Found:
    """Cut a log into pieces without gaps, at the rate of a system with time step `dt` [s].

    `log_dt` is the time between two lines [s]; None: from the time of the samples, or else `dt`.
    """
    found = Found()
    rate = _sampling_time(log, recording, dt, log_dt)
    follows = _follows(log, recording, rate, found)
    ends = np.flatnonzero(~follows)
    starts = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        rows = slice(start, end + 1)
        if recording.x_next is not None:
            piece = Piece(
                np.concatenate([recording.x[rows], recording.x_next[end : end + 1]]),
                {name: values[rows] for name, values in recording.held.items()},
            )
            whole = bool(_is_finite(recording, np.arange(start, end + 1), last=True).all())
        else:
            piece = Piece(recording.x[rows], {name: values[rows][:-1] for name, values in recording.held.items()})
            whole = end > start
        if whole:
            found.pieces.append(piece)
    times = None if recording.time is None else [recording.time[s : e + 1] for s, e in zip(starts, ends, strict=True)]
    _at_rate(log, recording, found, dt, rate, times)
    return found


def _sampling_time(log: Log, recording: Recording, dt: float, log_dt: float | None) -> float:
    """Return the time between two samples of a log."""
    if log_dt is not None:
        if not (np.isfinite(log_dt) and log_dt > 0):
            raise UserError(f"the time between two lines is {log_dt} s; it must be positive")
        return log_dt
    if recording.time is None:
        return dt
    between = np.diff(recording.time)
    between = between[between > 0]
    if not len(between):
        raise UserError(f"'{log.where}': the time never increases; it must be in seconds and grow within an episode")
    return float(np.median(between))


def _is_finite(recording: Recording, rows: NDArray[np.int64], *, last: bool) -> NDArray[np.bool_]:
    """Return whether samples are whole [n]; a sample that nothing follows needs no action, unless it is a step."""
    whole: NDArray[np.bool_] = np.array(np.isfinite(recording.x[rows]).all(1))
    if recording.x_next is not None:
        whole = whole & np.isfinite(recording.x_next[rows]).all(1)
    if last:
        for values in recording.held.values():
            whole = whole & np.isfinite(values[rows])
    return whole


def _follows(log: Log, recording: Recording, rate: float, found: Found) -> NDArray[np.bool_]:
    """Return whether a step leads from each sample to the next line [N], and note the lines that lead nowhere."""
    n = len(log)
    every = np.arange(n)
    state, whole = _is_finite(recording, every, last=False), _is_finite(recording, every, last=True)
    same, gap = np.ones(n, dtype=bool), np.zeros(n, dtype=bool)
    same[-1:] = False
    for values in (recording.episode,):
        if values is not None:
            same[:-1] &= np.diff(values) == 0
    if recording.step is not None:
        gap[:-1] |= np.diff(recording.step) != 1
    if recording.time is not None:
        between = np.diff(recording.time)
        if recording.episode is None:
            same[:-1] &= between > 0
        gap[:-1] |= (between > GAP * rate) | (between <= 0)
    if recording.x_next is not None:
        gap[:-1] |= (recording.x_next[:-1] != recording.x[1:]).any(1)
    follows: NDArray[np.bool_] = same & ~gap & whole
    follows[:-1] &= state[1:] if recording.x_next is None else whole[1:]
    used = whole.copy() if recording.x_next is not None else follows.copy()
    if recording.x_next is None:
        used[1:] |= follows[:-1]
    reasons = {
        "a value is missing or not finite": ~used & ~(state & whole),
        "nothing follows after a gap": ~used & state & whole,
    }
    found.dropped = {why: log.lines[rows].tolist() for why, rows in reasons.items() if rows.any()}
    return follows


def _at_rate(log: Log, recording: Recording, found: Found, dt: float, rate: float, times: list[Floats] | None) -> None:
    """Bring pieces to the rate of the system, and say so."""
    steady = True
    if times is not None and len(found.pieces):
        between = np.concatenate([np.diff(each) for each in times if len(each) > 1] or [np.array([rate])])
        steady = bool((np.abs(between - rate) <= SAME_RATE * rate + 1e-9).all())
    if steady and abs(rate - dt) <= SAME_RATE * dt:
        return
    if rate > SLOWEST * dt:
        raise UserError(
            f"'{log.where}' has a line every {rate:g} s, but the system takes a step every {dt:g} s: what happened in "
            f"between is unknown. Give the system dt={rate:g}, or record faster"
        )
    if recording.x_next is not None:
        raise UserError(
            f"'{log.where}' has a line every {rate:g} s, the system takes a step every {dt:g} s, and its columns "
            "next:… prevent resampling; leave these columns out"
        )
    kept = [each for each in times or [] if len(each) > 1]
    found.pieces = [
        piece
        for i, old in enumerate(found.pieces)
        if (piece := _resampled(old, kept[i] if kept else np.array(rate * np.arange(len(old.x)), dtype=np.float64), dt))
        is not None
    ]
    how = "" if steady else " unsteadily"
    found.rate = f"sampled every {rate:g} s{how}, resampled to {dt:g} s"


def _resampled(piece: Piece, times: Floats, dt: float) -> Piece | None:
    """Return a piece sampled at `times` [n + 1] at multiples of dt: states interpolated, held values averaged."""
    times = times - times[0]
    steps = int(np.floor(times[-1] / dt + 1e-6))
    if steps < 1:
        return None
    grid = dt * np.arange(steps + 1)
    x = np.stack([np.interp(grid, times, column) for column in piece.x.T], axis=1)
    held = {}
    for name, values in piece.held.items():
        total = np.concatenate([[0.0], np.cumsum(values * np.diff(times))])
        held[name] = np.diff(np.interp(grid, times, total)) / dt
    return Piece(x, held)
