"""Random values of settings: each is refused with an error that names the setting, or it makes sense.

A value is set in one of four ways: in the settings themselves, by `train(..., group={...})`, in the configuration of a
run, and by a flag. One that is accepted must be of the right kind and lie in the range of an independent table; now
and then a run is made with it, whose policy must be finite.
"""

from __future__ import annotations

import io
import json
import math
import random
import time
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from samba_rl import runs
from samba_rl.agents.settings import PolicyGradientSettings, Settings
from samba_rl.agents.words import to_words
from samba_rl.cli.train import parsed_train
from samba_rl.data.plain import to_plain
from samba_rl.errors import Stopped, UserError
from samba_rl.improve.limits import FurtherConstraint
from samba_rl.learners import LEARNERS
from samba_rl.presets import make_agent, make_settings
from samba_rl.runs.loading import specification
from tests.fuzz.ranges import FAMILIES, lies_in
from tests.fuzz.texts import NUMBERS, WRONG, at_most
from tests.fuzz.trees import changed, leaves
from tests.line import Line, spend

RUNS = 0.1
"""Share of the accepted settings with which a run is made."""
LARGEST = 400
"""Largest count with which a run is made; more would only take longer."""


def fuzz(seconds: float, seed: int) -> list[str]:
    """Set random values for so many seconds; return what went wrong."""
    return Values(seed).run(seconds)


class Values:
    """Random values of settings, and what became of them."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.tried, self.accepted, self.made = 0, 0, 0
        self._ways: list[Callable[[str, Settings, str, Any], Settings]] = [
            self._directly, self._by_train, self._by_a_configuration, self._by_a_flag,
        ]  # fmt: skip

    def run(self, seconds: float, count: int = 10**9) -> list[str]:
        """Try values for so many seconds, `count` at most; return what went wrong."""
        failures: dict[str, str] = {}
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.tried < count:
            learner = self._random.choice(list(LEARNERS))
            usual = usual_settings(learner)
            groups = (
                ["policy.hidden", "more_constraints", "update"] if isinstance(usual, PolicyGradientSettings) else []
            )
            path = self._random.choice([*leaves(usual), "first", "real", *groups])
            value = self._random.choice(NUMBERS if self._random.random() < 0.7 else WRONG)
            # JSON cannot hold some values, and flags are only texts.
            textual = isinstance(value, tuple | list) or abs_of(value) > 10**1000
            way = self._random.choice(self._ways[:2] if textual else self._ways)
            self.tried += 1
            what = self._outcome(way, learner, usual, path, value)
            if what:
                failures.setdefault(what, f"{learner}: {path} = {shown(value)} ({way.__name__.strip('_')})")
        return [f"{where}: {what}" for what, where in failures.items()]

    def _outcome(
        self, way: Callable[[str, Settings, str, Any], Settings], learner: str, usual: Settings, path: str, value: Any
    ) -> str:
        """Set a value in some way; return what is wrong with what came of it (empty: nothing)."""
        try:
            with at_most(60):
                settings = way(learner, usual, path, value)
        except UserError as error:
            lines, name = str(error).count("\n"), path.split(".")[-1].replace("_", "-") if path else ""
            known = name in str(error).replace("_", "-") or name.isdigit()
            known = known or "Unrecognized options: " in str(error)  # a value after a flag that takes none
            return "" if known and not lines else f"an error without the name of the setting: {str(error)[:150]!r}"
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            return f"{type(error).__name__}: {str(error)[:100]} ({Path(place.filename).name}:{place.lineno})"
        self.accepted += 1
        nonsense = out_of_range(settings)
        if nonsense or self._random.random() > RUNS or too_large(settings):
            return nonsense
        self.made += 1
        return outcome_of_a_run(learner, settings)

    def _directly(self, _: str, usual: Settings, path: str, value: Any) -> Settings:
        made: Settings = changed(usual, path, value)
        return made

    def _by_train(self, learner: str, usual: Settings, path: str, value: Any) -> Settings:
        """Set it as `train(..., group={"name": value})` does, up to the first trial."""
        return specified(learner, usual, nested(to_plain(usual), path, value))

    def _by_a_configuration(self, learner: str, usual: Settings, path: str, value: Any) -> Settings:
        """Set it in the configuration of a run."""
        words = json.dumps(whole(to_plain(usual), path, value), default=repr)
        config = {
            "task": "line", "learner": learner, "preset": "smoke", "device": "cpu", "seed": 0,
            "row": to_words(LEARNERS[learner]), "settings": json.loads(words),
        }  # fmt: skip
        _, about = specification(Path("a run"), config, Line())
        return about.settings

    def _by_a_flag(self, learner: str, usual: Settings, path: str, value: Any) -> Settings:
        """Set it by a flag."""
        text = " ".join(map(str, value)) if isinstance(value, tuple | list) else shown(value)
        flag = f"--{path.replace('_', '-')}={text}"
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            call = parsed_train(["safe-pendulum", "--learner", learner, "--preset", "smoke", flag])
        settings: Settings = call.args[1].settings  # type: ignore[attr-defined]
        return settings


def usual_settings(learner: str) -> Settings:
    """Settings of a short run, with a further limit where there can be one."""
    settings = make_settings("line", learner, "smoke")
    settings = replace(settings, real_samples=80)
    if isinstance(settings, PolicyGradientSettings) and learner != "cpo":
        return replace(settings, more_constraints=(FurtherConstraint(),))
    return settings


def specified(learner: str, usual: Settings, changes: dict[str, Any]) -> Settings:
    """Return the settings that `train` makes of changes: the run is stopped before its first trial."""
    found: list[Settings] = []

    def note(_task: Any, about: Any, _earlier: Any, **_: Any) -> None:
        found.append(about.settings)
        raise Stopped

    with mock.patch("samba_rl.runs.specifying.check", note):
        try:
            runs.train(Line(), learner, settings=usual, **changes)
        except Stopped:
            return found[0]
    raise AssertionError("the run was not stopped")


def nested(plain: Any, path: str, value: Any) -> dict[str, Any]:
    """The changes of `train` that set a value: dicts within dicts; a list is given whole."""
    name, _, rest = path.partition(".")
    if not rest:
        return {name: value}
    if isinstance(plain[name], dict):
        return {name: nested(plain[name], rest, value)}
    return {name: whole(plain[name], rest, value)}


def whole(plain: Any, path: str, value: Any) -> Any:
    """A copy of plain values with another one at a path."""
    name, _, rest = path.partition(".")
    if isinstance(plain, list):
        i = int(name)
        return [*plain[:i], whole(plain[i], rest, value) if rest else value, *plain[i + 1 :]]
    return {**plain, name: whole(plain[name], rest, value) if rest else value}


def out_of_range(settings: Settings) -> str:
    """Name a setting whose value is nonsense by an independent table; empty if there is none."""
    ranges, usual = FAMILIES[type(settings).__name__], leaves(type(settings)())
    for path, value in leaves(settings).items():
        interval = ranges.get(path)
        if interval is not None and value is not None:
            if isinstance(value, bool) or not isinstance(value, int | float) or not lies_in(value, interval):
                return f"accepted, but {path} is out of range"
            if isinstance(usual.get(path), int) and not isinstance(value, int):
                return f"accepted, but {path} is no whole number"
        if path in usual and isinstance(usual[path], bool | str) and type(value) is not type(usual[path]):
            return f"accepted, but {path} is of another kind"
        if isinstance(value, float) and math.isnan(value):
            return f"accepted, but {path} is nan"
    return ""


def too_large(settings: Settings) -> bool:
    """Whether a run would take too long."""
    own = {path: value for path, value in leaves(settings).items() if isinstance(value, int)}
    largest = {"update.epochs": 50, "planner.candidates": 100, "latent.updates": 50, "imagination.judged": 1000}
    for path in (
        "first.hold", "model.fit.points", "model.fit.iterations", "model.sparse_above", "model.inducing",
        "update.minibatch", "trust_region.fisher_samples", "trust_region.backtracks", "real.faults_in_a_row",
    ):  # fmt: skip
        largest[path] = 10**9
    return any(value > largest.get(path, 60 if "iterations" in path else LARGEST) for path, value in own.items())


def outcome_of_a_run(learner: str, settings: Settings) -> str:
    """Learn the line with these settings; return what is wrong with the result (empty: nothing)."""
    try:
        with at_most(120):
            policy = spend(make_agent(Line(), learner, settings))
    except UserError as error:
        return "" if "\n" not in str(error) else f"not an error of one line: {str(error)[:150]!r}"
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return (
            f"a run ends with {type(error).__name__}: {str(error)[:100]} ({Path(place.filename).name}:{place.lineno})"
        )
    finite = all(torch.isfinite(value).all() for value in policy.state_dict().values())
    return "" if finite else "a run ends with a policy that is not finite"


def abs_of(value: Any) -> float:
    """The size of a number; 0 for anything else."""
    return abs(value) if isinstance(value, int) else 0


def shown(value: Any) -> str:
    """A value as text, however long."""
    return "10^5000" if isinstance(value, int) and abs(value) > 10**1000 else str(value)
