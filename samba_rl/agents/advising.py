"""Finding out what return can be had at which limit, on a model of data that are already there."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Generator, Tensor

from samba_rl.agents.advice import ALPHAS, Advice, Judged, Support
from samba_rl.agents.experience import Imagination
from samba_rl.agents.settings import ModelBasedSettings
from samba_rl.data.coverage import Coverage
from samba_rl.errors import UserError
from samba_rl.events import Clock
from samba_rl.improve.constraints import Constraint, CVaR, estimate
from samba_rl.improve.experts import NetworkPolicy
from samba_rl.improve.feasibility import Safest
from samba_rl.improve.multipliers import Multipliers
from samba_rl.improve.objectives import Cost
from samba_rl.improve.policies import GaussianPolicy
from samba_rl.improve.shield import CONFIDENCE, SHARE, between_functions
from samba_rl.improve.step import Improver
from samba_rl.improve.updates.rules import Proximal
from samba_rl.models.gp import GPDynamics
from samba_rl.models.normalise import inputs_and_targets
from samba_rl.tasks.task import Task
from samba_rl.types import Source, Transitions

Tell = Callable[[str, float], None]
"""Called with what is being done and the share of the work that is done."""
NOTHING = 0.02
"""Share of the constrained value without a limit that stands for zero where limits are spaced in equal ratios."""
MOST_DATA = 1500
"""Transitions that the model is fitted to at most; of more data, evenly spread episodes."""
HELD_OUT = 5
"""One in this many episodes is left out to measure the accuracy of the model; with fewer episodes none is."""


@dataclass(frozen=True)
class AdviceSettings:
    """How much work goes into advice."""

    iterations: int = 40
    """Control iterations for each limit; twice as many for policies that start afresh."""
    limits: int = 4
    """Number of limits that policies are improved for, between the strictest and none."""
    trajectories: int = 200
    """Trajectories imagined in each control iteration."""
    judged: int = 1000
    """Fresh trajectories on which each policy is judged."""

    def __post_init__(self) -> None:
        for name, least in (("iterations", 1), ("limits", 0), ("trajectories", 2), ("judged", 2 * SHARE)):
            if getattr(self, name) < least:
                raise UserError(f"{name} = {getattr(self, name)}; give at least {least}")

    @property
    def work(self) -> int:
        """Return the number of control iterations in all."""
        return self.iterations * (5 + self.limits)


@final
class Adviser:
    """Improves policies on a model of the data, at several limits, and judges them on fresh trajectories."""

    def __init__(
        self,
        task: Task,
        data: Transitions,
        numbers: ModelBasedSettings,
        constraints: tuple[Constraint, ...],
        settings: AdviceSettings,
        *,
        seed: int = 0,
        tell: Tell | None = None,
    ) -> None:
        """Advise on the first of the `constraints`; the others keep their limits."""
        self._task, self._data, self._numbers = task, _thinned(data), numbers
        self._available = len(data)
        self._constraint, self._others = constraints[0], constraints[1:]
        self._settings, self._seed = settings, seed
        self._tell: Tell = tell or (lambda *_: None)
        self._generator = Generator().manual_seed(seed)
        self._done = 0
        self._experience = Imagination(task, None, numbers.imagination, numbers.model, "cpu", shielded=True)
        self._points: list[Judged] = []
        self._safest: NetworkPolicy | None = None
        """The policy with the least value so far."""

    def advise(self, known: GaussianPolicy | None = None, asked: tuple[float, ...] = ()) -> Advice:
        """Return the advice; a policy that is already `known` is judged beside those that are found."""
        self._tell("fitting the model", 0.0)
        for _ in self._experience.learn(None, self._data, Clock(), own=False):
            pass  # an error is raised; a warning that the search for hyper-parameters failed shows in the support
        seen = self._task.observe(self._data.x)
        self._coverage = Coverage.of(seen, self._data.episode)
        support = self._support()
        if known is not None:
            self._judge("the policy of the run", known)
        long = 2 * self._settings.iterations
        free = self._improver(self._fresh())
        self._improve(free, None, long, "without a limit")
        most = self._judge("without a limit", free.policy).value
        still = self._fresh(std=max(0.2, self._numbers.policy.std_floor))
        least = self._judge("still, for safety alone", self._safer(still)).value
        # From the strictest limit on, with a fresh policy: one that has learned to ignore the hazard rarely turns back.
        # Standing still may be unsafe itself; then any limit well below the value without one will do.
        strict = max(least if least < most else most / 4, NOTHING * most)
        improver = self._towards(strict, self._improver(self._fresh(), strict), long)
        reached = self._judge(f"limit {strict:.3g}", improver.policy).value
        chain = self._limits(reached, most, asked)
        if reached >= most:
            # What is cheap is safe here, so the policy without a limit is the better start.
            improver, chain = free, self._limits(strict, most, asked)[::-1]
        for limit in chain:
            improver = self._towards(limit, improver, self._settings.iterations)
            self._judge(f"limit {limit:.3g}", improver.policy)
        assert self._safest is not None
        self._judge("for safety alone", self._safer(copy.deepcopy(self._safest)))
        return Advice(
            system=self._task.name,
            constrained=self._constraint.in_words(),
            alpha=self._constraint.alpha if isinstance(self._constraint, CVaR) else None,
            points=tuple(self._points),
            least=min(one.value for one in self._points),
            support=support,
            asked=asked,
        )

    # Improving --------------------------------------------------------------------------------------------------------

    def _limits(self, least: float, most: float, asked: tuple[float, ...]) -> list[float]:
        """Return limits between the value that was reached for the strictest one and that without, and those asked."""
        between = [limit for limit in asked if least < limit < most]
        count = self._settings.limits - len(between)
        low = max(least, NOTHING * most)
        if most > low and count > 0:
            # In equal ratios, since what matters is the relative change.
            ratio = (most / low) ** (1 / (count + 1))
            between += [low * ratio ** (i + 1) for i in range(count)]
        return sorted(between)

    def _towards(self, limit: float, previous: Improver, iterations: int) -> Improver:
        """Improve a copy of the previous policy for a limit."""
        improver = self._improver(copy.deepcopy(previous.policy), limit)
        improver.load_state_dict(previous.state_dict())
        constraints = (replace(self._constraint, limit=limit), *self._others)
        multipliers = Multipliers(self._numbers.multiplier, constraints)
        self._improve(improver, multipliers, iterations, f"limit {limit:.3g}", limit)
        return improver

    def _improver(self, policy: NetworkPolicy, limit: float | None = None) -> Improver:
        numbers = self._numbers
        own = self._constraint if limit is None else replace(self._constraint, limit=limit)
        rules = numbers.rules
        return Improver(
            policy, (Cost(),), (own, *self._others), numbers.advantage, Proximal(), rules, self._generator, spread=False
        )  # fmt: skip

    def _improve(
        self,
        improver: Improver,
        multipliers: Multipliers | None,
        iterations: int,
        what: str,
        limit: float | None = None,
    ) -> None:
        """Run control iterations, with λ = 0 without `multipliers`."""
        source = self._imagine(1)
        own = self._constraint if limit is None else replace(self._constraint, limit=limit)
        constraints = (own, *self._others)
        for i in range(iterations):
            self._tell(what, self._done / self._settings.work)
            progress = i / iterations if iterations > self._settings.iterations else 1.0
            improver.update.std_floor = self._numbers.policy.floor_at(progress)
            traces = source(improver.policy, self._settings.trajectories, self._generator)
            self._done += 1
            if not traces.finite:
                continue
            before = improver.state_dict()
            weights, scales = (0.0,) * len(constraints), None
            if multipliers is not None:
                multipliers.update(tuple(one.measure(traces) for one in constraints))
                weights, scales = multipliers.values, multipliers.scales
            batch = improver.advantages(traces).combined((1.0,), weights, scales)
            improver.update(batch, self._generator)
            if not improver.finite:
                improver.load_state_dict(before)

    def _safer(self, start: NetworkPolicy) -> NetworkPolicy:
        """Return the safest policy of a search that minimises the constraint alone."""
        self._tell("for safety alone", self._done / self._settings.work)
        numbers, half = self._numbers, max(1, self._settings.iterations // 2)
        alone = replace(self._constraint, limit=0.0)
        search = Safest(start, alone, numbers.advantage, numbers.rules, self._generator, 2)
        search.least(self._imagine(1), half, self._settings.trajectories, self._generator)
        self._done += half
        return search.best

    def _fresh(self, std: float | None = None) -> GaussianPolicy:
        settings = self._numbers.policy if std is None else replace(self._numbers.policy, std=std)
        centre, scale = self._task.observation_scale(self._data.x)
        return GaussianPolicy(*self._task.action_bounds(), centre, scale, settings, self._generator)

    # Judging ----------------------------------------------------------------------------------------------------------

    def _imagine(self, share: int) -> Source:
        imagine = self._experience.imagine
        assert imagine is not None
        return imagine(None, share=share)

    def _judge(self, name: str, policy: NetworkPolicy) -> Judged:
        """Judge a policy on fresh trajectories; all policies meet the same random numbers."""
        count = -(-self._settings.judged // SHARE) * SHARE
        traces = self._imagine(SHARE)(policy, count, Generator().manual_seed(self._seed + 1))
        value, error = estimate(self._constraint, traces)
        value_error = math.hypot(error, between_functions(self._constraint, traces))
        mean, return_error = _with_error(traces.returns)
        amounts = self._constraint.amounts(traces)
        own = self._constraint
        levels = [replace(own, alpha=alpha) for alpha in ALPHAS] if isinstance(own, CVaR) else []
        distance = self._coverage.distance(traces.observation[traces.active])
        point = Judged(
            name=name,
            mean_return=mean,
            return_error=return_error,
            value=value,
            value_error=value_error,
            bound=value + CONFIDENCE * value_error,
            far=float((distance > 1).double().mean()),
            tails=tuple(float(level.value(amounts)) for level in levels),
        )
        if not self._points or value < min(one.value for one in self._points):
            self._safest = copy.deepcopy(policy)
        self._points.append(point)
        return point

    def _support(self) -> Support:
        """Measure the accuracy of the model, by leaving out whole episodes if there are enough."""
        report, data = self._experience.model.report, self._data
        assert report is not None
        episodes = torch.tensor(sorted(set(data.episode.tolist())))
        explained: tuple[float, ...] = ()
        if len(episodes) >= HELD_OUT:
            left_out = torch.isin(data.episode, episodes[HELD_OUT - 1 :: HELD_OUT])
            explained = _explained(self._task, self._numbers, _rows(data, ~left_out), _rows(data, left_out))
        return Support(
            samples=len(data),
            available=self._available,
            episodes=len(episodes),
            states=tuple(self._task.states[column].name for column in self._task.predicted),
            explained=explained,
            z=max(report.z_std),
            coverage95=min(report.coverage95),
        )


def _explained(task: Task, numbers: ModelBasedSettings, fitted: Transitions, others: Transitions) -> tuple[float, ...]:
    """Return the share of the variance of each component's changes in other data that a model predicts."""
    model = GPDynamics(task, numbers.model)
    model.fit(fitted)
    inputs, targets = inputs_and_targets(task, others, torch.device("cpu"))
    error = (targets - model.predict(inputs).mean.double()).square().mean(0)
    variance = targets.var(0, correction=0)
    shares = torch.where(variance > 0, 1 - error / variance, torch.ones_like(error))
    return tuple(shares.tolist())


def _thinned(data: Transitions) -> Transitions:
    """Return evenly spread episodes of the data, of at most `MOST_DATA` transitions unless one alone has more."""
    if len(data) <= MOST_DATA:
        return data
    numbers = torch.tensor(sorted(set(data.episode.tolist())))
    count = max(1, int(len(numbers) * MOST_DATA / len(data)))
    chosen = numbers[torch.linspace(0, len(numbers) - 1, count).round().long()]
    return _rows(data, torch.isin(data.episode, chosen))


def _rows(data: Transitions, chosen: Tensor) -> Transitions:
    return Transitions(**{name: value[chosen] for name, value in vars(data).items()})


def _with_error(values: Tensor) -> tuple[float, float]:
    """Return the mean of values [B] in groups of `SHARE`, and its standard deviation as in `between_functions`."""
    groups = values.reshape(-1, SHARE)
    sampling = float(values.var()) / len(values)
    between = float(groups.mean(1).var() - groups.var(1).mean() / SHARE)
    return float(values.mean()), math.sqrt(sampling + max(0.0, between))
