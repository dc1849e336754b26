"""The shield: no policy makes a trial, and none is handed over, that looks too unsafe while a safer one is known."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Generator, Tensor

from samba_rl.improve.constraints import Constraint, estimate
from samba_rl.improve.multipliers import Multipliers
from samba_rl.improve.policies import GaussianPolicy
from samba_rl.types import Source, State, Traces

TRAJECTORIES = 1000
"""Fresh imagined trajectories on which a policy is judged."""
MORE_TRAJECTORIES = 2000
"""Further ones, if only the sampling error speaks against it."""
CONFIDENCE = 1.645
"""Standard errors in an upper bound: 95 % one-sided."""
TRIAL_TOLERANCE = 0.25
"""Share by which the bound may exceed the target before a trial."""
LAST_TOLERANCE = 0.15
"""Share by which the bound may exceed the target at the hand-over."""
REMEMBERED = 5
"""Policies of earlier trials that are kept to fall back on."""
DECAY = 0.9
"""Weight of a trial in the comparison of predicted and realised safety costs, relative to that of the next one."""
PRIOR = 5.0
"""Safety cost, in targets, that is taken as rightly predicted from the start: a single surprise is no proof."""
MOST = 3.0
"""Largest factor by which past underestimates raise a bound."""
EVIDENCE = 5.0
"""Real episodes that weigh as much as the model's judgement of a policy."""


@final
@dataclass(frozen=True)
class Verdict:
    """A policy as the model judges it."""

    cost: float
    """Mean cost of a trajectory; where the policy has been tried, mixed with the realised one."""
    amounts: tuple[float, ...]
    """Mean amount of each constraint."""
    bounds: tuple[float, ...]
    """Upper confidence bound on the value of each constraint."""
    ceilings: tuple[float, ...]
    """Value that each bound may reach."""

    @property
    def excess(self) -> float:
        """Return the largest share by which a bound exceeds its ceiling; at most 0 if the policy passes."""
        shares = (bound / max(most, 1e-9) - 1 for bound, most in zip(self.bounds, self.ceilings, strict=True))
        return max(shares, default=0.0)

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
    episodes: int = 0
    """Real episodes that it made."""
    cost: float = 0.0
    """Mean realised cost of those episodes."""
    amounts: tuple[float, ...] = ()
    """Mean realised amount of each constraint."""


@final
class Shield:
    """Judges policies on fresh imagined trajectories, in the light of how well past trials were predicted."""

    def __init__(self, constraints: tuple[Constraint, ...], multipliers: Multipliers) -> None:
        self._constraints, self._multipliers = constraints, multipliers
        self.tried: list[Candidate] = []
        """The latest policies that made a trial."""
        self._predicted = [0.0 for _ in constraints]
        self._realised = [0.0 for _ in constraints]

    def factors(self) -> tuple[float, ...]:
        """Return the factor of each constraint by which realised amounts exceeded the predicted ones, at least 1."""
        sums = zip(self._multipliers.units, self._realised, self._predicted, strict=True)
        return tuple(min(MOST, max(1.0, (PRIOR * u + real) / (PRIOR * u + foreseen))) for u, real, foreseen in sums)

    def judge(
        self, policy: GaussianPolicy, candidate: Candidate, sources: Sequence[Source], seed: int, *, last: bool
    ) -> Verdict:
        """Judge a candidate, loaded into `policy`, on fresh trajectories of each source; the worst source counts.

        Candidates judged with the same seed meet the same random numbers. `last`: for the hand-over.
        """
        policy.load_state_dict(candidate.state)
        ceilings = tuple(
            (1 + (LAST_TOLERANCE if last else TRIAL_TOLERANCE)) * target for target in self._multipliers.targets
        )
        bounds = [0.0 for _ in self._constraints]
        cost, amounts = 0.0, [0.0 for _ in self._constraints]
        for number, source in enumerate(sources):
            traces = self._traces(policy, source, seed, ceilings)
            for j, constraint in enumerate(self._constraints):
                value, error = estimate(constraint, traces)
                bounds[j] = max(bounds[j], value + CONFIDENCE * error)
                if number == 0:
                    amounts[j] = float(constraint.amounts(traces).mean())
            if number == 0:
                cost = -float(traces.returns.mean())
        raised = [f * bound for f, bound in zip(self.factors(), bounds, strict=True)]
        if candidate.episodes:
            n = candidate.episodes
            cost = (EVIDENCE * cost + n * candidate.cost) / (EVIDENCE + n)
            for j, (unit, real) in enumerate(zip(self._multipliers.units, candidate.amounts, strict=True)):
                raised[j] *= min(MOST, max(1.0, (unit + n * real) / (unit + n * amounts[j])))
        return Verdict(cost, tuple(amounts), tuple(raised), ceilings)

    def _traces(self, policy: GaussianPolicy, source: Source, seed: int, ceilings: tuple[float, ...]) -> Traces:
        """Imagine trajectories, and more of them while only the sampling error decides."""
        generator = Generator(policy.centre.device).manual_seed(seed)
        traces = source(policy, TRAJECTORIES, generator)
        for constraint, ceiling in zip(self._constraints, ceilings, strict=True):
            value, error = estimate(constraint, traces)
            if value <= ceiling < value + CONFIDENCE * error:
                return Traces.joined([traces, source(policy, MORE_TRAJECTORIES, generator)])
        return traces

    def best(
        self,
        policy: GaussianPolicy,
        candidates: Sequence[Candidate],
        sources: Sequence[Source],
        seed: int,
        *,
        last: bool,
    ) -> tuple[Candidate, Verdict]:
        """Return the cheapest candidate that passes, or else the one nearest to passing, with its verdict."""
        scratch = copy.deepcopy(policy)
        judged = [(one, self.judge(scratch, one, sources, seed, last=last)) for one in candidates]
        return min(judged, key=lambda pair: (max(0.0, pair[1].excess), pair[1].cost))

    def note(self, candidate: Candidate, policy: GaussianPolicy, source: Source, seed: int, traces: Traces) -> None:
        """Remember a trial: the policy that made it, what it realised, and what was to be expected of it.

        `source` imagines trajectories from the trial's own start states, so that an unlucky start is not taken for an
        error of the model. It must not have learned from the trial yet.
        """
        scratch = copy.deepcopy(policy)
        scratch.load_state_dict(candidate.state)
        imagined = source(scratch, TRAJECTORIES, Generator(policy.centre.device).manual_seed(seed))
        predicted = tuple(float(one.amounts(imagined).mean()) for one in self._constraints)
        realised = tuple(float(one.amounts(traces).mean()) for one in self._constraints)
        for j, (foreseen, real) in enumerate(zip(predicted, realised, strict=True)):
            self._predicted[j] = DECAY * self._predicted[j] + foreseen
            self._realised[j] = DECAY * self._realised[j] + real
        done = Candidate(candidate.name, candidate.state, len(traces.returns), -float(traces.returns.mean()), realised)
        self.tried = [*self.tried, done][-REMEMBERED:]

    def state_dict(self) -> State:
        """Return the memory of past trials."""
        tried = [{**vars(one), "amounts": list(one.amounts)} for one in self.tried]
        return {"tried": tried, "predicted": list(self._predicted), "realised": list(self._realised)}

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned."""
        self.tried = [Candidate(**{**one, "amounts": tuple(one["amounts"])}) for one in state["tried"]]
        self._predicted, self._realised = list(state["predicted"]), list(state["realised"])


def copied(policy: GaussianPolicy) -> dict[str, Tensor]:
    """Return a copy of the policy's parameters."""
    with torch.no_grad():
        return {name: value.clone() for name, value in policy.state_dict().items()}
