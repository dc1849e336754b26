"""The projection step (CPO): a trust-region step that keeps to one constraint, or returns to it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias, final

import torch
from torch import Tensor

from samba_rl.errors import UserError
from samba_rl.improve.policies import GaussianPolicy
from samba_rl.improve.updates.batch import Batch
from samba_rl.improve.updates.fisher import FisherProduct, conjugate_gradient, spread
from samba_rl.improve.updates.natural import NaturalStep
from samba_rl.improve.updates.trust_region import LineSearch, TrustRegionSettings, centred, gradients, standardised

Case: TypeAlias = Literal["unconstrained", "slack", "binding", "recovery"]
"""Role of the constraint in a step. "unconstrained": every step within the trust region meets it, or none changes it.
"slack": the best step without it meets it. "binding": that step does not, but others do. "recovery": no step does."""


class Dual(NamedTuple):
    """The solution of a step's dual problem; the step is objective · F⁻¹g + constraint · F⁻¹b."""

    case: Case
    """Role of the constraint."""
    lam: float
    """Multiplier of the divergence; 0 where that does not bind."""
    nu: float
    """Multiplier of the constraint; 1 in recovery, where the constraint replaces the objective."""
    objective: float
    """Coefficient of F⁻¹g in the step."""
    constraint: float
    """Coefficient of F⁻¹b in the step."""


def solve_dual(q: float, r: float, s: float, c: float, delta: float) -> Dual:
    """Minimise gᵀx such that c + bᵀx <= 0 and ½ xᵀFx <= delta, for q = gᵀF⁻¹g, r = gᵀF⁻¹b and s = bᵀF⁻¹b.

    This does not compare the two pieces of the dual. gᵀx has one minimum within the divergence. If that meets the
    constraint, it is the solution. Otherwise the constraint holds with equality: x is -(c / s) F⁻¹b plus a step along
    its plane, for which 2 delta - c² / s of the divergence is left.
    """
    reach = 2 * delta * s  # square of the largest change of the constraint that a step can make
    lam = math.sqrt(q / (2 * delta))
    plain = -1 / lam if lam > 0 else 0.0
    if reach <= (1e-8 * c) ** 2 or (c < 0 and c * c >= reach):
        return Dual("unconstrained", lam, 0.0, plain, 0.0)
    if c * c >= reach:
        return Dual("recovery", math.sqrt(s / (2 * delta)), 1.0, 0.0, -math.sqrt(2 * delta / s))
    if c + plain * r <= 0:
        return Dual("slack", lam, 0.0, plain, 0.0)
    # Square of the gradient's length along the plane. If that is a rounding error, every point of the plane will do.
    along = q - r * r / s
    left = 2 * delta - c * c / s
    lam = math.sqrt(along / left) if along > 1e-9 * q else 0.0
    pace = -1 / lam if lam > 0 else 0.0
    return Dual("binding", lam, max(0.0, (lam * c - r) / s), pace, -c / s - pace * r / s)


class ProjectionReport(NamedTuple):
    """The outcome of a projection step."""

    kl: float
    """Divergence between the policies before and after."""
    improvement: float
    """Decrease of the objective's surrogate, in standard deviations of the advantage; negative if it rose to meet a
    violated constraint."""
    accepted: bool
    """Whether the policy moved."""
    backtracks: int
    """Number of times that the step was shortened."""
    case: Case
    """Role of the constraint."""
    nu: float
    """Multiplier of the constraint, in standard deviations of the advantage per unit of the constraint; see `Dual`."""


@final
class ProjectionStep:
    """Takes the step that lowers the objective's surrogate as far as the divergence and a constraint allow."""

    def __init__(self, policy: GaussianPolicy, settings: TrustRegionSettings) -> None:
        self.settings = settings
        self.std_floor = policy.settings.std_floor
        """Lower bound of the policy's standard deviation after a step, in half widths of the action range."""
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
        """Take one step, given advantages [N] (lower is better) of actions in half widths [N, nu] at inputs [N, no].

        The constraint exceeds its limit by `excess` and changes by scale · mean(ratio · constraint_advantage [N]). For
        a sum over a trajectory, `scale` is the mean number of steps.
        """
        if not 0 < scale < math.inf:
            raise UserError(f"the constraint's scale is {scale}; it must be positive: a trajectory's number of steps")
        settings, policy = self.settings, self._policy
        advantages = torch.stack([standardised(advantage), scale * centred(constraint_advantage)])
        objective, constraint = gradients(policy, inputs, raw, advantages)
        fisher = FisherProduct(policy, spread(inputs, settings.fisher_samples), settings.damping)
        by_objective = conjugate_gradient(fisher, objective, settings.cg_iterations)
        by_constraint = conjugate_gradient(fisher, constraint, settings.cg_iterations)
        # bᵀ F⁻¹g rather than gᵀ F⁻¹b: both are approximate, and this is the one by which the constraint changes.
        q, r, s = (
            float(product)
            for product in (objective @ by_objective, constraint @ by_objective, constraint @ by_constraint)
        )
        if not (all(map(math.isfinite, (q, r, s, excess))) and q >= 0 and s >= 0):
            return ProjectionReport(kl=0.0, improvement=0.0, accepted=False, backtracks=0, case="unconstrained", nu=0.0)
        dual = solve_dual(q, r, s, excess, settings.kl)
        step = dual.objective * by_objective + dual.constraint * by_constraint
        promise = float(objective @ step)

        def acceptable(changes: Sequence[float]) -> bool:
            better, safer = changes[0] < 0, changes[1] < 0
            if dual.case == "recovery":
                return safer
            # The way back to the limit may raise the objective; then it is enough that the constraint falls.
            return (better or (excess > 0 and promise >= 0 and safer)) and excess + changes[1] <= max(0.0, excess)

        found = LineSearch(policy, settings, self.std_floor)(inputs, raw, advantages, step, acceptable)
        if found is None:
            tried = settings.backtracks
            return ProjectionReport(0.0, 0.0, accepted=False, backtracks=tried, case=dual.case, nu=dual.nu)
        return ProjectionReport(
            found.kl, -found.changes[0], accepted=True, backtracks=found.backtracks, case=dual.case, nu=dual.nu
        )

    def step(self, batch: Batch) -> NaturalStep:
        """Take one step on the objective of a batch that keeps to its only constraint."""
        (tail,), (excess,) = batch.tails, batch.excess
        report = self(batch.inputs, batch.raw, batch.objective, tail, excess, batch.steps)
        (unit,) = batch.units or (1.0,)
        return NaturalStep(report.kl, report.accepted, math.inf if report.case == "recovery" else report.nu * unit)
