"""Upper confidence bounds from finitely many episodes, valid for every distribution of bounded losses.

The losses L₁ … L_n of independent episodes lie in [0, h]. A bound B with confidence 1 - δ satisfies
P(CVaR_α(L) > B) ≤ δ, whatever their distribution is and however few episodes there are. CVaR₀ is the mean, and the mean
of losses that are 0 or 1 is a probability, so one function covers all kinds of constraints.

**Betting** (Waudby-Smith and Ramdas, 2024). Let Z be a value in [0, 1] with mean μ. To test a candidate m for μ, a
gambler with capital 1 bets a fraction c of the capital on Z being below m:

    K_c(m) = Π_i (1 + c (m - Z_i) / (1 - m)),    0 < c < 1.

No factor is below 1 - c > 0, and for m = μ each has expectation 1, so E[K_c(μ)] = 1. The same holds for a mixture
K = Σ_c w_c K_c with weights that sum to one. By Markov's inequality P(K(μ) ≥ 1/δ) ≤ δ. K increases with m, because
(m - z) / (1 - m) does, so the candidates with K(m) ≥ 1/δ are all m from some B on, and μ > B has a probability of at
most δ. K does not depend on the order of the values. If all of them are zero, B shrinks like 1/n, not like 1/√n.

**CVaR**. For every fixed ν, CVaR_α(L) ≤ ν + E[(L - ν)⁺] / (1 - α), with equality at the α-quantile. The first episodes
(the pilot) choose ν, the others bound the mean of (L - ν)⁺, which lies in [0, h - ν]. A poor ν loosens the bound but
does not invalidate it, since the pilot is independent of the other episodes.

**DKW**. By the Dvoretzky-Kiefer-Wolfowitz inequality with Massart's constant, the distribution function lies nowhere
more than ε = √(ln(1/δ) / 2n) below the empirical one, with confidence 1 - δ ≥ 1/2. The worst case moves the mass ε from
the smallest losses to h. This bound shrinks like 1/√n. It is here for comparison.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from samba_rl.errors import UserError

Method: TypeAlias = Literal["betting", "dkw"]
Losses: TypeAlias = "Sequence[float] | NDArray[np.float64]"

FRACTIONS = np.array([0.003, 0.01, 0.03, 0.1, 0.3, 0.95])
"""Fractions c of the capital that are bet: large ones suit losses that are nearly always zero, small ones others."""
WEIGHTS = np.array([0.1, 0.1, 0.1, 0.1, 0.1, 0.5])
"""Weight of each fraction in the mixture."""
PILOT = 0.2
"""Share of the episodes that choose ν and take no part in the bound on the mean."""
HALVINGS = 45
"""Bisections for a bound on a mean in [0, 1], which end at a resolution of 2⁻⁴⁵; the result is rounded up to it."""
ROUNDING = 1e-6
"""Share by which a loss may exceed the largest possible one, for costs in single precision; it is then cut off."""
MOST_EPISODES = 10_000_000
"""Largest number of episodes that `episodes_needed` considers."""


def upper_bound(
    losses: Losses,
    high: float,
    confidence: float,
    *,
    alpha: float = 0.0,
    method: Method = "betting",
    episodes: int | None = None,
) -> float:
    """Return an upper bound on CVaR_α of the distribution of independent losses [n] in [0, high].

    Args:
        losses: Losses of the episodes, in the order in which they were run.
        high: Largest possible loss.
        confidence: Probability 1 - δ, in [0.5, 1), with which the bound holds.
        alpha: Level α of CVaR; 0 bounds the mean.
        method: "betting", or "dkw" for comparison.
        episodes: Return the bound for this many episodes with losses distributed like those given. This is a forecast,
            not a valid bound: all losses choose ν and bound the mean. Default: n.
    """
    sample = _checked(losses, high, confidence, alpha)
    n = len(sample) if episodes is None else episodes
    if method == "dkw":
        return _dkw(sample, high, confidence, alpha, n)
    pilot = 0 if alpha == 0 or episodes is not None else int(PILOT * n)
    choosing = sample[: pilot or len(sample) * (episodes is not None)]
    # The mean needs no ν.
    nu = float(np.quantile(choosing, alpha, method="inverted_cdf")) if alpha > 0 and len(choosing) else 0.0
    if nu >= high:
        return high
    excess = np.maximum(sample[pilot:] - nu, 0.0) / (high - nu)
    count = n if alpha == 0 else n - int(PILOT * n)
    mean = _betting(excess, confidence, count)
    return min(high, nu + (high - nu) * mean / (1 - alpha))


def episodes_needed(bound: Callable[[int], float], limit: float) -> int | None:
    """Return the least n with bound(n) ≤ limit, or None if `MOST_EPISODES` do not suffice; the bound falls with n."""
    if bound(MOST_EPISODES) > limit:
        return None
    below, n = 0, 1
    while n < MOST_EPISODES and bound(n) > limit:
        below, n = n, min(2 * n, MOST_EPISODES)
    while n - below > 1:
        middle = (below + n) // 2
        below, n = (middle, n) if bound(middle) > limit else (below, middle)
    return n


def _betting(values: NDArray[np.float64], confidence: float, count: int) -> float:
    """Return the betting bound on the mean of values [n] in [0, 1], each counted count / n times."""
    # Most episodes cost nothing, so few values differ.
    different, times = np.unique(values, return_counts=True)
    shares = times * (count / len(values))
    needed = -math.log1p(-confidence)

    def is_rejected(m: float) -> bool:
        bets = FRACTIONS[:, None] * ((m - different) / (1 - m))
        capital: float = np.logaddexp.reduce(np.log(WEIGHTS) + np.log1p(bets) @ shares)
        return capital >= needed

    # The sample mean is never rejected: there log K_c ≤ Σ c (m - Z_i) / (1 - m) = 0.
    kept, rejected = float(different @ times / len(values)), 1.0
    for _ in range(HALVINGS):
        middle = (kept + rejected) / 2
        if middle >= 1:
            break
        kept, rejected = (kept, middle) if is_rejected(middle) else (middle, rejected)
    return rejected


def _dkw(sample: NDArray[np.float64], high: float, confidence: float, alpha: float, count: int) -> float:
    """Return CVaR_α after the mass ε has moved from the smallest losses [n] to `high`."""
    moved = math.sqrt(-math.log1p(-confidence) / (2 * count))
    tail = 1 - alpha
    if moved >= tail:
        return high
    worst = np.sort(sample)[::-1]
    # Each loss has the mass 1 / n; those that remain in the tail have the mass tail - moved.
    mass = np.clip((tail - moved) - np.arange(len(worst)) / len(worst), 0.0, 1 / len(worst))
    return min(high, float(moved * high + mass @ worst) / tail)


def _checked(losses: Losses, high: float, confidence: float, alpha: float) -> NDArray[np.float64]:
    if not 0.5 <= confidence < 1:
        raise UserError(f"confidence = {confidence}; give a number in [0.5, 1), such as 0.95")
    if not 0 <= alpha < 1:
        raise UserError(f"alpha = {alpha}; give a number in [0, 1), such as 0.9")
    if not (math.isfinite(high) and high > 0):
        raise UserError(f"high = {high}; the largest possible loss must be a positive number")
    sample = np.asarray(losses, dtype=np.float64)
    if len(sample) == 0:
        raise UserError("a bound needs at least 1 episode")
    slack = ROUNDING * high  # sums of bounded steps may exceed the bound by rounding
    outside = sample[~((sample >= -slack) & (sample <= high + slack))]
    if len(outside):
        raise UserError(f"a loss of {outside[0]:g} lies outside [0, {high:g}]; give the largest possible loss as high")
    return np.clip(sample, 0.0, high)
