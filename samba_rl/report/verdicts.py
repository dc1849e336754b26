"""Verdicts on runs, or on runs that differ in their seeds alone: has it learned, is the limit kept, what comes next."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from samba_rl.benchmark.cells import CellResult
from samba_rl.benchmark.collect import Found
from samba_rl.benchmark.groups import limit_of
from samba_rl.benchmark.names import learner_name, system_name
from samba_rl.benchmark.writers import shown
from samba_rl.report.proposals import next_step, proposal
from samba_rl.runs.evaluation import HALF_WIDTH
from samba_rl.runs.limits import Standing, beside, measured

Mood = Literal["good", "unclear", "bad", "open"]
"""Whether a sentence is good news; open: there is no verdict yet."""
MOODS: dict[Standing, Mood] = {"kept": "good", "unclear": "unclear", "broken": "bad"}


@dataclass(frozen=True)
class Sentence:
    """One part of a verdict."""

    mood: Mood
    head: str
    """Answer in a word or two."""
    words: str
    """The numbers behind it."""


@dataclass(frozen=True)
class Verdict:
    """The verdict on a run, or on runs that differ in their seeds alone."""

    title: str
    which: str
    """Seeds, or how far an unfinished run is."""
    sentences: tuple[Sentence, ...]
    command: str
    """Command that comes next; empty if there is none."""
    purpose: str
    """Reason for the command."""
    found: tuple[Found, ...]
    """The runs."""

    @property
    def short(self) -> str:
        """Return the title without the system."""
        return self.title.replace(f" on {system_of(self.found[0])}", "", 1)

    @property
    def mood(self) -> Mood:
        """Return the worst of its sentences."""
        moods = [each.mood for each in self.sentences]
        order: tuple[Mood, ...] = ("bad", "open", "unclear", "good")
        return next(mood for mood in order if mood in (*moods, "good"))


def verdicts(found: Sequence[Found]) -> list[Verdict]:
    """Return the verdicts on runs in their order, each with a title of its own."""
    groups: dict[str, list[Found]] = {}
    for one in found:
        groups.setdefault(_key(one), []).append(one)
    titles = _titles(list(groups.values()))
    return [_verdict(title, group) for title, group in zip(titles, groups.values(), strict=True)]


def _key(one: Found) -> str:
    """Return what the seeds of a group share; an unfinished run is a group of its own."""
    if one.result is None:
        return f"{one.folder} {one.name}"
    settings = json.dumps(dict(one.settings or {}), sort_keys=True, default=str)
    return f"{replace(one.result.cell, seed=0)} {settings}"


# Titles ---------------------------------------------------------------------------------------------------------------


def _titles(groups: Sequence[Sequence[Found]]) -> list[str]:
    """Return a title for each group, with as much as it takes to tell it from the others."""
    titles = [f"{learner_name(group[0].learner)} on {system_of(group[0])}" for group in groups]
    details: tuple[Callable[[Found], str], ...] = (
        lambda one: "" if one.result is None else _limit_in_words(one.result),
        lambda one: one.preset,
        lambda one: "" if one.result is None else ", ".join(f"{n} {(one.settings or {})[n]}" for n in one.changed[:3]),
        lambda one: f"in {one.name}",
        lambda one: f"in {one.folder}",
    )
    for detail in details:
        alike = {title for title in titles if titles.count(title) > 1}
        for title in alike:
            members = [i for i, each in enumerate(titles) if each == title]
            words = [detail(groups[i][0]) for i in members]
            if len(set(words)) > 1:
                for i, more in zip(members, words, strict=True):
                    titles[i] += f", {more}" if more else ""
    return titles


def _limit_in_words(result: CellResult) -> str:
    limit = limit_of(result)
    return "" if limit is None else f"ξ {limit:g}"


def system_of(one: Found) -> str:
    """Return the title of the system of a run."""
    return one.title or system_name(one.task)


# Sentences ------------------------------------------------------------------------------------------------------------


def _verdict(title: str, group: Sequence[Found]) -> Verdict:
    results = [one.result for one in group if one.result is not None]
    if not results:
        (one,) = group
        head, words = _unfinished(one)
        mood: Mood = "bad" if one.state == "damaged" else "open"
        sentences = [Sentence(mood, head, words), *_on_model(one)]
        return Verdict(title, _progress(one), tuple(sentences), *next_step(one), tuple(group))
    learned = _learned(results)
    sentences = [learned, *_limits(group, results)]
    seeds = ", ".join(str(one.seed) for one in group)
    which = f"{len(group)} seeds: {seeds}" if len(group) > 1 else f"seed {seeds}"
    return Verdict(title, which, tuple(sentences), *proposal(group, _wanting(learned)), tuple(group))


def _progress(one: Found) -> str:
    seen = one.seen
    if seen is None or seen.real_samples is None or seen.budget is None:
        return "" if one.seed is None else f"seed {one.seed}"
    return f"seed {one.seed}, {seen.real_samples:,} of {seen.budget:,} real samples"


def _unfinished(one: Found) -> tuple[str, str]:
    """Return what is known of a run without a result."""
    seen = one.seen
    last = "" if seen is None or seen.return_mean is None else f"The last trial had a return of {seen.return_mean:.4g}."
    if one.state == "finished":
        return "Not judged", f"{_capital(one.problem)}."
    return one.state.capitalize(), one.problem if one.state == "damaged" else last


def _on_model(one: Found) -> list[Sentence]:
    """Return what the model says of the limits of a finished run that was not evaluated."""
    found = [
        Sentence("unclear" if breach.expected else "bad", "Limit broken", f"{_capital(breach.words)}.")
        for breach in one.breaches
    ]
    if found or one.run is None:
        return found
    return [
        Sentence(
            "good",
            "Limit kept on the model",
            f"{_capital(each.in_words())} is at most {bound:.3g}, limit {each.limit:g}.",
        )
        for each, bound in zip(one.run.constraints, one.bounds, strict=False)
    ]


def _gain(result: CellResult) -> tuple[float, float]:
    """Return how much better the final policy is than the first trial, and the half width of that; NaN if unknown.

    The noise of the first trial is not recorded; the spread over the episodes of the evaluation stands for it.
    """
    evaluation = result.with_noise
    if not result.curve:
        return math.nan, math.nan
    first = result.curve[0]
    episodes = max(1.0, first.real_samples * evaluation.episodes / evaluation.steps)
    error = 0.0 if evaluation.errors is None else evaluation.errors.return_mean
    noise = HALF_WIDTH * math.hypot(error, evaluation.return_std / math.sqrt(episodes))
    return evaluation.return_mean - first.return_mean, noise


def _learned(results: Sequence[CellResult]) -> Sentence:
    """Return whether the policies are better than the first trials, beyond the noise of both."""
    count = len(results)
    returns = [result.with_noise.return_mean for result in results]
    firsts = [result.curve[0].return_mean for result in results if result.curve]
    if count == 1:
        errors = results[0].with_noise.errors
        now = shown(returns[0]) + ("" if errors is None else f" ± {HALF_WIDTH * errors.return_mean:.2g}")
    else:
        now = f"{shown(sum(returns) / count)} ({shown(min(returns))} to {shown(max(returns))})"
    first = "its first trial" if count == 1 else "the first trials"
    words = f"Return {now}" + (f"; {first} had {shown(sum(firsts) / len(firsts))}" if firsts else "")
    gains, noises = zip(*map(_gain, results), strict=True)
    gain, noise = sum(gains) / count, math.hypot(*noises) / count
    if math.isnan(gain):
        return Sentence("open", "Learned?", f"{words}.")
    if gain > noise:
        return Sentence("good", "Learned", f"{words}.")
    if gain > 0:
        return Sentence("unclear", "Perhaps learned", f"{words}, which is within the noise of {noise:.2g}.")
    return Sentence("bad", "Not learned", f"{words}.")


def _limits(group: Sequence[Found], results: Sequence[CellResult]) -> list[Sentence]:
    """Return a sentence for each limit, or one that there is none."""
    constraints = results[0].with_noise.constraints
    if not constraints:
        return [Sentence("good", "No limit", "It was given no limit on the safety cost.")]
    found = []
    for i, one in enumerate(constraints):
        seen = [measured(result.with_noise, i) for result in results if i < len(result.with_noise.constraints)]
        standings = [standing for _, standing in seen]
        judged = [each for each in group if each.result is not None]
        if len(judged) == 1:
            found.append(_limit_of_one(judged[0], i, *seen[0]))
            continue
        values = [result.with_noise.constraints[i].value for result in results]
        ends = [beside(value, one.limit) for value in (min(values), max(values))]
        kept = standings.count("kept")
        head = f"Limit kept by all {len(seen)}" if kept == len(seen) else f"Limit kept by {kept} of {len(seen)}"
        mood: Mood = "bad" if "broken" in standings else "unclear" if "unclear" in standings else "good"
        found.append(Sentence(mood, head, f"{_capital(one.words)} {ends[0]} to {ends[1]}, limit {one.limit:g}."))
    return found


def _limit_of_one(one: Found, i: int, value: str, standing: Standing) -> Sentence:
    """Return what a run says of its limit i: as measured, as bounded on the model, and as certified."""
    assert one.result is not None
    constraint = one.result.with_noise.constraints[i]
    words = [f"{_capital(constraint.words)} {value}, limit {constraint.limit:g}"]
    if i < len(one.bounds):
        words.append(f"at most {one.bounds[i]:.3g} on the model")
    mood, head = MOODS[standing], f"Limit {standing}"
    certificate = one.certificate
    limits = () if certificate is None else certificate.limits
    if certificate is not None and i < len(limits) and limits[i].limit == constraint.limit:
        sure = f"with {100 * certificate.confidence:g} % confidence"
        words.append(f"certified to be at most {limits[i].shown_bound:g} {sure}" if limits[i].certified else
                     f"at most {limits[i].shown_bound:g} {sure}, so not certified")  # fmt: skip
        head = "Limit certified" if limits[i].certified and standing != "broken" else head
    for breach in one.breaches:
        if breach.words.startswith(constraint.words):
            mood, head = ("unclear", "Limit cannot be met") if breach.expected else ("bad", "Limit broken")
    return Sentence(mood, head, "; ".join(words) + ".")


def _wanting(learned: Sentence) -> str:
    return {"bad": "learn", "unclear": "learn more"}.get(learned.mood, "")


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
