"""The learners as rows of a table: four choices each, all of them frozen values that know how to act."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, final

from samba_rl.errors import UserError, did_you_mean
from samba_rl.improve.constraints import Chance, Constraint, CVaR, Expectation
from samba_rl.improve.objectives import Cost, Information, Objective, Safety
from samba_rl.improve.updates.rules import Projection, Proximal, TrustRegion, UpdateRule
from samba_rl.models.information import InformationGain
from samba_rl.models.zeta import Entropy, LeaveOneOut, Zeta

__all__ = [
    "LEARNERS",
    "CVaR",
    "Chance",
    "Cost",
    "Entropy",
    "Expectation",
    "GPModel",
    "Information",
    "InformationGain",
    "LatentModel",
    "Learner",
    "LeaveOneOut",
    "Planning",
    "Projection",
    "Proximal",
    "RealTrials",
    "Safety",
    "TrustRegion",
    "find_learner",
]  # fmt: skip
# Where the traces come from -------------------------------------------------------------------------------------------


class TraceSource(Protocol):
    """Where the traces come from on which a policy is improved."""

    label: ClassVar[str]
    title: ClassVar[str]
    imagines: ClassVar[bool]
    """Whether a Gaussian-process model imagines the traces."""
    predicts: ClassVar[bool]
    """Whether the learner predicts the outcome of a trial before it happens."""


@final
@dataclass(frozen=True)
class GPModel:
    """Trajectories that a Gaussian-process model imagines."""

    label: ClassVar[str] = "model"
    title: ClassVar[str] = "a GP model"
    imagines: ClassVar[bool] = True
    predicts: ClassVar[bool] = True


@final
@dataclass(frozen=True)
class RealTrials:
    """The policy's own trials on the real system."""

    label: ClassVar[str] = "real"
    title: ClassVar[str] = "real trials"
    imagines: ClassVar[bool] = False
    predicts: ClassVar[bool] = False


@final
@dataclass(frozen=True)
class LatentModel:
    """Trajectories in the latent space of a recurrent model, for a planner."""

    label: ClassVar[str] = "latent"
    title: ClassVar[str] = "a latent model"
    imagines: ClassVar[bool] = False
    predicts: ClassVar[bool] = True


@final
@dataclass(frozen=True)
class Planning:
    """No update: a planner on the latent model is the policy."""

    label: ClassVar[str] = "none"
    own_dual: ClassVar[bool] = False


# The rows -------------------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Learner:
    """One learner: a row of the table."""

    source: TraceSource
    """Where the traces come from on which the policy is improved."""
    objectives: tuple[Objective, ...]
    """What is minimised, the cost first."""
    constraint: type[Constraint] | None
    """Kind of limit on the safety cost."""
    update: UpdateRule | Planning
    """How the policy is improved."""

    def __post_init__(self) -> None:
        kinds = tuple(type(objective) for objective in self.objectives)
        plans = isinstance(self.source, LatentModel)
        second = Safety if plans else Information
        if kinds not in ((Cost,), (Cost, second)):
            given = ", ".join(kind.label for kind in kinds) or "nothing"
            raise UserError(
                f"a learner on {self.source.title} minimises {given}; give cost, alone or with {second.label}"
            )
        if Information in kinds and not self.source.imagines:
            raise UserError("information on real trials: steps that were taken cannot show what others would teach")
        if plans is not isinstance(self.update, Planning):
            rule = self.update.label
            raise UserError(
                f"update '{rule}' on {self.source.title}: a latent model is planned on, and nothing else is"
            )
        if plans and self.constraint is not None:
            raise UserError(
                "a planner on a latent model has no limits; minimise the safety cost beside the cost instead"
            )
        if self.update.own_dual and self.constraint is None:
            raise UserError(f"update '{self.update.label}' keeps to a limit; give a constraint, or take 'trust-region'")

    @property
    def zeta(self) -> Zeta | None:
        """Return the exploration signal ζ that is maximised; None without one."""
        return next((one.zeta for one in self.objectives if isinstance(one, Information)), None)

    def with_zeta(self, zeta: Zeta | None) -> Learner:
        """Return the row with another exploration signal; None explores nothing."""
        rest = tuple(one for one in self.objectives if not isinstance(one, Information))
        return replace(self, objectives=rest if zeta is None else (*rest, Information(zeta)))


NONE = "none"
SOURCES: dict[str, TraceSource] = {one.label: one for one in (GPModel(), RealTrials(), LatentModel())}
RULES: dict[str, UpdateRule] = {one.label: one for one in (Proximal(), TrustRegion(), Projection())}
UPDATES: dict[str, UpdateRule | Planning] = {**RULES, Planning.label: Planning()}
"""The words of files and flags, and the values that they stand for."""

LEARNERS = {
    "samba": Learner(GPModel(), (Cost(), Information(InformationGain())), CVaR, Proximal()),
    "sppilco": Learner(GPModel(), (Cost(),), CVaR, Proximal()),
    "ppilco": Learner(GPModel(), (Cost(),), None, Proximal()),
    "ppo": Learner(RealTrials(), (Cost(),), None, Proximal()),
    "sppo": Learner(RealTrials(), (Cost(),), Expectation, Proximal()),
    "trpo": Learner(RealTrials(), (Cost(),), None, TrustRegion()),
    "strpo": Learner(RealTrials(), (Cost(),), Expectation, TrustRegion()),
    "cpo": Learner(RealTrials(), (Cost(),), Expectation, Projection()),
    "planet": Learner(LatentModel(), (Cost(),), None, Planning()),
    "planet-rs": Learner(LatentModel(), (Cost(), Safety()), None, Planning()),
}
"""The ten learners of the paper's tables. In the preset `paper` SAMBA seeks the paper's ζ_LOO instead."""


def find_learner(learner: str | Learner) -> Learner:
    """Return the row of that name, or the given row."""
    if isinstance(learner, Learner):
        return learner
    if learner not in LEARNERS:
        raise UserError(f"no learner is called '{learner}'; {did_you_mean(learner, LEARNERS)}")
    return LEARNERS[learner]
