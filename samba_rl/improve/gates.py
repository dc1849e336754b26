"""Gates: whether a policy can be improved from where it is, may make a real trial, or may be handed over."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, final

import torch
from torch import Tensor

from samba_rl.events import Notice
from samba_rl.improve.constraints import Constraint
from samba_rl.improve.experts import NetworkPolicy
from samba_rl.improve.multipliers import Multipliers
from samba_rl.improve.shield import Candidate, Imagine, Shield, Verdict
from samba_rl.types import State, Traces

if TYPE_CHECKING:
    from samba_rl.improve.feasibility import Feasibility

STRANDED = 1e-4
"""A policy is stranded if the returns of its trajectories deviate by less than this share of a random policy's cost."""
ROUNDS = 3
"""Largest number of times that a policy which looks too unsafe is improved further with more caution."""
ROUND_SHARE = 0.25
"""Control iterations of such a round, as a share of those planned: at first or, if that is none, after each trial."""
WAYPOINTS = 8
"""Policies on the way of an improvement that are kept in case its last one is refused."""
STRIDE = 2
"""Control iterations between two policies that are kept to choose from at the end."""
FIRST_LOOK = 1 / 3
"""Share of its control iterations after which a copy that seeks information must have gained something."""
PLATEAU = 2.0
"""Standard errors by which the cost must have fallen for a policy to be worth improving further."""
GRACE = 0.35
"""Share by which a trial may exceed the target that stands in for an infeasible limit: the safest known policy would
keep to that, but it often does next to nothing, and its trial teaches nothing."""
MEMORY = 0.95
"""Share of the average of the last policies that remains after a control iteration: about 20 of them count."""


def is_stranded(traces: Traces, step_cost: float) -> bool:
    """Return whether all trajectories cost the same, so that no gradient leads on; `step_cost` is a typical cost."""
    return float(traces.returns.std(correction=0)) < STRANDED * step_cost * traces.cost.shape[1]


@dataclass
class Improvement:
    """Progress of an improvement of the policy."""

    last: bool = False
    """Whether it follows the last trial."""
    finishing: bool = False
    """Whether it finishes the policy, so that the best of the latest ones is chosen."""
    planned: int = 0
    """Control iterations planned at first."""
    controls: int = 0
    """Control iterations planned by now."""
    usual: int = 0
    """Control iterations planned after each trial or, after the last one, those that finish the policy."""
    control: int = 0
    """Control iterations done."""
    cost_alone: bool = False
    """Whether the policy has started afresh, for the cost alone."""
    starts: int = 0
    """Fresh policies that are still to be improved beside the old one."""
    rivals: list[State] = field(default_factory=list)
    """Policies, critics and multipliers to choose from once all starts are done."""
    candidates: list[State] = field(default_factory=list)
    """Latest policies, to choose from at the end."""
    way: list[State] = field(default_factory=list)
    """Policies on the way, since the policy last started afresh: the cheapest that passes may stand in for the end."""
    average: dict[str, Tensor] = field(default_factory=dict)
    """Moving average of the last policies, which has less of the noise of single steps; one more to choose from."""
    costs: list[float] = field(default_factory=list)
    """Mean cost of a trajectory in each control iteration, since the policy last started afresh."""
    further: int = 0
    """Control iterations added because the cost was still falling."""
    rounds: int = 0
    """Times that the policy looked too unsafe and was improved further."""
    failures: int = 0
    """Updates that were undone."""
    base: State | None = None
    """The policy itself, with its critics and multipliers, while a copy of it seeks information."""
    information: list[float] = field(default_factory=list)
    """Mean ζ of a trajectory in each control iteration of the copy, first that of the policy itself."""
    cleared: bool = False
    """Whether the policy for the trial, or the one to hand over, has been chosen."""

    def keep(self, policy: NetworkPolicy, count: int) -> None:
        """Keep the policy if it is a waypoint or one of the `count` latest to choose from; average the last ones."""
        waypoint = self.base is None and self.control % max(1, (self.planned or self.usual) // WAYPOINTS) == 0
        if not (waypoint or self.last or self.finishing):
            return
        state = Candidate.of("", policy).state
        if waypoint:
            self.way.append(state)
        if not (self.last or self.finishing):
            return
        if count > 1:
            old = self.average or state
            self.average = {name: MEMORY * old[name] + (1 - MEMORY) * value for name, value in state.items()}
        if self.controls - self.control in range(0, count * STRIDE, STRIDE):
            self.candidates.append(state)

    def start_beside(self, controls: int) -> None:
        """Plan control iterations of a fresh policy, for the cost alone."""
        self.starts, self.cost_alone, self.controls = self.starts - 1, True, self.control + controls
        self.costs.clear()
        self.way.clear()

    def end_starts(self) -> list[State]:
        """Return and forget the policies to choose from, with their critics and multipliers."""
        rivals, self.rivals = self.rivals, []
        self.costs.clear()
        self.way.clear()
        return rivals

    def begin_exploring(self, base: State, controls: int) -> None:
        """Plan control iterations of a copy of the policy, which seeks information."""
        self.cleared, self.cost_alone, self.base, self.information = False, False, base, []
        self.controls = self.control + controls

    def note_information(self, zeta: float, worth: float) -> None:
        """Note the mean ζ of a trajectory of the copy, which ends early if it will hardly gain `worth`.

        From the first look on it must be half as far as it would be on a straight line.
        """
        self.information.append(zeta)
        done = len(self.information)
        share = done / (done + self.controls - self.control)
        if share >= FIRST_LOOK and self.gained < share * worth / 2:
            self.controls = self.control

    @property
    def gained(self) -> float:
        """Return by how much ζ of a trajectory of the copy exceeds that of the policy itself."""
        return self.information[-1] - self.information[0]

    def end_exploring(self) -> State:
        """Return the policy itself, with which the next improvement goes on."""
        assert self.base is not None
        base, self.base, self.cleared = self.base, None, True
        return base

    def extend(self) -> bool:
        """Plan a further round of control iterations if one is left, and return whether it was."""
        if self.rounds >= ROUNDS:
            return False
        self.rounds += 1
        self.controls += self._round
        return True

    def go_on(self, most: float) -> bool:
        """Plan a further round if the cost is still falling and `most` times those planned are not done yet.

        It falls if its mean over the last round is below that over the round before by more than the noise of both.
        """
        each = self._round
        recent = torch.tensor(self.costs[-2 * each :], dtype=torch.float64)
        if each < 2 or len(recent) < 2 * each or self.further + each > (most - 1) * self.planned:
            return False
        before, after = recent[:each], recent[each:]
        error = math.sqrt(float(before.var() + after.var()) / each)
        if not float(before.mean() - after.mean()) > PLATEAU * error:
            return False
        self.controls += each
        self.further += each
        self.candidates.clear()
        return True

    @property
    def _round(self) -> int:
        """Return the number of control iterations of a further round."""
        return max(1, round(ROUND_SHARE * (self.planned or self.usual)))

    @property
    def finals(self) -> list[State]:
        """Return the policies to choose from at the end."""
        return [*self.candidates, *([self.average] if self.average else [])]


@final
class Gate:
    """Lets a policy act only if an upper bound on each constrained value is within its target.

    A policy that looks too unsafe is first improved further, with a lower aim; if that does not help, the best known
    policy that passes takes its place, or else the safest, with a notice. Without a limit a policy that looks worse
    than the best of those that made a trial gives way to it, and improvement goes on from there.
    """

    def __init__(
        self,
        constraints: tuple[Constraint, ...],
        multipliers: Multipliers,
        feasibility: Feasibility,
        trajectories: int,
        *,
        shielded: bool,
    ) -> None:
        self.shield = Shield(constraints, multipliers, trajectories, lambda index: feasibility.safest(index).best)
        self.verdict: Verdict | None = None
        """Judgement of the policy that makes the next trial, or of the one that was handed over."""
        self.actor: Candidate | None = None
        """The policy that makes the next trial, once it has been chosen."""
        self._constraints, self._multipliers, self._feasibility = constraints, multipliers, feasibility
        self._shielded = shielded

    def before_trial(
        self, policy: NetworkPolicy, work: Improvement, imagine: Imagine, seed: int, number: int
    ) -> list[Notice]:
        """Clear the policy for trial `number`, plan further control iterations, or choose another for this trial."""
        own = Candidate.of(f"the policy of trial {number}", policy)
        others = [*work.finals, *policy.bolder()] if work.finishing else []
        latest = [own, *(replace(own, state=state) for state in others)]
        if not self._shielded:
            work.cleared = True
            if work.finishing:
                self.actor, self.verdict = self.shield.best(policy, latest, imagine, seed)
                policy.load_state_dict(self.actor.state)
            return []
        proven = None if self._constraints else self.shield.proven()
        rivals = latest if proven is None else [*latest, proven]
        self.actor, self.verdict = self.shield.best(policy, rivals, imagine, seed)
        if self.actor is proven:
            work.cleared = True
            policy.load_state_dict(self.actor.state)
            return [Notice(f"trial {number}: {self.actor.name} goes on; its successor looks worse than it did")]
        refused = self.verdict
        if self._too_unsafe(refused) and work.extend():
            return []
        work.cleared = True
        relaxed = all(self._multipliers.each[index].relaxed for index in refused.missed)
        if refused.passes:
            return []
        if relaxed and refused.excess <= GRACE:
            return [Notice(f"trial {number}: it goes ahead, since the limit is infeasible; {self._missed(refused)}")]
        earlier = [replace(own, name="an earlier policy of this improvement", state=state) for state in work.way]
        instead = [*self._more_careful(policy, [own]), *earlier, *self._known()]
        self.actor, self.verdict = self.shield.best(policy, [*latest, *instead], imagine, seed)
        if any(self.actor is one for one in latest):
            return [Notice(f"trial {number}: no known policy looks safe enough; {self._missed(refused)}")]
        return [Notice(f"trial {number}: {self.actor.name} takes its place; {self._missed(refused)}")]

    def let_explore(
        self, policy: NetworkPolicy, work: Improvement, imagine: Imagine, seed: int, number: int, worth: float
    ) -> list[Notice]:
        """Let the copy that seeks information make trial `number` if it looks safe and worth it.

        It must be expected to gain `worth` more per trajectory than the policy that was cleared for the trial.
        """
        if work.gained < worth:
            return []
        explorer = Candidate.of(f"the exploring policy of trial {number}", policy)
        if self._shielded:
            explorer, verdict = self.shield.best(policy, [explorer], imagine, seed)
            if not verdict.passes:
                return []
            self.verdict = verdict
        self.actor = explorer
        gain = f"ζ of a trajectory is {work.information[-1]:.3g} instead of {work.information[0]:.3g}"
        return [Notice(f"trial {number}: a copy of the policy that seeks information makes it; {gain}")]

    def hand_over(self, policy: NetworkPolicy, work: Improvement, imagine: Imagine, seed: int) -> list[Notice]:
        """Choose the cheapest known policy that keeps its limits, or plan further control iterations.

        If the policy was finished before the last trial, those that have been tried are the first choice.
        """
        last = [Candidate("one of the last policies", state) for state in work.finals]
        tried = self.shield.tried if self._shielded else []
        usual = last or tried[-1:] or [Candidate.of("the last policy", policy)]
        first = last or [*tried, *self._more_careful(policy, tried[-1:])] or usual
        chosen, verdict = self.shield.best(policy, first, imagine, seed)
        if self._shielded:
            if self._too_unsafe(verdict) and work.extend():
                return []
            earlier = [Candidate("an earlier policy of the last improvement", state) for state in work.way]
            chosen, verdict = self.shield.best(policy, [chosen, *earlier, *self._known()], imagine, seed)
        work.cleared = True
        self.verdict = verdict
        policy.load_state_dict(chosen.state)
        notices = [] if chosen.name == usual[0].name else [Notice(f"{chosen.name} is handed over; it looks better")]
        if not verdict.passes:
            notices.append(Notice(f"the limit is not kept: {self._missed(verdict)}"))
        return notices

    def note(self, policy: NetworkPolicy, imagine: Imagine, seed: int, trial: Traces) -> None:
        """Remember the trial of the chosen policy, before the model learns from it."""
        if self.actor is not None:
            self.shield.note(self.actor, policy, imagine, seed, trial)
        self.actor = None

    def _too_unsafe(self, verdict: Verdict) -> bool:
        """Return whether a policy looks too unsafe, and adapt the aim of each constraint to the verdict."""
        for multiplier, bound, ceiling in zip(self._multipliers.each, verdict.bounds, verdict.ceilings, strict=True):
            multiplier.adapt_caution(bound, ceiling)
        return not verdict.passes

    @staticmethod
    def _more_careful(policy: NetworkPolicy, candidates: list[Candidate]) -> list[Candidate]:
        """Return more careful variants of the candidates, where a policy like this one has any."""
        scratch, found = copy.deepcopy(policy), []
        for one in candidates:
            scratch.load_state_dict(one.state)
            name = f"{one.name}, with more weight on the limits,"
            found += [Candidate(name, state) for state in scratch.more_careful()]
        return found

    def _known(self) -> list[Candidate]:
        """Return the policies of earlier trials and the safest ones."""
        safest = self._feasibility.safest_known()
        return [*self.shield.tried, *(Candidate.of("the safest known policy", one) for one in safest)]

    def _missed(self, verdict: Verdict) -> str:
        """Describe the constraints whose bounds are too high."""
        rows = zip(self._constraints, verdict.bounds, verdict.ceilings, strict=True)
        return "; ".join(
            f"{one.in_words()} is bounded by {bound:.3g} on the model, its target is {most:.3g}"
            for one, bound, most in rows
            if bound > most
        )

    def state_dict(self) -> State:
        """Return the memory of past trials, and the latest decision."""
        return {
            "shield": self.shield.state_dict(),
            "actor": None if self.actor is None else self.actor.state_dict(),
            "verdict": None if self.verdict is None else self.verdict.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned."""
        self.shield.load_state_dict(state["shield"])
        self.actor = None if state["actor"] is None else Candidate.restored(state["actor"])
        self.verdict = None if state["verdict"] is None else Verdict.of(state["verdict"])
