"""The shield: judges policies on fresh imagined trajectories, in the light of what past trials measured."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, final

import torch
from torch import Generator, Tensor

from samba_rl.improve.constraints import Constraint, estimate
from samba_rl.improve.experts import NetworkPolicy
from samba_rl.improve.multipliers import Multipliers
from samba_rl.types import Source, State, Traces

CONFIDENCE = 1.645
"""Standard errors in an upper bound: 95 % one-sided."""
REMEMBERED = 5
"""Number of latest policies that made a trial and are kept to fall back on; the best one before them is kept too."""
DECAY = 0.9
"""Weight of a trial in the comparison of predicted and realised figures, relative to that of the next one."""
PRIOR = 5.0
"""Safety cost, in targets, that is taken as rightly predicted from the start: a single surprise is no proof."""
DOUBT = 1.5
"""Share by which a value may exceed the model's before any trial has had a safety cost, however sure the model is."""
CONTACT = 20.0
"""Rate at which realised safety cost dispels the doubt whether it is foreseen: a twentieth of the target halves it."""
MOST = 3.0
"""Largest factor by which past underestimates raise a bound."""
EVIDENCE = 5.0
"""Real episodes that weigh as much as the model's judgement of a policy."""

NOTHING: Mapping[int, Tensor] = {}
"""No target is relative to the safest policy."""

SHARE = 10
"""Imagined trajectories that follow the same function of the model, so that functions can be told apart."""


class Imagine(Protocol):
    """Makes sources of imagined traces."""

    def __call__(self, starts: Tensor | None, *, share: int = 1) -> Source:
        """Return a source of traces that start in the states [k, nx]; None: where the task starts.

        Each `share` of them in a row follow the same function drawn from the model, where it draws functions.
        """
        ...


def between_functions(constraint: Constraint, traces: Traces) -> float:
    """Return the standard deviation of a constraint's value from one function that the model holds possible to another.

    The traces are in groups of `SHARE`, each of another function. Their values also differ because they are estimated
    from few trajectories; that variance is subtracted.
    """
    values, errors = [], []
    for amounts in torch.split(constraint.amounts(traces).cpu(), SHARE):
        each = constraint.contributions(amounts)
        values.append(each.mean())
        errors.append(each.var() / len(each))
    if len(values) < 2:
        return 0.0
    return math.sqrt(max(0.0, float(torch.stack(values).var() - torch.stack(errors).mean())))


@final
@dataclass(frozen=True)
class Verdict:
    """A policy as the model and its own real trial judge it."""

    cost: float
    """Expected cost of a trajectory."""
    amounts: tuple[float, ...]
    """Mean amount of each constraint."""
    bounds: tuple[float, ...]
    """Upper confidence bound on the value of each constraint."""
    ceilings: tuple[float, ...]
    """Value that each bound may reach: the constraint's target."""

    def state_dict(self) -> State:
        """Return the verdict as plain values, for a checkpoint."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}

    @staticmethod
    def of(state: State) -> Verdict:
        """Make the verdict that `state_dict` described."""
        lists = (tuple(state[name]) for name in ("amounts", "bounds", "ceilings"))
        return Verdict(float(state["cost"]), *lists)

    @property
    def excess(self) -> float:
        """Return the largest share by which a bound exceeds its ceiling; at most 0 if the policy passes."""
        rows = zip(self.bounds, self.ceilings, strict=True)
        return max((bound / most - 1 if most > 0 else bound for bound, most in rows), default=0.0)

    @property
    def missed(self) -> tuple[int, ...]:
        """Return the indices of the constraints whose bounds are above their ceilings."""
        return tuple(i for i, (bound, most) in enumerate(zip(self.bounds, self.ceilings, strict=True)) if bound > most)

    @property
    def passes(self) -> bool:
        """Return whether every bound is within its ceiling."""
        return self.excess <= 0


@final
@dataclass(frozen=True)
class Candidate:
    """A policy to choose from, and its real trial, if it had one."""

    name: str
    """Description for the user, such as "the policy of trial 3"."""
    state: dict[str, Tensor]
    """Parameters of the policy."""
    starts: Tensor | None = None
    """States in which its real episodes started [k, nx]; None without a trial."""
    cost: float = 0.0
    """Mean realised cost of those episodes."""
    amounts: tuple[float, ...] = ()
    """Mean realised amount of each constraint."""

    @staticmethod
    def of(name: str, policy: NetworkPolicy) -> Candidate:
        """Copy a policy that has not been tried."""
        with torch.no_grad():
            return Candidate(name, {key: value.clone() for key, value in policy.state_dict().items()})

    def state_dict(self) -> State:
        """Return the candidate as plain values and tensors, for a checkpoint."""
        return {**vars(self), "amounts": list(self.amounts)}

    @staticmethod
    def restored(state: State) -> Candidate:
        """Make the candidate that `state_dict` described."""
        return Candidate(**{**state, "amounts": tuple(state["amounts"])})


@final
class Shield:
    """Judges policies by what the model imagines and by how well past trials were predicted."""

    def __init__(
        self,
        constraints: tuple[Constraint, ...],
        multipliers: Multipliers,
        trajectories: int,
        safest: Callable[[int], NetworkPolicy],
    ) -> None:
        """Judge on so many fresh imagined trajectories, and on three times as many while the sampling error decides.

        `safest` returns the safest known policy for the constraint with that index, if its limit looks infeasible.
        """
        self._constraints, self._multipliers, self._safest = constraints, multipliers, safest
        self._trajectories = -(-trajectories // SHARE) * SHARE
        self.tried: list[Candidate] = []
        """The latest policies that made a trial, after the best of those before them."""
        self._predicted = [0.0 for _ in constraints]
        self._realised = [0.0 for _ in constraints]
        self._surplus, self._trials = 0.0, 0.0

    def factors(self) -> tuple[float, ...]:
        """Return the factor of each constraint by which realised amounts exceeded the predicted ones, at least 1."""
        sums = zip(self._multipliers.units, self._realised, self._predicted, strict=True)
        return tuple(min(MOST, max(1.0, (PRIOR * u + real) / (PRIOR * u + foreseen))) for u, real, foreseen in sums)

    def doubts(self) -> tuple[float, ...]:
        """Return the share of each constraint by which values may exceed the model's, as far as trials have shown.

        Before any trial has had a safety cost, nothing shows that the model foresees one.
        """
        sums = zip(self._multipliers.units, self._realised, strict=True)
        return tuple(DOUBT * unit / (unit + CONTACT * real) for unit, real in sums)

    @property
    def optimism(self) -> float:
        """Return by how much trials cost more than predicted, at least 0: what an untried policy must make up for."""
        return max(0.0, self._surplus / (self._trials + 1))

    def judge(
        self,
        policy: NetworkPolicy,
        candidate: Candidate,
        imagine: Imagine,
        seed: int,
        safest: Mapping[int, Tensor] = NOTHING,
    ) -> Verdict:
        """Judge a candidate, loaded into `policy`; candidates judged with the same seed meet the same random numbers.

        The bound contains the sampling error, the model's uncertainty (by how much the value differs between functions
        that it holds possible) or, if that is more, the doubt left by past trials, and the factor learned from them; a
        policy's own trial counts beside the model's judgement. Where the target is a multiple of what the `safest`
        policy reaches, what the model does not know raises both alike: then the bound contains the sampling error of
        their difference alone. See `_yardsticks`.
        """
        policy.load_state_dict(candidate.state)
        ceilings = self._multipliers.targets
        traces = self._traces(policy, imagine(None, share=SHARE), seed, safest)
        bounds = [bound for _, bound in self._values(traces, safest)]
        cost, amounts = self._means(traces)
        if candidate.starts is None:
            return Verdict(cost + self.optimism, amounts, tuple(bounds), ceilings)
        n = len(candidate.starts)
        again = imagine(candidate.starts)(policy, self._trajectories, _seeded(policy, seed))
        expected, expected_amounts = self._means(again)
        weight = n / (EVIDENCE + n)
        cost += weight * (candidate.cost - expected)
        rows = zip(bounds, self._multipliers.units, candidate.amounts, expected_amounts, strict=True)
        evident = [
            # In proportion, or by as much: a model that foresees nothing has no proportion.
            max(bound * min(MOST, (unit + n * real) / (unit + n * foreseen)), bound + weight * (real - foreseen), bound)
            for bound, unit, real, foreseen in rows
        ]
        return Verdict(cost, amounts, tuple(evident), ceilings)

    def best(
        self, policy: NetworkPolicy, candidates: Sequence[Candidate], imagine: Imagine, seed: int
    ) -> tuple[Candidate, Verdict]:
        """Return the cheapest candidate that passes, or else the one nearest to passing, with its verdict."""
        scratch = copy.deepcopy(policy)
        safest = self._yardsticks(scratch, imagine, seed)
        judged = [(one, self.judge(scratch, one, imagine, seed, safest)) for one in candidates]
        return min(judged, key=lambda pair: (max(0.0, pair[1].excess), pair[1].cost))

    def note(self, candidate: Candidate, policy: NetworkPolicy, imagine: Imagine, seed: int, trial: Traces) -> None:
        """Remember a trial that the model has not learned from yet: its policy, the prediction and the outcome.

        The prediction is from the trial's own start states, so that an unlucky start is not taken for an error.
        """
        scratch = copy.deepcopy(policy)
        scratch.load_state_dict(candidate.state)
        starts = trial.x[:, 0]
        cost, amounts = self._means(imagine(starts)(scratch, self._trajectories, _seeded(policy, seed)))
        real_cost, real_amounts = self._means(trial)
        self._predicted = [DECAY * sum_ + each for sum_, each in zip(self._predicted, amounts, strict=True)]
        self._realised = [DECAY * sum_ + each for sum_, each in zip(self._realised, real_amounts, strict=True)]
        self._surplus, self._trials = DECAY * self._surplus + real_cost - cost, DECAY * self._trials + 1
        done = Candidate(candidate.name, candidate.state, starts, real_cost, real_amounts)
        known = [*self.tried, done]
        earlier, latest = known[:-REMEMBERED], known[-REMEMBERED:]
        self.tried = [*sorted(earlier, key=self._realised_rank)[:1], *latest]

    def proven(self) -> Candidate | None:
        """Return the policy that did best in its trial; None before the first."""
        return min(self.tried, key=self._realised_rank, default=None)

    def _realised_rank(self, candidate: Candidate) -> tuple[float, float]:
        """Rank a trial by the share by which a mean amount exceeded its target, if one did, and then by its cost."""
        rows = zip(candidate.amounts, self._multipliers.targets, self._multipliers.units, strict=True)
        return max((max(0.0, (real - most) / unit) for real, most, unit in rows), default=0.0), candidate.cost

    def _means(self, traces: Traces) -> tuple[float, tuple[float, ...]]:
        """Return the mean cost of a trajectory and the mean amount of each constraint."""
        return -float(traces.returns.mean()), tuple(float(one.amounts(traces).mean()) for one in self._constraints)

    def _yardsticks(self, policy: NetworkPolicy, imagine: Imagine, seed: int) -> dict[int, Tensor]:
        """Return the safest policy's contributions [3B] to each value whose target is a multiple of what it reaches.

        They are scaled, so that their mean is the target. The least reachable value is estimated afresh with them, so
        that the target is that of the present model.
        """
        found: dict[int, Tensor] = {}
        for i, (constraint, multiplier) in enumerate(zip(self._constraints, self._multipliers.each, strict=True)):
            if multiplier.relaxed:
                policy.load_state_dict(self._safest(i).state_dict())
                source, generator = imagine(None, share=SHARE), _seeded(policy, seed)
                traces = Traces.joined([source(policy, n * self._trajectories, generator) for n in (1, 2)])
                least = estimate(constraint, traces)
                multiplier.note_least(least)
                contributions = constraint.contributions(constraint.amounts(traces))
                found[i] = contributions * (multiplier.target / least.value if least.value > 0 else 1.0)
        return found

    def _traces(self, policy: NetworkPolicy, source: Source, seed: int, safest: Mapping[int, Tensor]) -> Traces:
        """Imagine trajectories, and more of them while only the sampling error decides."""
        generator = _seeded(policy, seed)
        traces = source(policy, self._trajectories, generator)
        for (value, bound), ceiling in zip(self._values(traces, safest), self._multipliers.targets, strict=True):
            if value <= ceiling < bound:
                return Traces.joined([traces, source(policy, 2 * self._trajectories, generator)])
        return traces

    def _values(self, traces: Traces, safest: Mapping[int, Tensor]) -> Iterator[tuple[float, float]]:
        """Yield the value of each constraint, as past trials suggest it, and an upper confidence bound on it."""
        rows = zip(self._constraints, self._multipliers.each, self.factors(), self.doubts(), strict=True)
        for i, (constraint, multiplier, factor, doubt) in enumerate(rows):
            if i in safest:
                each = constraint.contributions(constraint.amounts(traces))
                beyond = (each - safest[i][: len(each)]).reshape(-1, SHARE).mean(1)
                value = multiplier.target + float(beyond.mean())
                yield value, value + CONFIDENCE * float(beyond.std()) / math.sqrt(len(beyond))
            else:
                value, error = estimate(constraint, traces)
                unsure = CONFIDENCE * math.hypot(error, between_functions(constraint, traces))
                yield factor * value, factor * (value + max(unsure, doubt * value))

    def state_dict(self) -> State:
        """Return the memory of past trials."""
        sums = {"predicted": self._predicted, "realised": self._realised}
        return {
            **{name: list(values) for name, values in sums.items()},
            "tried": [one.state_dict() for one in self.tried],
            "surplus": self._surplus,
            "trials": self._trials,
        }

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned."""
        self.tried = [Candidate.restored(one) for one in state["tried"]]
        self._predicted, self._realised = list(state["predicted"]), list(state["realised"])
        self._surplus, self._trials = float(state["surplus"]), float(state["trials"])


def _seeded(policy: NetworkPolicy, seed: int) -> Generator:
    return Generator(policy.centre.device).manual_seed(seed)
