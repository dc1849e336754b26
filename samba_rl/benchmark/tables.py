"""The paper's tables from finished cells, ours beside the paper's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from samba_rl.benchmark.cells import CellResult
from samba_rl.benchmark.reference import (
    LEARNER_NAMES,
    PAPER_LIMITS,
    SYSTEM_NAMES,
    learner_order,
    learning_row,
    safety_row,
)
from samba_rl.benchmark.statistics import Summary, summarise, summarise_ratio
from samba_rl.benchmark.writers import Column, Entry, Row, Table, Value, shown
from samba_rl.errors import UserError
from samba_rl.learners import find_learner
from samba_rl.tasks import make_task

STEPS = 10_000
"""To which an evaluation is scaled, as in the paper."""
LIMITS = (0.25, 0.75)
"""ξ of the paper's Table 2."""
BASE = "samba"
"""Over whose costs the others' are taken."""
USUAL = ("default", 1.0)
"""The preset and the share of its budget whose results stand in where another preset has none."""

# Which results belong together ---------------------------------------------------------------------------------------


class Key(NamedTuple):
    """What the results of one group share, beside preset and budget."""

    task: str
    learner: str
    limit: float | None


Groups = dict[Key, list[CellResult]]


def limit_of(result: CellResult) -> float | None:
    """ξ of a trajectory that the learner was to keep; None: it has no limit."""
    try:
        constraint = result.cell.settings().constraint
        if constraint.kind == "none":
            return None
        limit = constraint.limit * (make_task(result.cell.task).horizon if constraint.per == "step" else 1)
    except UserError:  # of a system or a learner that is not known here: what its evaluation wrote down
        if result.with_noise.limit is None:
            return None
        limit = result.with_noise.limit
    # So that 30 steps of 0.025 and 0.75 are the same limit.
    return float(f"{limit:.6g}")


def _groups(results: Iterable[CellResult]) -> dict[tuple[str, float], Groups]:
    """By preset and budget, then by system, learner and limit; each seed once.

    A learner without a limit that was asked for one ran as it runs without: the same seed twice is the same run.
    """
    seeds: dict[tuple[str, float], dict[Key, dict[int, CellResult]]] = {}
    for result in sorted(
        results, key=lambda r: (r.cell.preset, r.cell.budget_scale, r.cell.limit is not None, r.cell.name)
    ):
        cell = result.cell
        key = Key(cell.task, cell.learner, limit_of(result))
        group = seeds.setdefault((cell.preset, float(cell.budget_scale)), {}).setdefault(key, {})
        group.setdefault(cell.seed, result)
    return {
        setup: {key: [found[seed] for seed in sorted(found)] for key, found in groups.items()}
        for setup, groups in seeds.items()
    }


def _systems(groups: Groups) -> list[str]:
    there = {key.task for key in groups}
    return [*(task for task in SYSTEM_NAMES if task in there), *sorted(there - SYSTEM_NAMES.keys())]


def _learners(groups: Groups, task: str, table: int) -> list[str]:
    """All of the paper's on a system of the paper's, in its order; then others."""
    there, order = {key.learner for key in groups if key.task == task}, learner_order(table)
    known = [learner for learner in order if learner in there or task in SYSTEM_NAMES]
    return [*known, *sorted(there - set(order))]


def _limits(groups: Groups, task: str, learner: str) -> list[float | None]:
    """Those that there are results for; at least one, for a row of dashes."""
    found = {key.limit for key in groups if key[:2] == (task, learner)}
    return sorted(found, key=lambda limit: -math.inf if limit is None else limit) or [None]


def _under(groups: Groups, task: str, learner: str, limit: float | None) -> list[CellResult]:
    """The results that count for a limit: a learner without one counts for all."""
    return groups.get(Key(task, learner, limit)) or groups.get(Key(task, learner, None)) or []


# Figures --------------------------------------------------------------------------------------------------------------


def _entry(summary: Summary | None, paper: Value, verdict: bool | None = None) -> Entry:
    if summary is None:
        return Entry(paper=paper)
    several = summary.size > 1 and math.isfinite(summary.low) and math.isfinite(summary.high)
    return Entry(summary.value, (summary.low, summary.high) if several else None, paper, verdict=verdict)


def _figure(values: Sequence[float], paper: Value) -> Entry:
    return _entry(summarise([values]) if values else None, paper)


def _within(values: Sequence[float], limit: float, paper: Value) -> Entry:
    summary = summarise([values]) if values else None
    return _entry(summary, paper, None if summary is None or math.isnan(summary.value) else summary.value <= limit)


def _count(results: Sequence[CellResult]) -> Entry:
    return Entry(len(results) or None)


def _with_best(rows: Sequence[Row], columns: Sequence[int]) -> list[Row]:
    """The rows with the lowest figure of each column in bold, and all that read the same.

    Like is compared with like: rows of one limit, the last of the labels, with each other and with those of none.
    """

    def marked(row: Row) -> Row:
        rivals = [
            other for other in rows if "" in (row.labels[-1], other.labels[-1]) or other.labels[-1] == row.labels[-1]
        ]
        entries = list(row.entries)
        for column in columns:
            values = [rival.entries[column].value for rival in rivals]
            finite = [value for value in values if value is not None and math.isfinite(value)]
            best = bool(finite) and shown(entries[column].value) == shown(min(finite))
            entries[column] = replace(entries[column], bold=best)
        return replace(row, entries=tuple(entries))

    return [marked(row) for row in rows]


def _xi(limit: float | None) -> str:
    return "" if limit is None else f"{limit:g}"


def _table(
    name: str, title: str, caption: str, setup: tuple[str, float], labels: str, columns: Sequence[Column],
    rows: Iterable[Row],
) -> Table:  # fmt: skip
    preset, scale = setup
    slug = f"{name}-{preset}" + ("" if scale == 1 else f"-budget{scale:g}")
    whole = (
        f"Preset {preset}, {'the whole' if scale == 1 else f'{scale:g} times the'} budget of real samples. {caption} "
        "Interquartile means over the seeds, in square brackets their 95 % bootstrap intervals, in round brackets "
        "the paper's values."
    )
    facts = (("preset", preset), ("budget_scale", f"{scale:g}"))
    return Table(slug, title, whole, facts, tuple(labels.split()), tuple(columns), tuple(rows))


# The tables -----------------------------------------------------------------------------------------------------------


def table_1(results: Iterable[CellResult]) -> list[Table]:
    """What learning costs and how safe its result is; a table for each preset and budget."""

    def row(groups: Groups, task: str, learner: str, limit: float | None) -> Row:
        of = groups.get(Key(task, learner, limit), [])
        paper: Sequence[Value] = learning_row(task, learner) or (None,) * 4
        evaluations = [result.with_noise for result in of]
        entries = (
            _count(of),
            _figure([result.real_samples for result in of], paper[0]),
            _figure([result.learning_TC for result in of], paper[1]),
            _figure([e.TV * STEPS / e.steps for e in evaluations], paper[2]),
            _figure([e.TC * STEPS / e.steps for e in evaluations], paper[3]),
        )
        return Row((SYSTEM_NAMES.get(task, task), LEARNER_NAMES.get(learner, learner), _xi(limit)), entries)

    columns = (
        Column("Seeds", "count"), Column("Real samples"), Column("Learning TC"), Column("Evaluation TV"),
        Column("Evaluation TC"),
    )  # fmt: skip
    caption = (
        "TC is the safety cost in all, TV the number of steps inside the unsafe region: of all real steps while "
        f"learning, and of the learned policy with its noise per {STEPS:,} steps. ξ is the limit that a learner was to "
        "keep. Of a system the lowest figures are bold, among learners with the same ξ or none."
    )
    tables = []
    for setup, groups in _groups(results).items():
        rows: list[Row] = []
        for task in _systems(groups):
            learners = _learners(groups, task, 1)
            of_task = [row(groups, task, name, limit) for name in learners for limit in _limits(groups, task, name)]
            rows += _with_best(of_task, range(1, len(columns)))
        title = "Safety while learning and afterwards"
        tables.append(_table("table-1", title, caption, setup, "System Learner ξ", columns, rows))
    return tables


def _paper_safety(task: str, learner: str, limit: float) -> Sequence[Value]:
    """The paper's row as far as it is about this limit: its verdicts are, and all that a learner with a limit does."""
    row = safety_row(task, learner)
    if row is None or limit == PAPER_LIMITS.get(task):
        return row or (None,) * 6
    return (None,) * 6 if find_learner(learner).constraint != "none" else (*row[:3], None, None, row[5])


def table_2(results: Iterable[CellResult], limits: Sequence[float] = LIMITS) -> list[Table]:
    """Whether the limits are kept, and the return that is left; a table for each preset and budget."""

    def row(groups: Groups, task: str, learner: str, limit: float) -> Row:
        of = _under(groups, task, learner, limit)
        evaluations = [result.with_noise for result in of]
        paper = _paper_safety(task, learner, limit)
        entries = (
            _count(of),
            *(_figure([e.safety_quartiles[i] for e in evaluations], paper[i]) for i in range(3)),
            _within([e.TC / e.episodes for e in evaluations], limit, paper[3]),
            _within([e.cvar for e in evaluations], limit, paper[4]),
            _figure([e.return_mean for e in evaluations], paper[5]),
        )
        alphas = ", ".join(f"{alpha:g}" for alpha in sorted({e.alpha for e in evaluations}))
        return Row((SYSTEM_NAMES.get(task, task), _xi(limit), LEARNER_NAMES.get(learner, learner), alphas), entries)

    columns = (
        Column("Seeds", "count"), Column("25 %"), Column("50 %"), Column("75 %"), Column("Expectation ≤ ξ", "verdict"),
        Column("CVaR ≤ ξ", "verdict"), Column("Return"),
    )  # fmt: skip
    tables = []
    for setup, groups in _groups(results).items():
        caption = (
            "Quartiles, expectation and CVaR at level α of the safety cost of an episode, whether the latter two are "
            "at most ξ, and the return of an episode; of the learned policy with its noise. A learner without a limit "
            "counts for each ξ. The paper's values stand where they are about that ξ."
        )
        others = sorted({key.limit for key in groups if key.limit is not None} - set(limits))
        if others:
            caption += f" Results with other limits are left out: ξ = {', '.join(map(_xi, others))}."
        rows = [
            row(groups, task, learner, limit)
            for task in _systems(groups)
            for limit in limits
            for learner in _learners(groups, task, 2)
        ]
        title = "Constraints kept and expected return"
        tables.append(_table("table-2", title, caption, setup, "System ξ Learner α", columns, rows))
    return tables


def ratios(results: Iterable[CellResult]) -> list[Table]:
    """Real samples and safety cost while learning, over those of SAMBA; a table for each preset and budget.

    Where a preset has none of SAMBA's, which needs hours with the paper's, the default preset's stand in.
    """

    def row(groups: Groups, base: Groups, task: str, learner: str, limit: float | None) -> Row:
        ours, theirs = _under(groups, task, learner, limit), _under(base, task, BASE, limit)
        paper, paper_base = learning_row(task, learner), learning_row(task, BASE)

        def entry(of: Callable[[CellResult], float], column: int) -> Entry:
            summary = summarise_ratio([of(r) for r in ours], [of(r) for r in theirs]) if ours and theirs else None
            return _entry(summary, paper[column] / paper_base[column] if paper and paper_base else None)

        entries = (_count(ours), entry(lambda r: r.real_samples, 0), entry(lambda r: r.learning_TC, 1))
        return Row((SYSTEM_NAMES.get(task, task), _xi(limit), LEARNER_NAMES.get(learner, learner)), entries)

    def table(setup: tuple[str, float], groups: Groups, base: Groups) -> Table:
        caption = (
            f"Real samples and safety cost while learning, over those of {name} on the same system with the same limit "
            "ξ; a learner without a limit is compared for each ξ."
        )
        if base is not groups:
            caption += f" {name} is that of the preset {USUAL[0]}, with its whole budget."
        rows = [
            row(groups, base, task, learner, limit)
            for task in _systems(groups)
            for limit in _limits(base, task, BASE)
            for learner in _learners(groups, task, 1)
            if learner != BASE
        ]
        return _table("ratios", f"What learning costs, over {name}", caption, setup, "System ξ Learner", columns, rows)

    name = LEARNER_NAMES[BASE]
    columns = (Column("Seeds", "count"), Column("Real samples"), Column("Learning TC"))
    found = _groups(results)
    usual = found.get(USUAL, {})
    has_base = {setup: any(key.learner == BASE for key in groups) for setup, groups in found.items()}
    lent = has_base.get(USUAL, False)
    return [
        table(setup, groups, groups if has_base[setup] or not lent else usual) for setup, groups in found.items()
    ]  # fmt: skip


def all_tables(results: Sequence[CellResult]) -> list[Table]:
    """Table 1, Table 2 and the ratios, of each preset and budget."""
    return [*table_1(results), *table_2(results), *ratios(results)]
