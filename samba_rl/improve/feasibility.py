"""Feasibility: the least value that a constraint can reach on the model, found by a policy that minimises only that."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from typing import final

from torch import Generator

from samba_rl.events import Notice
from samba_rl.improve.advantages import AdvantageSettings
from samba_rl.improve.constraints import Constraint, estimate
from samba_rl.improve.experts import NetworkPolicy
from samba_rl.improve.multipliers import Multiplier, Multipliers
from samba_rl.improve.results import Estimate
from samba_rl.improve.shield import CONFIDENCE, SHARE, Imagine, between_functions
from samba_rl.improve.step import Improver
from samba_rl.improve.updates.rules import Proximal, UpdateSettings
from samba_rl.types import Source, State


@final
class Safest:
    """A policy that minimises one constraint alone, improved further from model to model."""

    def __init__(
        self,
        start: NetworkPolicy,
        constraint: Constraint,
        advantage: AdvantageSettings,
        update: UpdateSettings,
        generator: Generator,
        fresh: int,
    ) -> None:
        """Begin with the policy `start`, best one that does next to nothing: that is often safe.

        The least value is estimated on so many `fresh` trajectories.
        """
        self._constraint, self.fresh = constraint, fresh
        self.best = copy.deepcopy(start)
        """The policy with the least value found so far."""
        self._improver = Improver(start, (), (constraint,), advantage, Proximal(), update, generator)

    def state_dict(self) -> State:
        """Return the state of the policy, its critic and their optimisers, and the best policy."""
        best = {name: value.clone() for name, value in self.best.state_dict().items()}
        return {"improver": self._improver.state_dict(), "best": best}

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned."""
        self._improver.load_state_dict(state["improver"])
        self.best.load_state_dict(state["best"])

    def start_from(self, policy: NetworkPolicy) -> None:
        """Continue the search from another policy, which is safer than the best one so far."""
        self.best.load_state_dict(policy.state_dict())
        self._improver.policy.load_state_dict(policy.state_dict())

    def least(self, source: Source, iterations: int, trajectories: int, generator: Generator) -> Estimate:
        """Search for at most `iterations` control iterations, and until the limit is met; estimate the best value.

        The least of many noisy values is biased, so the policy that had it is judged again on fresh trajectories.
        """
        least = float("inf")
        for _ in range(iterations):
            traces = source(self._improver.policy, trajectories, generator)
            value = self._constraint.measure(traces)
            if value < least:
                least = value
                self.best.load_state_dict(self._improver.policy.state_dict())
            if least <= self._constraint.limit:
                break
            before = self._improver.state_dict()
            batch = self._improver.advantages(traces).combined((), (1.0,), (1.0,))
            self._improver.update(batch, generator)
            if not self._improver.finite:
                self._improver.load_state_dict(before)
        return estimate(self._constraint, source(self.best, self.fresh, generator))


@final
class Feasibility:
    """Estimates the least reachable values of constraints whose limits may be out of reach."""

    def __init__(
        self,
        constraints: tuple[Constraint, ...],
        multipliers: Multipliers,
        make: Callable[[Constraint], Safest],
        iterations: int,
        trajectories: int,
    ) -> None:
        """Call `make` for the policy that searches for the least value of a constraint, when it is first needed."""
        self._constraints, self._multipliers, self._make = constraints, multipliers, make
        self._iterations, self._trajectories = iterations, trajectories
        self._safest: dict[int, Safest] = {}

    def check(
        self,
        imagine: Imagine,
        policy: NetworkPolicy,
        reached: tuple[float, ...],
        generator: Generator,
        *,
        last: bool,
        afresh: bool = False,
    ) -> Iterator[Notice]:
        """Update the multipliers' estimates of the least values, and yield a notice where feasibility changes.

        The search runs in full when a limit is first missed and at the `last` check, and a quarter as long after each
        trial while a limit looks infeasible. It can be stuck: with `afresh` an untrained policy searches beside it, and
        at the `last` check a copy of the policy itself. `reached` holds the values of the policy. A limit stands while
        some function that the model holds possible allows it, so ignorance of the model makes no limit infeasible.
        """
        source = imagine(None)
        for i, (constraint, multiplier) in enumerate(zip(self._constraints, self._multipliers.each, strict=True)):
            first, known = multiplier.least is None, multiplier.infeasible
            if not (last or known or (first and reached[i] > constraint.limit)):
                continue
            iterations = self._iterations if first or last else -(-self._iterations // 4)
            least = self.safest(i).least(source, iterations, self._trajectories, generator)
            if (afresh or last) and least.value > constraint.limit:
                other = self._make(constraint)
                if last:
                    other.start_from(policy)
                found = other.least(source, self._iterations, self._trajectories, generator)
                if found < least:
                    self._safest[i], least = other, found
            if reached[i] < least.value:
                own = estimate(constraint, source(policy, self.safest(i).fresh, generator))
                if own < least:
                    least = own
                    self.safest(i).start_from(policy)
            if least.value > constraint.limit and not known and self._is_doubtful(i, least, imagine, generator):
                continue
            multiplier.least, multiplier.least_error = least
            if multiplier.infeasible and not known:
                yield Notice(_infeasible(constraint, multiplier))
            elif known and not multiplier.infeasible:
                yield Notice(f"{constraint.in_words()}: the limit {constraint.limit:g} can be met after all")

    def _is_doubtful(self, index: int, least: Estimate, imagine: Imagine, generator: Generator) -> bool:
        """Return whether a least value above the limit may be due to what the model does not know."""
        constraint, safest = self._constraints[index], self.safest(index)
        traces = imagine(None, share=SHARE)(safest.best, safest.fresh, generator)
        doubt = math.hypot(least.error, between_functions(constraint, traces))
        return least.value - CONFIDENCE * doubt <= constraint.limit

    def safest_known(self) -> list[NetworkPolicy]:
        """Return the best policy of each search that has been made."""
        return [search.best for search in self._safest.values()]

    def state_dict(self) -> State:
        """Return the state of each search."""
        return {str(index): safest.state_dict() for index, safest in self._safest.items()}

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned."""
        for index, safest in state.items():
            self.safest(int(index)).load_state_dict(safest)

    def safest(self, index: int) -> Safest:
        """Return the search for the least value of a constraint."""
        if index not in self._safest:
            self._safest[index] = self._make(self._constraints[index])
        return self._safest[index]


def _infeasible(constraint: Constraint, multiplier: Multiplier) -> str:
    """Word the notice about a limit that seems out of reach."""
    relaxed = "" if multiplier.settings.slack is None else f" The target is {multiplier.target:.3g} instead."
    return (
        f"{constraint.in_words()}: the limit {constraint.limit:g} looks infeasible; the safest policy found on the "
        f"model so far reaches {multiplier.least:.3g}.{relaxed} Raise the limit, or change where the system starts"
    )
