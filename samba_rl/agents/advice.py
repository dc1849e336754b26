"""Advice on a limit: what return the model promises at which limit, how far the data support it, and a proposal."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, final

ALPHAS = (0.95, 0.9, 0.75, 0.5)
"""Levels α that are compared, from the most to the least careful."""
INFLUENCE = 0.5
"""Share of CVaR that a policy must be able to avoid for a level α to be proposed; the rest is luck."""
WORTH = 0.9
"""Share of the return between the worst and the best policy that was judged which a proposed limit must leave."""
FAR = 0.2
"""Share of imagined steps far from the data from which on the advice is called a guess."""
EXPLAINED = 0.5
"""Share of the changes of a state component that a model must predict, or else the advice names the component."""


@final
@dataclass(frozen=True)
class Judged:
    """A policy that was improved on the model, judged on fresh imagined trajectories."""

    name: str
    """What it was improved for, such as "limit 0.5"."""
    mean_return: float
    """Mean return of an episode."""
    return_error: float
    """Standard deviation of that: sampling error, and differences between functions that the model holds possible."""
    value: float
    """Value of the constraint."""
    value_error: float
    """Standard deviation of that."""
    bound: float
    """Upper confidence bound on the value (95 %): the smallest limit that the policy passes."""
    far: float
    """Share of its imagined steps that lie farther from the data than the data from each other."""
    tails: tuple[float, ...] = ()
    """CVaR of the constrained cost at each of `ALPHAS`; empty for another kind of constraint."""


@final
@dataclass(frozen=True)
class Support:
    """How far the data support the model."""

    samples: int
    """Number of real transitions that the model was fitted to."""
    available: int
    """Number of real transitions that there are."""
    episodes: int
    """Number of their episodes."""
    states: tuple[str, ...]
    """Names of the predicted state components."""
    explained: tuple[float, ...]
    """Share of the variance of each component's changes that is predicted in left-out episodes; empty with too few."""
    z: float
    """Root mean square error of predictions of left-out data, in predicted standard deviations: 1 is calibrated."""
    coverage95: float
    """Share of left-out targets inside their 95 % interval."""


class Answer(NamedTuple):
    """What can be had at a limit."""

    limit: float
    """The limit."""
    feasible: bool
    """Whether a policy was found whose bound is within the limit."""
    mean_return: float
    """Return of the best such policy; NaN if there is none."""
    return_error: float
    """Standard deviation of that return."""
    name: str
    """Name of that policy."""


@final
@dataclass(frozen=True)
class Advice:
    """What return can be had at which limit on the model."""

    system: str
    """Name of the system."""
    constrained: str
    """The constrained value in words."""
    alpha: float | None
    """Level α of CVaR; None for another kind of constraint."""
    points: tuple[Judged, ...]
    """All judged policies."""
    least: float
    """Least value of the constraint that was found."""
    support: Support
    """How far the data support this."""
    asked: tuple[float, ...] = ()
    """Limits that the user asked about."""

    @property
    def frontier(self) -> tuple[Judged, ...]:
        """Return the policies that none beats in both return and bound, by growing bound."""
        found: list[Judged] = []
        for point in sorted(self.points, key=lambda one: (one.bound, -one.mean_return)):
            if not found or point.mean_return > found[-1].mean_return:
                found.append(point)
        return tuple(found)

    def at(self, limit: float) -> Answer:
        """Return what can be had at a limit."""
        passing = [one for one in self.frontier if one.bound <= limit]
        if not passing:
            return Answer(limit, False, math.nan, math.nan, "")
        best = passing[-1]
        return Answer(limit, True, best.mean_return, best.return_error, best.name)

    @property
    def answers(self) -> tuple[Answer, ...]:
        """Return what can be had at the limits that were asked about."""
        return tuple(self.at(limit) for limit in self.asked)

    @property
    def proposed_alpha(self) -> float | None:
        """Return the present level if policies decide most of its tail, or else the highest at which they do.

        If there is none, the one at which they decide most; None for another kind of constraint.
        """
        if self.alpha is None or _avoidable([one.value for one in self.points]) >= INFLUENCE:
            return self.alpha
        shares = [self.influence(level) for level in range(len(ALPHAS))]
        decided = [level for level, share in zip(ALPHAS, shares, strict=True) if share >= INFLUENCE]
        return decided[0] if decided else ALPHAS[shares.index(max(shares))]

    def influence(self, level: int) -> float:
        """Return which share of the largest CVaR at `ALPHAS[level]` the policies can avoid."""
        return _avoidable([one.tails[level] for one in self.points])

    @property
    def proposed(self) -> Judged:
        """Return the policy with the smallest bound that keeps most of the return."""
        frontier = self.frontier
        least, most = min(one.mean_return for one in self.points), frontier[-1].mean_return
        return next(one for one in frontier if one.mean_return >= least + WORTH * (most - least))

    @property
    def proposed_limit(self) -> float:
        """Return the bound of the proposed policy, rounded up to two digits."""
        return rounded_up(self.proposed.bound)

    @property
    def supported(self) -> bool:
        """Return whether the data support the proposal: most of its steps are near them."""
        return self.proposed.far <= FAR

    def sentences(self) -> list[str]:
        """Return the advice in words."""
        return [*self._on_limits(), *self._on_alpha(), *self._on_answers(), *self._on_support()]

    def _on_limits(self) -> list[str]:
        frontier, chosen, limit = self.frontier, self.proposed, self.proposed_limit
        best, safest = frontier[-1], frontier[0]
        promise = f"a return of {chosen.mean_return:.4g} ± {chosen.return_error:.2g}"
        if len(frontier) == 1:
            said = f"Propose ξ = {limit:g}: the policy with the best return is also the safest found, with {promise}."
        else:
            said = (
                f"Propose ξ = {limit:g}: it allows {promise}, of {best.mean_return:.4g} without a limit; the safest "
                f"policy found has {safest.mean_return:.4g}."
            )
        floor = min(one.bound for one in self.points)
        infeasible = (
            f"A limit below {floor:.3g} looks infeasible on this model: that is the least 95 % bound found on "
            f"{self.constrained}; the least value found is {self.least:.3g}."
        )
        if floor == 0:
            infeasible = f"Every limit can be met on this model: the safest policy found has {self.constrained} 0."
        return [said, f"{infeasible} One above {best.bound:.3g} changes nothing."]

    def _on_alpha(self) -> list[str]:
        proposed = self.proposed_alpha
        if proposed is None or self.alpha is None:
            return []
        kept = proposed == self.alpha
        share = _avoidable([one.value for one in self.points]) if kept else self.influence(ALPHAS.index(proposed))
        why = f"policies can avoid {100 * share:.0f} % of the mean of the worst {100 * (1 - proposed):.3g} %"
        if share < INFLUENCE:
            why += ", and less at other levels; the rest depends on where an episode starts"
        verdict = f"Keep α = {proposed:g}"
        if not kept:
            verdict = f"Propose α = {proposed:g} instead of {self.alpha:g}, and ask again with --alpha {proposed:g}"
        episodes = math.ceil(10 / (1 - proposed) - 1e-9)
        return [f"{verdict}: {why}. In {episodes} real episodes about ten belong to that tail."]

    def _on_answers(self) -> list[str]:
        said = []
        for answer in self.answers:
            if answer.feasible:
                promise = f"{answer.mean_return:.4g} ± {answer.return_error:.2g}"
                said.append(f"ξ = {answer.limit:g}: a return of {promise} can be had.")
            else:
                said.append(f"ξ = {answer.limit:g}: infeasible on this model; no policy was found that passes it.")
        return said

    def _on_support(self) -> list[str]:
        support, far = self.support, self.proposed.far
        of = f" (of {support.available:,})" if support.available > support.samples else ""
        said = [
            f"The model has {support.samples:,} transitions{of} of {support.episodes} episodes; {100 * far:.0f} % of "
            "the steps behind the proposal lie farther from them than they lie from each other."
        ]
        if not self.supported:
            said.append(
                "That is a guess more than a prediction: measure there first, with a careful limit, and ask again."
            )
        rows = zip(support.states, support.explained, strict=False)
        poor = [f"{name} ({100 * max(0.0, share):.0f} %)" for name, share in rows if share < EXPLAINED]
        if poor:
            said.append(
                f"In left-out episodes the model explains little of the changes of {', '.join(poor)}; more data, or "
                "less measurement noise, would help."
            )
        if support.z > 1.5 or support.coverage95 < 0.85:
            said.append(
                f"The model is overconfident: left-out data lie {support.z:.1f} standard deviations from predictions, "
                f"and {100 * support.coverage95:.0f} % of them inside 95 % intervals. Take the limits with a margin."
            )
        return said


def _avoidable(values: list[float]) -> float:
    """Return the share of the largest value by which the least one is smaller."""
    return 1 - min(values) / max(values) if max(values) > 0 else 1.0


def rounded_up(value: float, digits: int = 2) -> float:
    """Return a number of at least 0, rounded up to so many significant digits."""
    if value <= 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return float(f"{math.ceil(value / unit - 1e-9) * unit:.12g}")
