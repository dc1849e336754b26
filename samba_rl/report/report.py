"""Report on runs and benchmark results: one web page that opens from disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from samba_rl import __version__
from samba_rl.benchmark.cells import CellResult
from samba_rl.benchmark.collect import Found, collect
from samba_rl.benchmark.groups import limit_of
from samba_rl.benchmark.names import learner_name, place
from samba_rl.benchmark.tables import LIMITS, STEPS, all_tables
from samba_rl.benchmark.writers import DASH, shown, to_html as table_html, without_empty_rows
from samba_rl.errors import UserError, duration
from samba_rl.learners import LEARNERS
from samba_rl.report import interactive
from samba_rl.report.cards import card
from samba_rl.report.groups import groups
from samba_rl.report.interactive import Plot
from samba_rl.report.page import Broken, Card, Page, PageTable, to_html
from samba_rl.report.verdicts import Verdict, system_of, verdicts
from samba_rl.runs.limits import measured
from samba_rl.tasks import TASKS

if TYPE_CHECKING:
    from samba_rl.tasks.task import Task

COLUMNS = (
    ("System", False), ("Learner", False), ("Preset", False), ("Seed", True), ("State", False), ("Real samples", True),
    ("Learning TC", True), ("Learning TV", True), ("Return", True), ("TC", True), ("TV", True), ("Limit", False),
    ("Time", True),
)  # fmt: skip
LEGEND = (
    "Learning TC and TV are the total safety cost and the number of steps inside the unsafe region during learning. "
    "Return, TC and TV describe the final policy with its noise: the mean return (negative cost) of an episode, and "
    f"safety cost and unsafe steps per {STEPS:,} steps. Limit is the measured value of a constraint with half of its "
    "95 % interval, beside its limit; it is red if the policy does not keep it, on the model or beyond the interval."
)


def make_report(
    places: Sequence[Path],
    *,
    title: str = "",
    task: Task | None = None,
    steps: int | None = None,
    episodes: int | None = None,
    workers: int | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> str:
    """Return a web page about runs and benchmark results as HTML.

    Args:
        places: Run folders, folders that contain runs at any depth, folders of benchmark results, or result files.
        title: Title of the page; empty: the learners and systems.
        task: The system of runs on a user's own system; it is run for the clips.
        steps: Real steps of the evaluation of a run that has none; None: 10,000, but none of a rig.
        episodes: Episodes of each clip; 0: no clips. None: 2, but none of a rig.
        workers: Number of processes for simulated systems.
        tell: Called with a description of each step of the work.
    """
    if steps is not None and steps < 1:
        raise UserError(f"steps = {steps}; an evaluation needs at least 1")
    if episodes is not None and episodes < 0:
        raise UserError(f"episodes = {episodes}; give at least 0, which leaves out the clips")
    found = collect(places, task=task, steps=steps, workers=workers, tell=tell)
    found.sort(key=lambda one: (place(one.task, TASKS), place(one.learner, LEARNERS), one.seed or 0, one.name))
    judged = verdicts(found)
    results = [one.result for one in found if one.result is not None]
    cards = []
    for number, verdict in enumerate(judged):
        if any(one.run is not None for one in verdict.found):
            tell(f"Filming {verdict.title}")
        cards.append(card(verdict, number, episodes))
    return to_html(page_of(found, judged, cards, title=title, plots=_plots(results), tables=_tables(results)))


def page_of(
    found: Sequence[Found],
    judged: Sequence[Verdict],
    cards: Sequence[Card],
    *,
    title: str = "",
    plots: Sequence[Plot] = (),
    tables: Sequence[PageTable] = (),
) -> Page:
    """Return the page about runs, of which there are a verdict and a card for each group."""
    packages, versions = _versions(found)
    systems = list(dict.fromkeys(system_of(verdict.found[0]) for verdict in judged))
    return Page(
        title=title or _title(found),
        lead=_lead(found),
        verdicts=[(name, [one for one in judged if system_of(one.found[0]) == name]) for name in systems],
        cards=[one for one in cards if one.clip or one.plot or one.pictures],
        others=[one for one in cards if not (one.clip or one.plot or one.pictures)],
        plots=plots,
        tables=tables,
        columns=COLUMNS,
        rows=[_row(one) for one in found],
        legend=LEGEND,
        packages=packages,
        versions=versions,
        made_by=__version__,
    )


def _plots(results: Sequence[CellResult]) -> list[Plot]:
    """Return the figures that compare results, of systems with several groups; what happened in a run is beside it."""
    several = {task for task, count in Counter(group.task for group in groups(results)).items() if count > 1}
    compared = [result for result in results if result.cell.task in several]
    return [*interactive.curves(compared), *interactive.trade_off(compared), *interactive.tail(results)]


def _tables(results: Sequence[CellResult]) -> list[PageTable]:
    limits = sorted({limit for limit in map(limit_of, results) if limit is not None})
    tables = [without_empty_rows(table) for table in all_tables(results, limits or LIMITS)]
    return [PageTable(one.title, one.brief, one.caption, table_html(one)) for one in tables if one.rows]


# Table of runs --------------------------------------------------------------------------------------------------------


def _title(found: Sequence[Found]) -> str:
    learners = sorted({one.learner for one in found}, key=lambda name: place(name, LEARNERS))
    systems = list(dict.fromkeys(system_of(one) for one in found))
    who = ", ".join(map(learner_name, learners)) if len(learners) <= 3 else f"{len(learners)} learners"
    return f"{who} on {' and '.join(systems) if len(systems) <= 2 else f'{len(systems)} systems'}"


def _lead(found: Sequence[Found]) -> str:
    states = Counter(one.state for one in found)
    ended = ", ".join(f"{count} {state}" for state, count in states.items())
    samples = sum(one.result.real_samples for one in found if one.result is not None)
    samples += sum(one.seen.real_samples or 0 for one in found if one.result is None and one.seen is not None)
    missed = sum(any(not each.expected for each in one.breaches) for one in found)
    broken = f" Limit not kept: {missed} run{'s' * (missed != 1)}." if missed else ""
    return f"{len(found)} run{'s' * (len(found) != 1)} ({ended}); {samples:,} real samples in total.{broken}"


def _row(one: Found) -> list[str]:
    seed = DASH if one.seed is None else str(one.seed)
    what = [system_of(one), learner_name(one.learner), one.preset, seed, one.state]
    result = one.result
    if result is None:
        seen = one.seen
        if seen is None or seen.real_samples is None:
            return [*what, *[DASH] * (len(COLUMNS) - len(what))]
        return [
            *what,
            f"{seen.real_samples:,} of {seen.budget or 0:,}",
            shown(seen.learning_TC),
            shown(seen.learning_TV),
            shown(seen.return_mean) + " (last trial)" * (seen.return_mean is not None),
            *[DASH] * 3,
            DASH if seen.seconds is None else duration(seen.seconds),
        ]
    evaluation = result.with_noise
    scale = STEPS / evaluation.steps
    limits = [
        f"{measured(evaluation, i)[0]}, limit {each.limit:g} ({each.kind}): {measured(evaluation, i)[1]}"
        for i, each in enumerate(evaluation.constraints)
    ]
    missed = any(not each.expected for each in one.breaches)
    return [
        *what,
        f"{result.real_samples:,}",
        shown(result.learning_TC),
        shown(result.learning_TV),
        shown(evaluation.return_mean),
        shown(evaluation.TC * scale),
        shown(evaluation.TV * scale),
        (Broken if missed else str)("; ".join(limits) or DASH),
        duration(result.seconds),
    ]


def _versions(found: Sequence[Found]) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """Return the packages, and each combination of their versions with the number of runs that had it."""
    all_of = [dict(one.result.versions) for one in found if one.result is not None]
    packages = list(dict.fromkeys(name for each in all_of for name in each))
    counted = Counter(tuple(each.get(name, DASH) for name in packages) for each in all_of)
    return packages, [(str(count), list(versions)) for versions, count in counted.most_common()]
