"""`FitReport`: the outcome of a fit, and how far its model can be trusted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from samba_rl.models.calibration import LEVELS, coverage
from samba_rl.models.exact import ExactPosterior
from samba_rl.models.likelihood import HyperFit
from samba_rl.models.posterior import AnyHyper, Posterior
from samba_rl.models.sparse import SparsePosterior, accuracy

PROBES = 64
"""Largest number of data points at which the errors of a posterior are measured."""
EXACT_POINTS = 2000
"""Largest number of points on which an inducing-point posterior is compared with an exact one."""


@dataclass(frozen=True)
class FitReport:
    """The outcome of a fit, and how far its model can be trusted; every fit returns one."""

    points: int
    """Number of points that the model holds."""
    kind: str
    """Kind of posterior: exact, sparse or correlated."""
    seconds: float
    """Duration of the fit in seconds."""
    evaluations: int
    """Number of evaluations of the likelihood and its gradient."""
    likelihood: tuple[float, ...]
    """Log marginal likelihood per fitted point, by output (one value for correlated outputs)."""
    failed: tuple[str, ...]
    """Why the fit failed, where it did; the last good hyper-parameters were kept."""
    jitter: float
    """Jitter added to the diagonal of the covariance matrix, relative to the signal."""
    condition: float
    """Condition number of the covariance matrix; NaN where the matrix is not formed."""
    z_std: tuple[float, ...]
    """Root mean square of the validation z-scores, by output; 1 is calibrated, above 1 is overconfident."""
    coverage50: tuple[float, ...]
    """Share of validation targets inside their 50 % interval, by output."""
    coverage95: tuple[float, ...]
    """Share of validation targets inside their 95 % interval, by output."""
    precision_error: float
    """Largest relative error of a predictive standard deviation (with noise) that the precision of predictions causes,
    at up to 64 of the points."""
    sparse_error: float
    """Root-mean-square error of an inducing-point mean against an exact one, in predictive standard deviations, both
    on at most 2000 evenly spread points; NaN where the model is not an inducing-point model."""
    validation: Literal["leave-one-out", "episode-out"] = "leave-one-out"
    """Data that the validation targets are predicted from: all other points (leave-one-out), or all other episodes
    (episode-out). Hyper-parameters and calibration factors are those of the fit to all points."""
    coverage: tuple[tuple[float, ...], ...] = ()
    """Share of validation targets inside their 50, 80, 90, 95 and 99 % intervals, by interval and output."""
    factor: tuple[float, ...] = ()
    """Factor by which calibration scales the predicted standard deviation, by output; 1 without calibration."""

    def describe(self) -> str:
        """Return the report as a few lines of text."""
        lines = [
            f"{self.kind} GP on {self.points} points, fitted in {self.seconds:.2f} s ({self.evaluations} evaluations)",
            "log likelihood per point " + ", ".join(f"{value:.3f}" for value in self.likelihood),
            *self._calibration(),
            f"condition number {self.condition:.1e}, jitter {self.jitter:g}",
            f"largest relative error of a standard deviation from the precision {self.precision_error:.1e}",
        ]
        if math.isfinite(self.sparse_error):
            lines.append(
                f"inducing points: rms error of the mean {self.sparse_error:.3f} predictive standard deviations, "
                "against an exact model on a part of the points"
            )
        return "\n".join(lines + [f"FAILED, last good hyper-parameters kept: {problem}" for problem in self.failed])

    def _calibration(self) -> list[str]:
        """Return a table with a row for each output."""
        levels, by_level = (
            (LEVELS, self.coverage) if self.coverage else ((0.5, 0.95), (self.coverage50, self.coverage95))
        )
        factors = self.factor or (1.0,) * len(self.z_std)
        heads = [f"in {level:.0%}" for level in levels]
        how = "one by one" if self.validation == "leave-one-out" else "with their episode"
        rows = [f"steps left out {how} that are inside their interval; rms z-score; factor of the standard deviation"]
        rows.append(f"  {'output':>6} " + "".join(f"{head:>8}" for head in (*heads, "z", "factor")))
        for i, (z, factor) in enumerate(zip(self.z_std, factors, strict=True)):
            shares = "".join(f"{level[i]:>8.1%}" for level in by_level)
            rows.append(f"  {i:>6} {shares}{z:>8.2f}{factor:>8.2f}")
        return rows


def judge(
    posterior: Posterior,
    rollout_posterior: Posterior,
    fit: HyperFit[AnyHyper],
    factor: Tensor,
    *,
    episodes: Tensor | None,
    seconds: float,
    sparse_above: int,
    inducing: int,
) -> FitReport:
    """Report on a posterior, which may be used in another precision for rollouts, and on the fit that led to it.

    Calibration is measured on the z-scores of left-out `episodes` [m, D] (None: of points left out one by one), with
    the factors [D] applied.
    """
    scores = (posterior.loo_scores() if episodes is None else episodes) / factor
    shares = coverage(scores)
    probes = posterior.inputs[torch.linspace(0, len(posterior) - 1, min(PROBES, len(posterior))).long()]
    return FitReport(
        points=len(posterior),
        kind=type(posterior).__name__.removesuffix("Posterior").lower(),
        seconds=seconds,
        evaluations=fit.evaluations,
        likelihood=fit.likelihood,
        failed=fit.failed,
        jitter=posterior.jitter,
        condition=posterior.condition_number() if isinstance(posterior, ExactPosterior) else math.nan,
        z_std=tuple(scores.square().mean(0).sqrt().tolist()),
        coverage50=shares[LEVELS.index(0.5)],
        coverage95=shares[LEVELS.index(0.95)],
        precision_error=_precision_error(posterior, rollout_posterior, probes),
        sparse_error=_sparse_error(posterior, probes, min(sparse_above, EXACT_POINTS), inducing),
        validation="leave-one-out" if episodes is None else "episode-out",
        coverage=shares,
        factor=tuple(factor.tolist()),
    )


def _precision_error(posterior: Posterior, rough: Posterior, probes: Tensor) -> float:
    """Return the largest relative error of the standard deviations that `rough` predicts, with noise."""
    noise = posterior.hyper.noise
    full = (posterior.predict(probes).variance + noise).sqrt()
    other = (rough.predict(probes.to(rough.inputs.dtype)).variance.double() + noise).sqrt()
    return float(((other - full) / full).abs().max())


def _sparse_error(posterior: Posterior, probes: Tensor, points: int, inducing: int) -> float:
    """Return the rms error of the mean of an inducing-point posterior, or NaN for another kind.

    Both it and an exact posterior are conditioned on `points` of the data, few enough for an exact one.
    """
    if not isinstance(posterior, SparsePosterior):
        return math.nan
    chosen = torch.linspace(0, len(posterior) - 1, points).long()
    inputs, targets = posterior.inputs[chosen], posterior.targets[chosen]
    small = SparsePosterior.condition(inputs, targets, posterior.hyper, inducing)
    exact = ExactPosterior.condition(inputs, targets, posterior.hyper)
    return float(accuracy(small, exact, probes).mean_rms)
