"""The generality suite as a grid: its cells, and the table of the share of runs that solved each system."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from samba_rl.benchmark.cells import Cell, CellResult
from samba_rl.benchmark.grid import FIRST_SEED
from samba_rl.benchmark.statistics import interquartile_mean
from samba_rl.benchmark.systems import NOISY, SYSTEMS, find_system, names
from samba_rl.benchmark.writers import Column, Entry, Row, Table
from samba_rl.errors import UserError
from samba_rl.learners import find_learner

TRIALS = 5
"""Real trials of the policy after the first one, which is random."""
LEARNERS = ("samba", "ppilco")
"""Learners of the suite: one with a limit and one without."""
QUANTILE = 1.959964
"""Standard errors from the middle to the end of a 95 % interval."""

Choice = Literal["both", "with", "without"]


@dataclass(frozen=True)
class Suite:
    """A part of the suite."""

    systems: tuple[str, ...] = tuple(SYSTEMS)
    """Names of the systems."""
    learners: tuple[str, ...] = LEARNERS
    """Names of the learners; those with a constraint have the system's limit."""
    limit: Choice = "both"
    """Learners with a limit, without one, or both."""
    noise: Choice = "both"
    """Systems with measurement noise, without it, or both."""
    seeds: int = 10
    """Number of seeds."""
    first_seed: int = FIRST_SEED
    """First seed; the others follow it."""
    preset: str = "default"
    """Name of the settings' preset."""

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise UserError(f"seeds = {self.seeds}; at least 1 is needed")
        for name in self.systems:
            find_system(name)
        if not self._chosen():
            raise UserError(f"--limit {self.limit}: none of the learners {', '.join(self.learners)} is so; name others")

    def _chosen(self) -> list[str]:
        wanted = {"both": (True, False), "with": (True,), "without": (False,)}[self.limit]
        return [name for name in self.learners if (find_learner(name).constraint is not None) in wanted]

    def cells(self) -> list[Cell]:
        """Return all cells, seed by seed."""
        endings = {"both": ("", NOISY), "with": (NOISY,), "without": ("",)}[self.noise]
        return [
            Cell(
                name + ending,
                learner,
                seed,
                self.preset,
                SYSTEMS[name].limit if find_learner(learner).constraint is not None else None,
                trials=TRIALS,
            )
            for seed in range(self.first_seed, self.first_seed + self.seeds)
            for name in (find.removesuffix(NOISY) for find in self.systems)
            for ending in endings
            for learner in self._chosen()
        ]


def is_solved(result: CellResult) -> bool:
    """Return whether the policy that was handed over earns what counts as solved, within its limit if it has one."""
    found = result.with_noise
    safe = result.cell.limit is None or found.cvar <= result.cell.limit
    return found.return_mean >= find_system(result.cell.task).solved and safe


def wilson(successes: int, count: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a probability, from so many successes."""
    z2 = QUANTILE**2
    middle = (successes + z2 / 2) / (count + z2)
    half = QUANTILE / (count + z2) * math.sqrt(successes * (count - successes) / count + z2 / 4)
    return max(0.0, middle - half), min(1.0, middle + half)


def table(results: Iterable[CellResult], preset: str = "default") -> Table:
    """Return the table of the suite, with a row for each system, noise and learner, and one for all of them."""
    known = {*names(noise=False), *names(noise=True)}
    mine = [one for one in results if one.cell.task in known and (one.cell.trials, one.cell.preset) == (TRIALS, preset)]
    rows = []
    for name in SYSTEMS:
        for task in (name, name + NOISY):
            for learner in sorted({one.cell.learner for one in mine}):
                group = [one for one in mine if (one.cell.task, one.cell.learner) == (task, learner)]
                if group:
                    rows.append(_row(SYSTEMS[name].title, "yes" if task.endswith(NOISY) else "no", learner, group))
    if mine:
        rows.append(Row(("all", "", "", ""), _entries(mine, together=True)))
    return Table(
        name="generality" if preset == "default" else f"generality-{preset}",
        title="Generality",
        caption="Systems that nobody tuned for, with the general numbers of the preset "
        f"'{preset}', after one random trial and {TRIALS} of the policy. A run has solved its system if the mean "
        "return of its policy, with its noise, reaches the return to reach and CVaR of the safety cost keeps the "
        "limit, where there is one. Shares with Wilson's 95 % interval; medians of samples and minutes, "
        "interquartile mean of returns.",
        facts=(),
        labels=("system", "noise", "learner", "limit"),
        columns=tuple(
            Column(one, "count") for one in ("seeds", "solved, %", "return", "to reach", "CVaR", "samples", "minutes")
        ),
        rows=tuple(rows),
    )


def _row(title: str, noise: str, learner: str, group: Sequence[CellResult]) -> Row:
    limit = group[0].cell.limit
    labels = (title, noise, learner, "none" if limit is None else f"{limit:g}")
    return Row(labels, _entries(group, together=False))


def _entries(group: Sequence[CellResult], *, together: bool) -> tuple[Entry, ...]:
    """Return the entries of some runs; returns of different systems are not put `together`."""
    solved, count = sum(map(is_solved, group)), len(group)
    low, high = wilson(solved, count)
    share = Entry(100 * solved / count, (100 * low, 100 * high))
    own = (
        (Entry(), Entry(), Entry())
        if together
        else (
            Entry(interquartile_mean([one.with_noise.return_mean for one in group])),
            Entry(find_system(group[0].cell.task).solved),
            Entry(interquartile_mean([one.with_noise.cvar for one in group])),
        )
    )
    samples = sorted(one.real_samples for one in group)[count // 2]
    minutes = sorted(one.seconds for one in group)[count // 2] / 60
    return (Entry(float(count)), share, *own, Entry(float(samples)), Entry(minutes))
