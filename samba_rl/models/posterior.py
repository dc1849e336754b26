"""The kinds of posterior that a model can have, how each is fitted, and which one a number of points calls for."""

from __future__ import annotations

from typing import TypeAlias

from torch import Tensor

from samba_rl.errors import UserError
from samba_rl.models.correlated import CorrelatedHyper, CorrelatedPosterior
from samba_rl.models.exact import ExactPosterior
from samba_rl.models.likelihood import FitSettings, Hyper, HyperFit, default_hyper, fit_hyper
from samba_rl.models.sparse import SparsePosterior

AnyHyper: TypeAlias = Hyper | CorrelatedHyper
Posterior: TypeAlias = ExactPosterior | SparsePosterior | CorrelatedPosterior

CORRELATED_LIMIT = 12_000
"""Largest number of values (points times outputs) in a model with correlated outputs: their covariances take 1 GB."""


def posterior_kind(hyper: AnyHyper, points: int, outputs: int, sparse_above: int) -> type[Posterior]:
    """Return the kind of posterior for these hyper-parameters and this number of points."""
    if isinstance(hyper, Hyper):
        return SparsePosterior if points > sparse_above else ExactPosterior
    if points * outputs > CORRELATED_LIMIT:
        raise UserError(
            f"a model with correlated outputs holds at most {CORRELATED_LIMIT // outputs} points of {outputs} "
            f"outputs, not {points}; use outputs='independent'"
        )
    return CorrelatedPosterior


def fit_any_hyper(
    inputs: Tensor, targets: Tensor, start: AnyHyper | None, settings: FitSettings, *, latent: int | None
) -> HyperFit[AnyHyper]:
    """Fit hyper-parameters to normalised inputs [n, ni] and targets [n, D].

    The search begins at `start` if it is of the right kind, otherwise at a default. `latent` is the number of latent
    functions of correlated outputs; None: independent outputs.
    """
    if latent is None:
        first = start if isinstance(start, Hyper) else default_hyper(inputs.shape[1], targets.shape[1])
        return fit_hyper(inputs, targets, first, settings)
    # Imported here because it needs GPyTorch, which independent outputs do without.
    from samba_rl.models.correlated_fit import fit_correlated

    return fit_correlated(inputs, targets, start if isinstance(start, CorrelatedHyper) else None, settings, latent)


def condition(inputs: Tensor, targets: Tensor, hyper: AnyHyper, *, sparse_above: int, inducing: int) -> Posterior:
    """Condition a posterior of the right kind on normalised inputs [n, ni] and targets [n, D]."""
    kind = posterior_kind(hyper, len(targets), targets.shape[1], sparse_above)
    if isinstance(hyper, CorrelatedHyper):
        return CorrelatedPosterior.condition(inputs, targets, hyper)
    if kind is SparsePosterior:
        return SparsePosterior.condition(inputs, targets, hyper, inducing)
    return ExactPosterior.condition(inputs, targets, hyper)
