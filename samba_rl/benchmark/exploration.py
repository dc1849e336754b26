"""Study of exploration: SAMBA with each signal ζ and without any, on paired seeds under the same limit."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from samba_rl.benchmark.cells import Cell, CellResult
from samba_rl.benchmark.statistics import COVERAGE, RESAMPLES
from samba_rl.benchmark.wide import held_episodes, rank_correlation
from samba_rl.data.files import replacing
from samba_rl.errors import UserError, did_you_mean
from samba_rl.learners import NONE
from samba_rl.models.gp import GPDynamics
from samba_rl.models.zeta import ZETAS
from samba_rl.runs.evaluation import Evaluation
from samba_rl.runs.limits import measured_breaches
from samba_rl.tasks import make_task
from samba_rl.types import Transitions

SIGNALS = (NONE, *ZETAS)
"""Signals that are compared, without exploration first."""


@dataclass(frozen=True)
class Part:
    """One system of the study."""

    task: str
    """Name of the system."""
    samples: int
    """Real samples of a run."""
    target: float
    """Return that counts as learned."""
    correlated_at: tuple[int, ...]
    """Numbers of samples of the models whose errors are compared with each signal."""
    hold: int
    """Steps for which the random actions of their data are held."""


PARTS = (
    Part("safe-cart-pole-double-pendulum", 600, -24.5, (150, 300, 600), 5),
    Part("safe-pendulum", 150, -150.0, (30, 60, 120, 300), 1),
)


CORRELATED_SEEDS = range(3)
"""Seeds of the models whose errors are compared with each signal."""


def parts_of(tasks: Sequence[str]) -> tuple[Part, ...]:
    """Return the parts of the study on these systems; all of them if none is named."""
    known = {part.task: part for part in PARTS}
    for name in tasks:
        if name not in known:
            raise UserError(f"the study of exploration has no system '{name}'; {did_you_mean(name, known)}")
    return tuple(known[name] for name in tasks) or PARTS


def cells(parts: Sequence[Part], signals: Sequence[str], seeds: Sequence[int]) -> list[Cell]:
    """Return the runs of the study, seed by seed, so that pairs are finished early."""
    for name in signals:
        if name not in SIGNALS:
            raise UserError(f"no ζ is called '{name}'; {did_you_mean(name, SIGNALS)}")
    return [
        Cell(part.task, "samba", seed, budget_scale=scale_of(part), changes=(("zeta", json.dumps(signal)),))
        for seed in seeds
        for part in parts
        for signal in signals
    ]


def scale_of(part: Part) -> float:
    """Return the share of the preset's real samples that a run spends."""
    return part.samples / Cell(part.task, "samba", 0).settings().real_samples


def samples_to(result: CellResult, target: float, limit: float) -> float:
    """Return the real samples before the first policy that reaches a return within the limit; infinite if none does.

    The policies are those of the trials, and the one that was handed over, as an audit measured them outside learning.
    """
    for point in result.tail:
        if point.return_mean >= target and point.realised <= limit:
            return float(point.real_samples)
    return math.inf


class Difference(NamedTuple):
    """Median of paired differences over seeds, with its bootstrap interval."""

    value: float
    low: float
    high: float
    pairs: int


def paired(first: Sequence[float], second: Sequence[float], seed: int = 0) -> Difference:
    """Return the median of first - second over pairs, with a 95 % bootstrap interval of the pairs."""
    differences = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    drawn = np.random.default_rng(seed).integers(len(differences), size=(RESAMPLES, len(differences)))
    medians = np.median(differences[drawn], axis=1)
    low, high = np.quantile(medians, [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2])
    return Difference(float(np.median(differences)), float(low), float(high), len(differences))


def correlation(part: Part, samples: int, seed: int) -> dict[str, float]:
    """Return each signal's rank correlation with the error of a model of that many samples, on fresh episodes."""
    task = make_task(part.task)
    episodes = -(-samples // task.horizon)
    data = held_episodes(task, (part.hold,), episodes, seed).transitions()
    model = GPDynamics(task)
    model.fit(Transitions(**{name: value[:samples] for name, value in vars(data).items()}))
    fresh = held_episodes(task, (part.hold,), 100, 1_000_000 + seed)
    return {name: rank_correlation(zeta, model, fresh) for name, zeta in ZETAS.items()}


# Tables ---------------------------------------------------------------------------------------------------------------


def report(results: Sequence[CellResult], parts: Sequence[Part] = PARTS) -> str:
    """Return the tables of the runs as Markdown."""
    of = {part: [one for one in results if one.cell.task == part.task] for part in parts}
    return "\n".join(_runs(part, own) for part, own in of.items() if own)


def _runs(part: Part, results: Sequence[CellResult]) -> str:
    """Return the table of one system: a row for each signal."""
    by_signal: dict[str, dict[int, CellResult]] = {}
    for one in results:
        by_signal.setdefault(_signal_of(one.cell), {})[one.cell.seed] = one
    task = make_task(part.task)
    lines = [
        f"### {task.title}, {part.samples} real samples",
        "",
        f"| ζ | Seeds | Reached {part.target:g} within the limit | Return | Return - none, paired | Learning TC "
        "| Violations while learning | Trials above 1.5 times the limit | Handed over above the limit | Model error |",
        "| :-- | --: | --: | --: | --: | --: | --: | --: | --: | --: |",
    ]
    plain = by_signal.get(NONE, {})
    for signal in [one for one in SIGNALS if by_signal.get(one)]:
        own = by_signal[signal]
        lines.append(_row(part, signal, own, {seed: plain[seed] for seed in own if seed in plain}))
    return "\n".join([*lines, ""])


def _signal_of(cell: Cell) -> str:
    """Return the signal of a cell of the study."""
    return str(json.loads(dict(cell.changes)["zeta"]))


def _row(part: Part, signal: str, own: dict[int, CellResult], plain: dict[int, CellResult]) -> str:
    limit = _target_of(own)
    runs = list(own.values())
    needed = [samples_to(one, part.target, limit) for one in runs]
    reached = [each for each in needed if each < math.inf]
    when = f", {np.median(reached):.0f} samples" if reached else ""
    policies = [point for one in runs for point in one.tail[:-1]]
    above = sum(point.realised > 1.5 * point.target for point in policies)
    broken = [one for one in runs if any(not breach.expected for breach in measured_breaches(*_judged(one)))]
    difference = "–"
    if signal != NONE and plain:
        pairs = sorted(plain)
        found = paired(
            [own[seed].with_noise.return_mean for seed in pairs], [plain[seed].with_noise.return_mean for seed in pairs]
        )
        difference = f"{found.value:+.2f} [{found.low:+.2f}, {found.high:+.2f}]"
    columns = (
        signal,
        len(runs),
        f"{len(reached)} of {len(runs)}{when}",
        f"{_median([one.with_noise.return_mean for one in runs]):.2f}",
        difference,
        f"{_median([one.learning_TC for one in runs]):.2f}",
        f"{_median([float(one.learning_TV) for one in runs]):.0f}",
        f"{above} of {len(policies)}",
        f"{len(broken)} of {len(runs)}",
        f"{_median([one.model_error for one in runs]):.3f}",
    )
    return "| " + " | ".join(map(str, columns)) + " |"


def _judged(one: CellResult) -> tuple[Evaluation, list[float]]:
    """Return the evaluation of a run's policy, and the value that the learner aimed at."""
    return one.with_noise, [point.target for point in one.tail[-1:]]


def _target_of(own: dict[int, CellResult]) -> float:
    """Return the largest target of the runs: the limit, or what can be reached where that is infeasible."""
    return max((one.tail[-1].target for one in own.values() if one.tail), default=math.inf)


def _median(values: Sequence[float]) -> float:
    return float(np.median(values))


def correlations(part: Part, seeds: Sequence[int] = CORRELATED_SEEDS) -> str:
    """Return the table of the signals' rank correlations with the model's squared error as Markdown."""
    found = {n: [correlation(part, n, seed) for seed in seeds] for n in part.correlated_at}
    rows = [
        f"### {make_task(part.task).title}: rank correlation of ζ with the model's squared error",
        "",
        "| ζ | " + " | ".join(f"{samples} samples" for samples in found) + " |",
        "| :-- |" + " --: |" * len(found),
    ]
    for signal in ZETAS:
        medians = [_median([each[signal] for each in of]) for of in found.values()]
        rows.append(f"| {signal} | " + " | ".join(f"{value:.2f}" for value in medians) + " |")
    return "\n".join([*rows, ""])


def write_report(text: str, path: Path) -> None:
    """Write the tables of the study, completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, own=True) as file:
        file.write(text.encode())
