"""Groups of benchmark results that are drawn as one line or marker, and the look of each learner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from samba_rl.benchmark.cells import CellResult
from samba_rl.benchmark.groups import limit_of
from samba_rl.benchmark.names import learner_name, place
from samba_rl.learners import LEARNERS
from samba_rl.report.style import BLUE, GREEN, INK, ORANGE, PURPLE, SKY, VERMILION
from samba_rl.tasks import TASKS


@dataclass(frozen=True)
class Look:
    """Colour, dashes and marker of a learner, the same in every figure; as Matplotlib names them."""

    colour: str
    dashes: str
    marker: str
    size: float = 1.0
    """Width of the line and size of the marker, relative to the others'."""


# The first is drawn on top. The second, which often coincides with it, is wider and shows on both sides of it.
_LOOKS = (
    Look(BLUE, "-", "o"),
    Look(SKY, "-", "s", 1.7),
    Look(GREEN, "-.", "^"),
    Look(VERMILION, "-", "D"),
    Look(ORANGE, "--", "v"),
    Look(PURPLE, "-", "P"),
    Look(PURPLE, "--", "X"),
    Look(INK, ":", "*"),
    Look("0.5", "-", "<"),
    Look("0.5", "--", ">"),
)
_OWN = Look(INK, "-.", "p")


def look_of(learner: str) -> Look:
    """Return the look of a learner; all of a user's own learners look alike."""
    return _LOOKS[list(LEARNERS).index(learner) % len(_LOOKS)] if learner in LEARNERS else _OWN


@dataclass(frozen=True)
class Group:
    """The seeds of one learner on one system with the same settings."""

    task: str
    learner: str
    label: str
    """Name of the learner, followed by the settings in which the groups differ."""
    variant: int
    """Index of its settings among those of this learner on all systems; the most frequent settings come first."""
    results: tuple[CellResult, ...]


class _Key(NamedTuple):
    task: str
    learner: str
    preset: str
    xi: float
    """Limit on a trajectory; -1 without one, so that learners without a limit come first."""
    scale: float


def groups(results: Sequence[CellResult], task: str | None = None) -> list[Group]:
    """Return the results of one system (None: of all) by system, learner and settings, in the order of the tables."""
    found: dict[_Key, list[CellResult]] = {}
    for result in results:
        c, limit = result.cell, limit_of(result)
        key = _Key(c.task, c.learner, c.preset, -1.0 if limit is None else limit, c.budget_scale)
        found.setdefault(key, []).append(result)
    often: Counter[tuple[str, float, float]] = Counter()
    for key, of in found.items():
        often[key[2:]] += len(of)
    variants: dict[str, list[tuple[str, float, float]]] = {}
    for _, learner, settings in sorted({(-often[key[2:]], key.learner, key[2:]) for key in found}):
        variants.setdefault(learner, []).append(settings)
    keys = sorted(
        (key for key in found if task in (None, key.task)),
        key=lambda k: (place(k.task, TASKS), place(k.learner, LEARNERS), *k[2:]),
    )
    presets, limits, scales = {k.preset for k in keys}, {k.xi for k in keys} - {-1.0}, {k.scale for k in keys}
    made: list[Group] = []
    for key in keys:
        more = [
            *([key.preset] if len(presets) > 1 else []),
            *([f"ξ {key.xi:g}"] if len(limits) > 1 and key.xi >= 0 else []),
            *([f"budget × {key.scale:g}"] if len(scales) > 1 else []),
        ]
        label = ", ".join([learner_name(key.learner), *more])
        made.append(Group(key.task, key.learner, label, variants[key.learner].index(key[2:]), tuple(found[key])))
    return made
