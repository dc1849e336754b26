"""Report on runs and benchmark results: one web page that opens from disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from samba_rl import __version__
from samba_rl.benchmark.collect import Found, collect
from samba_rl.benchmark.names import learner_name, place, system_name
from samba_rl.benchmark.tables import STEPS, all_tables
from samba_rl.benchmark.writers import DASH, shown, to_html as table_html, without_empty_rows
from samba_rl.errors import UserError
from samba_rl.improve.results import ConstraintResult
from samba_rl.learners import LEARNERS
from samba_rl.report import interactive
from samba_rl.report.film import policy_film
from samba_rl.report.page import Card, Clip, Page, PageTable, Red, clip, to_html
from samba_rl.tasks import TASKS

if TYPE_CHECKING:
    from samba_rl.runs import Run
    from samba_rl.tasks.task import Task

CLIP_EPISODES = 2
"""Number of episodes of a clip, unless another is given."""
CLIP_SIZE = 360
"""Width and height of a clip [pixels]."""
COLUMNS = (
    ("System", False), ("Learner", False), ("Preset", False), ("Seed", True), ("State", False), ("Real samples", True),
    ("Learning TC", True), ("Learning TV", True), ("Return", True), ("TC", True), ("TV", True), ("Constraint", False),
    ("Minutes", True),
)  # fmt: skip
LEGEND = (
    "Learning TC and TV are the total safety cost and the number of steps inside the unsafe region during learning. "
    "Return, TC and TV describe the final policy with its noise: the mean return (negative cost) of an episode, and "
    f"safety cost and unsafe steps per {STEPS:,} steps. Constraint is its value for the final policy beside its limit; "
    "it is red if the policy does not keep it, on the model or beyond the 95 % interval of the evaluation."
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
    results = [one.result for one in found if one.result is not None]
    tables = [without_empty_rows(table) for table in all_tables(results)]
    plots = [*interactive.curves(results), *interactive.trade_off(results), *interactive.tail(results)]
    cards = []
    for one in found:
        if one.result is not None:
            tell(f"Filming {one.name}")
            cards.append(_card(one, episodes))
    packages, versions = _versions(found)
    page = Page(
        title=title or _title(found),
        lead=_lead(found),
        columns=COLUMNS,
        rows=[_row(one) for one in found],
        legend=LEGEND,
        tables=[PageTable(table.title, table.caption, table_html(table)) for table in tables if table.rows],
        plots=plots,
        cards=cards,
        packages=packages,
        versions=versions,
        made_by=__version__,
    )
    return to_html(page)


# Table of runs --------------------------------------------------------------------------------------------------------


def _title(found: Sequence[Found]) -> str:
    learners = sorted({one.learner for one in found}, key=lambda name: place(name, LEARNERS))
    systems = sorted({one.task for one in found}, key=lambda name: place(name, TASKS))
    who = ", ".join(map(learner_name, learners)) if len(learners) <= 3 else f"{len(learners)} learners"
    return f"{who} on {' and '.join(map(system_name, systems)) if len(systems) <= 2 else f'{len(systems)} systems'}"


def _lead(found: Sequence[Found]) -> str:
    states = Counter(one.state for one in found)
    ended = ", ".join(f"{count} {state}" for state, count in states.items())
    samples = sum(one.result.real_samples for one in found if one.result is not None)
    missed = sum(any(not each.expected for each in one.breaches) for one in found)
    broken = f" Limit not kept: {missed} run{'s' * (missed != 1)}." if missed else ""
    return f"{len(found)} run{'s' * (len(found) != 1)} ({ended}); {samples:,} real samples in total.{broken}"


def _row(one: Found) -> list[str]:
    seed = DASH if one.seed is None else str(one.seed)
    what = [system_name(one.task), learner_name(one.learner), one.preset, seed, one.state]
    result = one.result
    if result is None:
        return [*what, *[DASH] * (len(COLUMNS) - len(what) - 2), one.problem or DASH, DASH]
    evaluation = result.with_noise
    scale = STEPS / evaluation.steps
    constraints = "; ".join(map(_constraint, evaluation.constraints)) or DASH
    missed = any(not each.expected for each in one.breaches)
    return [
        *what,
        f"{result.real_samples:,}",
        shown(result.learning_TC),
        shown(result.learning_TV),
        shown(evaluation.return_mean),
        shown(evaluation.TC * scale),
        shown(evaluation.TV * scale),
        Red(f"limit not kept: {constraints}") if missed else constraints,
        shown(result.seconds / 60),
    ]


def _constraint(result: ConstraintResult) -> str:
    return f"{shown(result.value)} {'≤' if result.kept else '>'} {result.limit:g} ({result.kind})"


# Cards of policies ----------------------------------------------------------------------------------------------------


def _card(one: Found, episodes: int | None) -> Card:
    result = one.result
    assert result is not None
    with_noise, without = result.with_noise, result.without_noise
    facts = [("folder", one.name)] if one.run is not None else []
    facts += [
        ("return", f"{shown(with_noise.return_mean)} with noise, {shown(without.return_mean)} without"),
        (
            "safety cost of an episode",
            f"mean {shown(with_noise.TC / with_noise.episodes)}, quartiles "
            + ", ".join(map(shown, with_noise.safety_quartiles)),
        ),
        (f"CVaR {with_noise.alpha:g}", f"{shown(with_noise.cvar)} with noise, {shown(without.cvar)} without"),
        *((each.words, _constraint(each)) for each in with_noise.constraints),
        ("evaluation", f"{with_noise.steps:,} steps, {with_noise.episodes:,} episodes, seed {with_noise.seed}"),
        ("device", result.device),
    ]
    taken, why = _clip(one.run, episodes) if one.run is not None else (None, one.problem)
    return Card(
        title=f"{system_name(one.task)}: {learner_name(one.learner)}, seed {one.seed}",
        facts=facts,
        clip=taken,
        no_clip=why,
        alarms=[
            f"The limit {'cannot be met' if each.expected else 'is not kept'}. {each.words}." for each in one.breaches
        ],
        notices=[notice.text for notice in one.run.notices] if one.run is not None else [],
        settings=[(name, str(value)) for name, value in (one.settings or {}).items()],
        changed=one.changed,
    )


def _clip(run: Run, episodes: int | None) -> tuple[Clip | None, str]:
    """Return a clip of the policy without its noise, or None and the reason why there is none."""
    if episodes is None and not run.task.parallel:
        return None, f"{run.task.name} is a rig; --episodes N says how many it may run"
    if episodes == 0:
        return None, "clips are turned off"
    if not run.task.parallel:
        return None, "a rig is not moved for a clip; film it with samba-rl render RUN FILM --episodes N"
    try:
        frames = policy_film(
            run.task, run.still_policy, CLIP_EPISODES if episodes is None else episodes, size=CLIP_SIZE
        )
        return clip(frames, run.task.dt), ""
    except UserError as error:
        return None, str(error)


def _versions(found: Sequence[Found]) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """Return the packages, and each combination of their versions with the number of runs that had it."""
    all_of = [dict(one.result.versions) for one in found if one.result is not None]
    packages = list(dict.fromkeys(name for each in all_of for name in each))
    counted = Counter(tuple(each.get(name, DASH) for name in packages) for each in all_of)
    return packages, [(str(count), list(versions)) for versions, count in counted.most_common()]
