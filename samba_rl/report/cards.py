"""Cards of a page: the film and the learning curve of each policy, with its evaluation and its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samba_rl.benchmark.collect import Found
from samba_rl.benchmark.writers import shown
from samba_rl.errors import UserError
from samba_rl.report.film import policy_film
from samba_rl.report.interactive import run_curve
from samba_rl.report.page import Card, Media, clip
from samba_rl.report.verdicts import Verdict
from samba_rl.runs.limits import measured

if TYPE_CHECKING:
    from samba_rl.runs import Run

CLIP_EPISODES = 2
"""Number of episodes of a clip, unless another is given."""
CLIP_SIZE = 360
"""Width and height of a clip [pixels]."""


def card(verdict: Verdict, number: int, episodes: int | None) -> Card:
    """Return the card of the runs of a verdict; the first run that can be filmed is."""
    one = next((each for each in verdict.found if each.run is not None), verdict.found[0])
    taken, why = (None, one.problem or "the run is not finished") if one.run is None else film_of(one.run, episodes)
    here = [each for each in verdict.found if each.folder is not None and each.curve]
    curve = None
    if here:
        title = f"Learning curve of {verdict.title}"
        curve = run_curve(f"run-{number}", title, [(f"seed {each.seed}", each.curve) for each in here], _limit(one))
    several = f" (seed {one.seed})" if len(verdict.found) > 1 else ""
    return Card(
        title=verdict.title + several,
        facts=facts(one),
        clip=taken,
        no_clip=why,
        plot=curve,
        alarms=[f"The limit {'cannot be met' if b.expected else 'is not kept'}. {b.words}." for b in one.breaches],
        notices=[] if one.run is None else [notice.text for notice in one.run.notices],
        settings=[(name, str(value)) for name, value in (one.settings or {}).items()],
        changed=one.changed,
    )


def _limit(one: Found) -> tuple[str, float] | None:
    """Return the first limit of a run in words and as that of an episode; None without one."""
    evaluation = None if one.result is None else one.result.with_noise
    if evaluation is None or evaluation.limit is None or not evaluation.constraints:
        return None
    return f"limit {evaluation.limit:g} on its {evaluation.constraints[0].kind}", evaluation.limit


def facts(one: Found) -> list[tuple[str, str]]:
    """Return names and values of what was measured of a run."""
    found = [] if one.folder is None else [("folder", one.name)]
    if one.result is None:
        return found
    with_noise, without = one.result.with_noise, one.result.without_noise
    limits = [
        (each.words, f"{measured(with_noise, i)[0]}, limit {each.limit:g}: {measured(with_noise, i)[1]}")
        for i, each in enumerate(with_noise.constraints)
    ]
    return [
        *found,
        ("return", f"{shown(with_noise.return_mean)} with noise, {shown(without.return_mean)} without"),
        (
            "safety cost of an episode",
            f"mean {shown(with_noise.TC / with_noise.episodes)}, quartiles "
            + ", ".join(map(shown, with_noise.safety_quartiles)),
        ),
        (f"CVaR {with_noise.alpha:g}", f"{shown(with_noise.cvar)} with noise, {shown(without.cvar)} without"),
        *limits,
        ("evaluation", f"{with_noise.steps:,} steps, {with_noise.episodes:,} episodes, seed {with_noise.seed}"),
        ("device", one.result.device),
    ]


def film_of(run: Run, episodes: int | None) -> tuple[Media | None, str]:
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
