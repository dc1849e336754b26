"""What the pictures of a benchmark need to know of its finished cells, how cells are grouped, and how learners look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from samba_rl.figures.style import BLUE, GREEN, INK, ORANGE, PURPLE, SKY, VERMILION
from samba_rl.learners import LEARNERS
from samba_rl.tasks import TASKS
from samba_rl.types import UserError

if TYPE_CHECKING:
    from samba_rl.evaluation import Evaluation


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
    def limit(self) -> float | None:
        """ξ of a trajectory, where it is not the preset's."""
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
LOOKS = {learner: _LOOKS[i % len(_LOOKS)] for i, learner in enumerate(LEARNERS)}


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
        c = result.cell
        if c.task not in TASKS or c.learner not in LEARNERS:
            raise UserError(f"the results hold '{c.learner}' on '{c.task}', which this samba_rl does not know")
        if task in (None, c.task):
            limit = -1.0 if c.limit is None else c.limit
            found.setdefault((c.task, c.learner, c.preset, limit, c.budget_scale), []).append(result)
    tasks, learners = list(TASKS), list(LEARNERS)
    keys = sorted(found, key=lambda k: (tasks.index(k[0]), learners.index(k[1]), *k[2:]))
    several = [len({key[i] for key in keys}) > 1 for i in range(5)]
    made: list[Group] = []
    for key in keys:
        _, learner, preset, limit, scale = key
        limited = LEARNERS[learner].constraint != "none"
        more = [
            *([preset] if several[2] else []),
            *(["ξ preset" if limit < 0 else f"ξ {limit:g}"] if several[3] and limited else []),
            *([f"budget × {scale:g}"] if several[4] else []),
        ]
        variant = sum(group.task == key[0] and group.learner == learner for group in made)
        made.append(Group(key[0], learner, ", ".join([learner, *more]), variant, tuple(found[key])))
    return made
