"""Update rules: the frozen values that a learner's row names, each of which makes its update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol, final

from samba_rl.improve.advantages import Critics
from samba_rl.improve.policies import GaussianPolicy
from samba_rl.improve.updates.batch import Update
from samba_rl.improve.updates.natural import NaturalUpdate
from samba_rl.improve.updates.projection import ProjectionStep
from samba_rl.improve.updates.proximal import ProximalSettings, ProximalUpdate
from samba_rl.improve.updates.trust_region import TrustRegionSettings, TrustRegionStep


@dataclass(frozen=True)
class UpdateSettings:
    """The numbers of all update rules."""

    proximal: ProximalSettings
    """Passes, minibatches and the critics' regression, which all rules share."""
    trust_region: TrustRegionSettings
    """Natural-gradient steps."""


class UpdateRule(Protocol):
    """A way to improve a policy on a batch."""

    label: ClassVar[str]
    own_dual: ClassVar[bool]
    """Whether the update keeps to the limit by itself and finds λ on the way. Otherwise the learner adapts λ."""

    def make(self, policy: GaussianPolicy, critics: Critics, settings: UpdateSettings) -> Update:
        """Make the update of a policy and its critics."""
        ...


@final
@dataclass(frozen=True)
class Proximal:
    """Clipped steps over several passes (PPO), on the Lagrangian."""

    label: ClassVar[str] = "proximal"
    own_dual: ClassVar[bool] = False

    def make(self, policy: GaussianPolicy, critics: Critics, settings: UpdateSettings) -> Update:
        """Make the update of a policy and its critics."""
        return ProximalUpdate(policy, critics, settings.proximal)


@final
@dataclass(frozen=True)
class TrustRegion:
    """One natural-gradient step within a trust region (TRPO), on the Lagrangian."""

    label: ClassVar[str] = "trust-region"
    own_dual: ClassVar[bool] = False

    def make(self, policy: GaussianPolicy, critics: Critics, settings: UpdateSettings) -> Update:
        """Make the update of a policy and its critics."""
        return NaturalUpdate(TrustRegionStep(policy, settings.trust_region), critics, settings.proximal)


@final
@dataclass(frozen=True)
class Projection:
    """A natural-gradient step that keeps to one limit, or returns to it, by its own dual (CPO)."""

    label: ClassVar[str] = "projection"
    own_dual: ClassVar[bool] = True

    def make(self, policy: GaussianPolicy, critics: Critics, settings: UpdateSettings) -> Update:
        """Make the update of a policy and its critics."""
        return NaturalUpdate(ProjectionStep(policy, settings.trust_region), critics, settings.proximal)
