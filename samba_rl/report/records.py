"""What the pictures of a benchmark need to know of its finished cells, how cells are grouped, and how learners look."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from samba_rl.learners import LEARNERS
from samba_rl.report.style import BLUE, GREEN, INK, ORANGE, PURPLE, SKY, VERMILION
from samba_rl.tasks import TASKS, make_task

if TYPE_CHECKING:
    from samba_rl.runs.evaluation import Evaluation


class CellRecord(Protocol):
    """What was run."""

    @property
    def task(self) -> str:
        """The system."""
        ...

    @property
    def learner(self) -> str:
        """The learner."""
        ...

    @property
    def seed(self) -> int:
        """The seed."""
        ...

    @property
    def preset(self) -> str:
        """The preset."""
        ...

    @property
    def budget_scale(self) -> float:
        """Share of the preset's real samples."""
        ...


class PointRecord(Protocol):
    """A real trial."""

    @property
    def real_samples(self) -> int:
        """Steps so far."""
        ...

    @property
    def return_mean(self) -> float:
        """Of an episode."""
        ...

    @property
    def learning_TC(self) -> float:  # noqa: N802 - the paper's name
        """Safety cost so far."""
        ...

    @property
    def learning_TV(self) -> int:  # noqa: N802 - the paper's name
        """Unsafe steps so far."""
        ...


class TailRecord(Protocol):
    """The first constraint after a trial."""

    @property
    def iteration(self) -> int:
        """The trial."""
        ...

    @property
    def predicted(self) -> float:
        """What the model promised,"""
        ...

    @property
    def target(self) -> float:
        """what it was held under,"""
        ...

    @property
    def realised(self) -> float:
        """and what it was on the real system."""
        ...


class ResultRecord(Protocol):
    """What the pictures need to know of a finished cell of the benchmark."""

    @property
    def cell(self) -> CellRecord:
        """What was run."""
        ...

    @property
    def with_noise(self) -> Evaluation:
        """How good and safe the policy is that was learned."""
        ...

    @property
    def curve(self) -> Sequence[PointRecord]:
        """The real trials."""
        ...

    @property
    def tail(self) -> Sequence[TailRecord]:
        """What became of the constraint."""
        ...


@dataclass(frozen=True)
class Look:
    """How a learner is drawn, the same in every picture."""

    colour: str
    dashes: str
    marker: str


_LOOKS = (
    Look(BLUE, "-", "o"),
    Look(SKY, "--", "s"),
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
    """How a learner is drawn; those of a user's own all look alike."""
    return _LOOKS[list(LEARNERS).index(learner) % len(_LOOKS)] if learner in LEARNERS else _OWN


def place(name: str, known: Collection[str]) -> tuple[int, str]:
    """Where a name belongs in an order: the known ones come first, then others by name."""
    return (list(known).index(name) if name in known else len(known), name)


def title_of(task: str) -> str:
    """What a system is called; one of a user's own has only its name here."""
    return make_task(task).title if task in TASKS else task


@dataclass(frozen=True)
class Group:
    """The seeds of one learner on one system with the same settings."""

    task: str
    learner: str
    label: str
    """The learner, and what else tells the group from others that are drawn with it."""
    variant: int
    """Its number among the groups of this learner on this system."""
    results: tuple[ResultRecord, ...]


def groups(results: Sequence[ResultRecord], task: str | None = None) -> list[Group]:
    """Results by system, learner and settings, in the order of the systems and of the learners' table."""
    found: dict[tuple[Any, ...], list[ResultRecord]] = {}
    for result in results:
        c, limit = result.cell, result.with_noise.limit
        if task in (None, c.task):
            # So that 30 steps of 0.025 and 0.75 are the same limit; learners without one come first.
            xi = -1.0 if limit is None else float(f"{limit:.6g}")
            found.setdefault((c.task, c.learner, c.preset, xi, c.budget_scale), []).append(result)
    keys = sorted(found, key=lambda k: (place(k[0], TASKS), place(k[1], LEARNERS), *k[2:]))
    presets, limits, scales = ({key[i] for key in keys} for i in (2, 3, 4))
    made: list[Group] = []
    for key in keys:
        name, learner, preset, xi, scale = key
        more = [
            *([preset] if len(presets) > 1 else []),
            *([f"ξ {xi:g}"] if len(limits - {-1.0}) > 1 and xi >= 0 else []),
            *([f"budget × {scale:g}"] if len(scales) > 1 else []),
        ]
        variant = sum(group.task == name and group.learner == learner for group in made)
        made.append(Group(name, learner, ", ".join([learner, *more]), variant, tuple(found[key])))
    return made
