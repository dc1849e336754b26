"""The projection update: a trust-region step that keeps to one constraint, or returns to it (CPO)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias, final

import torch
from torch import Tensor

from samba_rl.errors import UserError
from samba_rl.improve.policies import GaussianPolicy
from samba_rl.improve.updates.trust_region import (
    FisherProduct,
    LineSearch,
    TrustRegionSettings,
    centred,
    conjugate_gradient,
    gradients,
    spread,
    standardised,
)

Case: TypeAlias = Literal["unconstrained", "slack", "binding", "recovery"]
"""What the constraint means for a step. "unconstrained": every step within the trust region meets it, or none changes
it. "slack": the step that is best without it meets it. "binding": that one would not, others do. "recovery": none
does."""


class Dual(NamedTuple):
    """The solution of a step's problem."""

    case: Case
    lam: float
    """The multiplier of the divergence, 0 where that does not bind."""
    nu: float
    """The multiplier of the constraint; 1 in recovery, where the constraint takes the place of the objective."""
    objective: float
    """The step is so many times F⁻¹g,"""
    constraint: float
    """and so many times F⁻¹b."""


def solve_dual(q: float, r: float, s: float, c: float, delta: float) -> Dual:
    """Minimise gᵀx such that c + bᵀx <= 0 and ½ xᵀFx <= delta, for q = gᵀF⁻¹g, r = gᵀF⁻¹b and s = bᵀF⁻¹b.

    Instead of comparing the dual's two pieces: gᵀx has one minimum x₀ within the divergence. Where that meets the
    constraint it is the solution. Where not the constraint holds with equality, x is -(c / s) F⁻¹b and something along
    the plane, for which that leaves 2 delta - c² / s of the divergence.
    """
    reach = 2 * delta * s  # the square of how far a step can change the constraint
    lam = math.sqrt(q / (2 * delta))
    plain = -1 / lam if lam > 0 else 0.0
    if reach <= (1e-8 * c) ** 2 or (c < 0 and c * c >= reach):
        return Dual("unconstrained", lam, 0.0, plain, 0.0)
    if c * c >= reach:
        return Dual("recovery", math.sqrt(s / (2 * delta)), 1.0, 0.0, -math.sqrt(2 * delta / s))
    if c + plain * r <= 0:
        return Dual("slack", lam, 0.0, plain, 0.0)
    # The square of the gradient's length along the plane; where that is a rounding error all of the plane is as good.
    along = q - r * r / s
    left = 2 * delta - c * c / s
    lam = math.sqrt(along / left) if along > 1e-9 * q else 0.0
    pace = -1 / lam if lam > 0 else 0.0
    return Dual("binding", lam, max(0.0, (lam * c - r) / s), pace, -c / s - pace * r / s)


class ProjectionReport(NamedTuple):
    """How a step went."""

    kl: float
    """How far the policy moved."""
    improvement: float
    """How far the surrogate of the objective fell, in standard deviations of the advantage; negative if it rose for the
    sake of a violated constraint."""
    accepted: bool
    """If not, the policy is what it was."""
    backtracks: int
    """How often the step was shortened."""
    case: Case
    nu: float
    """The constraint's multiplier, in standard deviations of the advantage per unit of the constraint; see `Dual`."""


@final
class Projection:
    """Steps that make the objective's surrogate fall as far as the divergence and a constraint allow."""

    def __init__(self, policy: GaussianPolicy, settings: TrustRegionSettings) -> None:
        self.settings = settings
        self.std_floor = policy.settings.std_floor
        """A step leaves the policy's standard deviation no lower than this."""
        self._policy = policy

    def __call__(
        self,
        inputs: Tensor,
        raw: Tensor,
        advantage: Tensor,
        constraint_advantage: Tensor,
        excess: float,
        scale: float,
    ) -> ProjectionReport:
        """One step, from the advantages [N], lower is better, of actions [N, nu] in half widths at inputs [N, no].

        The constraint's value is above its limit by `excess`; scale · mean(ratio · constraint_advantage [N]) is how it
        changes. For a sum over a trajectory `scale` is the mean number of steps.
        """
        if not 0 < scale < math.inf:
            raise UserError(f"the constraint's scale is {scale}; it must be positive: a trajectory's number of steps")
        settings, policy = self.settings, self._policy
        advantages = torch.stack([standardised(advantage), scale * centred(constraint_advantage)])
        objective, constraint = gradients(policy, inputs, raw, advantages)
        fisher = FisherProduct(policy, spread(inputs, settings.fisher_samples), settings.damping)
        by_objective = conjugate_gradient(fisher, objective, settings.cg_iterations)
        by_constraint = conjugate_gradient(fisher, constraint, settings.cg_iterations)
        # r is bᵀ F⁻¹g rather than gᵀ F⁻¹b, which is not quite the same: the constraint is to be met.
        q, r, s = (
            float(product)
            for product in (objective @ by_objective, constraint @ by_objective, constraint @ by_constraint)
        )
        if not (all(map(math.isfinite, (q, r, s, excess))) and q >= 0 and s >= 0):
            return ProjectionReport(0.0, 0.0, accepted=False, backtracks=0, case="unconstrained", nu=0.0)
        dual = solve_dual(q, r, s, excess, settings.kl)
        step = dual.objective * by_objective + dual.constraint * by_constraint
        promise = float(objective @ step)

        def acceptable(changes: Sequence[float]) -> bool:
            better, safer = changes[0] < 0, changes[1] < 0
            if dual.case == "recovery":
                return safer
            # From outside the way back can cost more than the objective gains: then the constraint alone must fall.
            return (better or (excess > 0 and promise >= 0 and safer)) and excess + changes[1] <= max(0.0, excess)

        found = LineSearch(policy, settings, self.std_floor)(inputs, raw, advantages, step, acceptable)
        if found is None:
            return ProjectionReport(0.0, 0.0, False, settings.backtracks, dual.case, dual.nu)
        return ProjectionReport(found.kl, -found.changes[0], True, found.backtracks, dual.case, dual.nu)
