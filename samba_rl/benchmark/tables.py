"""The paper's tables made from finished cells, with the paper's values beside ours."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from samba_rl.benchmark.cells import CellResult
from samba_rl.benchmark.groups import (
    Groups,
    Key,
    Setup,
    common_alpha,
    cvar_at,
    group_results,
    learners_in,
    limits_in,
    results_under,
    systems_in,
)
from samba_rl.benchmark.names import learner_name, system_name
from samba_rl.benchmark.reference import PAPER_LIMITS, learning_row, safety_row
from samba_rl.benchmark.statistics import Summary, summarise, summarise_ratio
from samba_rl.benchmark.writers import Column, Entry, Row, Table, Value, shown
from samba_rl.learners import find_learner
from samba_rl.runs.evaluation import Evaluation, StandardErrors

STEPS = 10_000
"""Number of steps to which evaluations are scaled, as in the paper."""
LIMITS = (0.25, 0.75)
"""Limits ξ of the paper's Table 2."""
BASE = "samba"
"""The learner to which the ratios relate the others."""
USUAL = Setup("default", 1.0)
"""The setup whose results of SAMBA are used where another setup has none."""
Measured = tuple[float, float]
"""A value and its standard error, which is 0 if it is unknown or the value is exact."""

# Entries --------------------------------------------------------------------------------------------------------------


def _entry(summary: Summary | None, paper: Value, *, verdict: bool | None = None) -> Entry:
    if summary is None:
        return Entry(paper=paper)
    several = summary.size > 1 and math.isfinite(summary.low) and math.isfinite(summary.high)
    return Entry(summary.value, (summary.low, summary.high) if several else None, paper, verdict=verdict)


def _summary(measured: Sequence[Measured]) -> Summary | None:
    if not measured:
        return None
    values, errors = zip(*measured, strict=True)
    return summarise([values], errors=[errors])


def _exact(values: Iterable[float]) -> list[Measured]:
    """Return counted values, which have no measurement noise."""
    return [(value, 0.0) for value in values]


def _measured(
    evaluations: Sequence[Evaluation], value: Callable[[Evaluation | StandardErrors], float], *, rate: bool = False
) -> list[Measured]:
    """Return a value of each evaluation and its standard error, of the same name; a rate is per `STEPS` steps."""

    def scaled(amount: float, evaluation: Evaluation) -> float:
        return amount * STEPS / evaluation.steps if rate else amount

    return [(scaled(value(e), e), scaled(value(e.errors), e) if e.errors else 0.0) for e in evaluations]


def _noise_in_words(groups: Groups) -> str:
    """Return a sentence about the noise of the evaluations if any of them has standard errors."""
    if not any(result.with_noise.errors for results in groups.values() for result in results):
        return ""
    return " The intervals of evaluated values contain the noise of the evaluations, where it is known."


def _figure(measured: Sequence[Measured], paper: Value) -> Entry:
    return _entry(_summary(measured), paper)


def _within(measured: Sequence[Measured], limit: float, paper: Value) -> Entry:
    summary = _summary(measured)
    kept = None if summary is None or math.isnan(summary.value) else summary.value <= limit
    return _entry(summary, paper, verdict=kept)


def _count(results: Sequence[CellResult]) -> Entry:
    return Entry(len(results) or None)


def _with_best(rows: Sequence[Row], columns: Sequence[int]) -> list[Row]:
    """Return the rows with the lowest value of each column in bold, and every value that is printed the same.

    A row competes with the rows of the same limit, its last label, and with those without a limit.
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
    name: str, title: str, caption: str, setup: Setup, labels: str, columns: Sequence[Column], rows: Iterable[Row]
) -> Table:
    preset, scale = setup
    slug = f"{name}-{preset}" + ("" if scale == 1 else f"-budget{scale:g}")
    budget = "full" if scale == 1 else f"{scale:g} times the"
    facts = (("preset", preset), ("budget_scale", f"{scale:g}"))
    table = Table(slug, title, caption, facts, tuple(labels.split()), tuple(columns), tuple(rows))
    paper = " and the paper's values in round brackets" if table.has_paper else ""
    whole = (
        f"Preset {preset}, {budget} budget of real samples. {caption} Values are interquartile means over the seeds, "
        f"with 95 % bootstrap intervals in square brackets{paper}."
    )
    brief = f"Preset {preset}: mean over the seeds [95 % interval]" + " (paper)" * table.has_paper
    return replace(table, caption=whole, brief=brief)


# The tables -----------------------------------------------------------------------------------------------------------


def table_1(results: Iterable[CellResult]) -> list[Table]:
    """Return Table 1, the cost of learning and the safety of its result, for each preset and budget."""

    def row(groups: Groups, task: str, learner: str, limit: float | None) -> Row:
        of = groups.get(Key(task, learner, limit), [])
        paper: Sequence[Value] = learning_row(task, learner) or (None,) * 4
        evaluations = [result.with_noise for result in of]
        entries = (
            _count(of),
            _figure(_exact(result.real_samples for result in of), paper[0]),
            _figure(_exact(result.learning_TC for result in of), paper[1]),
            _figure(_measured(evaluations, lambda e: e.TV, rate=True), paper[2]),
            _figure(_measured(evaluations, lambda e: e.TC, rate=True), paper[3]),
        )
        return Row((system_name(task), learner_name(learner), _xi(limit)), entries)

    columns = (
        Column("Seeds", "count"), Column("Real samples"), Column("Learning TC"), Column("Evaluation TV"),
        Column("Evaluation TC"),
    )  # fmt: skip
    caption = (
        "TC is the total safety cost and TV the number of steps inside the unsafe region: of all real steps during "
        f"learning, and per {STEPS:,} evaluation steps of the learned policy with its noise. ξ is the limit given to "
        "the learner. The lowest value for each system is bold, among learners with the same ξ or without a limit."
    )
    tables = []
    for setup, groups in group_results(results).items():
        rows: list[Row] = []
        for task in systems_in(groups):
            learners = learners_in(groups, task, 1)
            of_task = [row(groups, task, name, limit) for name in learners for limit in limits_in(groups, task, name)]
            rows += _with_best(of_task, range(1, len(columns)))
        title = "Safety during and after learning"
        tables.append(
            _table("table-1", title, caption + _noise_in_words(groups), setup, "System Learner ξ", columns, rows)
        )
    return tables


def _paper_safety(task: str, learner: str, limit: float) -> Sequence[Value]:
    """Return the values of the paper's row that hold for a limit.

    For another limit than the paper's these are the quartiles and the return of a learner without a limit.
    """
    row = safety_row(task, learner)
    if row is None or limit == PAPER_LIMITS.get(task):
        return row or (None,) * 6
    return (None,) * 6 if find_learner(learner).constraint is not None else (*row[:3], None, None, row[5])


def table_2(results: Iterable[CellResult], limits: Sequence[float] = LIMITS) -> list[Table]:
    """Return Table 2, constraint satisfaction and return under each limit, for each preset and budget."""

    def row(groups: Groups, task: str, learner: str, limit: float, alpha: float | None, *, both: bool) -> Row:
        of = results_under(groups, task, learner, limit)
        evaluations = [result.with_noise for result in of]
        own = ", ".join(f"{level:g}" for level in sorted({e.alpha for e in evaluations}))
        paper = _paper_safety(task, learner, limit)

        def quartile(i: int) -> list[Measured]:
            return _measured(evaluations, lambda e: e.safety_quartiles[i])

        entries = (
            _count(of),
            *(_figure(quartile(i), paper[i]) for i in range(3)),
            _within(_measured(evaluations, lambda e: e.safety_mean), limit, paper[3]),
            _within([cvar_at(alpha, e) for e in evaluations], limit, paper[4]),
            *[_within([cvar_at(None, e) for e in evaluations], limit, None)] * both,
            _figure(_measured(evaluations, lambda e: e.return_mean), paper[5]),
        )
        alphas = own if alpha is None or not own else f"{alpha:g}" + f", own {own}" * (own != f"{alpha:g}")
        return Row((system_name(task), _xi(limit), learner_name(learner), alphas), entries)

    columns = (
        Column("Seeds", "count"), Column("25 %"), Column("50 %"), Column("75 %"), Column("Expectation ≤ ξ", "verdict"),
        Column("CVaR ≤ ξ", "verdict"),
    )  # fmt: skip
    own_alpha, gain = Column("CVaR at own α ≤ ξ", "verdict"), Column("Return")
    tables = []
    for setup, groups in group_results(results).items():
        caption = (
            "Quartiles, expectation and CVaR at level α of the safety cost of an episode, whether expectation and "
            "CVaR are at most ξ, and the return of an episode, all for the learned policy with its noise. A learner "
            "without a limit is listed under each ξ."
        )
        if any(safety_row(task, name) for task in systems_in(groups) for name in learners_in(groups, task, 2)):
            caption += " The paper's values are shown under the ξ that they refer to."
        alpha = common_alpha(groups)
        both = alpha is not None and any(r.with_noise.alpha != alpha for rs in groups.values() for r in rs)
        if both:
            caption += " Learners that were given another α have CVaR at that level too."
        if alpha is None:
            caption += " α differs between learners, because some of these results have CVaR at their own α only."
        others = sorted({key.limit for key in groups if key.limit is not None} - set(limits))
        if others:
            caption += f" Results with other limits are left out: ξ = {', '.join(map(_xi, others))}."
        rows = [
            row(groups, task, learner, limit, alpha, both=both)
            for task in systems_in(groups)
            for limit in limits
            for learner in learners_in(groups, task, 2)
        ]
        title = "Constraint satisfaction and return"
        headings = (*columns, *[own_alpha] * both, gain)
        caption += _noise_in_words(groups)
        tables.append(_table("table-2", title, caption, setup, "System ξ Learner α", headings, rows))
    return tables


def ratios(results: Iterable[CellResult]) -> list[Table]:
    """Return real samples and safety cost of learning relative to SAMBA, for each preset and budget.

    A preset without results of SAMBA, such as the paper's, which takes hours, is compared with the default preset's.
    """

    def row(groups: Groups, base: Groups, task: str, learner: str, limit: float | None) -> Row:
        ours, theirs = results_under(groups, task, learner, limit), results_under(base, task, BASE, limit)
        paper, paper_base = learning_row(task, learner), learning_row(task, BASE)

        def entry(of: Callable[[CellResult], float], column: int) -> Entry:
            summary = summarise_ratio([of(r) for r in ours], [of(r) for r in theirs]) if ours and theirs else None
            return _entry(summary, paper[column] / paper_base[column] if paper and paper_base else None)

        entries = (_count(ours), entry(lambda r: r.real_samples, 0), entry(lambda r: r.learning_TC, 1))
        return Row((system_name(task), _xi(limit), learner_name(learner)), entries)

    def table(setup: Setup, groups: Groups, base: Groups) -> Table:
        caption = (
            f"Real samples and safety cost of learning, divided by those of {name} on the same system with the same "
            "limit ξ. A learner without a limit is compared under each ξ."
        )
        if base is not groups:
            caption += f" {name}'s values are those of the preset {USUAL.preset} with its full budget."
        rows = [
            row(groups, base, task, learner, limit)
            for task in systems_in(groups)
            for limit in limits_in(base, task, BASE)
            for learner in learners_in(groups, task, 1)
            if learner != BASE
        ]
        title = f"Cost of learning relative to {name}"
        return _table("ratios", title, caption, setup, "System ξ Learner", columns, rows)

    name = learner_name(BASE)
    columns = (Column("Seeds", "count"), Column("Real samples"), Column("Learning TC"))
    found = group_results(results)
    usual = found.get(USUAL, {})
    has_base = {setup: any(key.learner == BASE for key in groups) for setup, groups in found.items()}
    lent = has_base.get(USUAL, False)
    return [table(setup, groups, groups if has_base[setup] or not lent else usual) for setup, groups in found.items()]


def all_tables(results: Sequence[CellResult], limits: Sequence[float] = LIMITS) -> list[Table]:
    """Return Table 1, Table 2 under these limits and the ratios, each for every preset and budget."""
    return [*table_1(results), *table_2(results, limits), *ratios(results)]
