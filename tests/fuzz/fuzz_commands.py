"""Random commands: none may end in a traceback or without a word, and train may not accept settings out of range.

The commands run in this process, in a folder of files that are wrong in several ways. What takes long (training,
evaluation, drawing) is replaced by stand-ins; parsing and checking are real.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import random
import shlex
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints
from unittest import mock

import numpy as np
import torch

from samba_rl import runs
from samba_rl.cli import COMMANDS, main
from samba_rl.cli.options import Options
from samba_rl.errors import UserError
from samba_rl.learners import LEARNERS
from samba_rl.presets import PRESETS, make_settings
from samba_rl.runs.checks import check
from samba_rl.runs.earlier import earlier_data
from samba_rl.runs.session import About
from samba_rl.runs.waiting import new_run
from samba_rl.tasks import TASKS
from samba_rl.tasks.rollout import rollout
from samba_rl.tasks.task import Task
from tests.fuzz.ranges import FAMILIES, lies_in
from tests.fuzz.texts import FILES, PLACES, TEXTS, Hangs, at_most
from tests.fuzz.trees import leaves

CODES = (0, 1, 2, 3, 4, 130)
"""Exit codes that the documentation names."""
OPTIONS = [part.name for part in fields(Options) if part.name not in ("task", "settings", "learner", "preset")]
ACCEPTED = "a stand-in for training was reached"


class Nonsense(Exception):  # noqa: N818 - what was accepted
    """Raised where a command was accepted that should not have been."""


def fuzz(seconds: float, seed: int) -> list[str]:
    """Run random commands for so many seconds; return what went wrong."""
    return Commands(seed).run(seconds)


class Commands:
    """Random commands, and what became of them."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.tried, self.accepted = 0, 0

    def run(self, seconds: float, count: int = 10**9) -> list[str]:
        """Try commands for so many seconds, `count` at most; return what went wrong."""
        failures: dict[str, str] = {}
        with tempfile.TemporaryDirectory(prefix="samba-fuzz-") as folder, surroundings(Path(folder)), stand_ins():
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline and self.tried < count:
                argv = self.command()
                kind, what = outcome(argv)
                self.tried += 1
                self.accepted += kind == ACCEPTED
                if what:
                    failures.setdefault(what, shlex.join(argv))
        return [f"samba-rl {command}: {what}" for what, command in failures.items()]

    def command(self) -> list[str]:
        """Return the arguments of a random command."""
        one = self._random
        verb = one.choice(["train"] * 6 + list(COMMANDS) + ([one.choice(TEXTS)] if one.random() < 0.2 else []))
        if verb == "train":
            return ["train", *self._train()]
        if verb == "new":
            folder = [one.choice(["new", "waits", "whole", "bad.py", *TEXTS])] if one.random() < 0.95 else []
            return ["new", *folder, *(["--task", self._system()] if one.random() < 0.9 else []), *self._flags()]
        if verb not in COMMANDS:
            return [verb, *(one.choice(TEXTS) for _ in range(one.randrange(3)))]
        given: list[str] = []
        parameters = inspect.signature(COMMANDS[verb]).parameters
        hints = get_type_hints(COMMANDS[verb], include_extras=True)
        for name in parameters:
            if "Positional" in str(hints[name]):
                given += [self._value(name)] if one.random() < 0.95 else []
            elif one.random() < 0.3:
                flag = {"as_json": "json"}.get(name, name).replace("_", "-")
                given += self._flag(flag, name, bare=hints[name] is bool or "bool" in str(hints[name]))
        return [verb, *given]

    def _train(self) -> list[str]:
        return [*([self._system()] if self._random.random() < 0.95 else []), *self._flags()]

    def _flags(self) -> list[str]:
        """Return flags of `train`."""
        one = self._random
        learner = one.choice(list(LEARNERS)) if one.random() < 0.95 else one.choice(TEXTS)
        preset = one.choice(PRESETS) if one.random() < 0.95 else one.choice(TEXTS)
        given = ["--learner", learner, "--preset", preset]
        known = make_settings("", learner if learner in LEARNERS else "samba")
        paths = [*leaves(known), "policy.hidden", "more_constraints.0.limit", "more_constraints.0.kind"]
        for path in one.sample(paths, one.choice([0, 1, 1, 1, 2, 3])):
            flag = path.replace("_", "-")
            value = one.choice([*TEXTS, "3", "0.3", "10", "200", "1e-3"])
            given += [f"--{flag}={value}"] if one.random() < 0.3 else [f"--{flag}", value]
        for name in [
            n for n in vars(Options)["__dataclass_fields__"] if n not in ("task", "settings", "learner", "preset")
        ]:
            if one.random() < 0.06:
                given += self._flag(
                    name.replace("kind", "constraint.kind"), name, bare=name in ("evaluation", "pictures")
                )
        if one.random() < 0.1:
            one.shuffle(given)
        return given

    def _flag(self, flag: str, name: str, *, bare: bool) -> list[str]:
        if bare and self._random.random() < 0.9:
            return [f"--{flag}" if self._random.random() < 0.7 else f"--no-{flag}"]
        return [f"--{flag}", self._value(name)]

    def _system(self) -> str:
        one = self._random
        return one.choice(list(TASKS)) if one.random() < 0.75 else one.choice([*PLACES, *TEXTS])

    def _value(self, name: str) -> str:
        one = self._random
        if one.random() < 0.4:
            fitting = {
                "task": ["safe-pendulum", "safe-cart-pole-double-pendulum", *PLACES],
                "run": ["whole", "whole", "waits", "folder.py", "bad.py", "."],
                "where": ["whole", "waits", "safe-pendulum", *PLACES],
                "files": ["trial.csv", "junk.csv", "x.json", "x.h", "x.npz", "whole/config.json"],
                "file": ["run.toml", "sweep.toml", "bad.py"],
                "config": ["run.toml", "sweep.toml", "bad.py"],
                "check": ["x.json", "whole/policy.npz", "junk.csv"],
                "runs": ["whole", "folder.py"],
                "results": ["whole", "folder.py"],
                "film": ["x.gif", "x.mp4", "x.png", "folder.py/x.gif"],
                "grid": ["smoke", "paper"],
                "learners": ["samba", "samba,ppo"],
                "tasks": ["safe-pendulum"],
                "out": ["out", "x.html", "bad.py", "x" * 300 + ".html"],
                "name": ["information", "curves", "tail", "systems", "all"],
                "env_id": ["CartPole-v1", "bad:X-v0", "quits:X-v0"],
                "safety": PLACES,
                "cost": PLACES,
                "data": ["trial.csv", "junk.csv", "bad.py", "none.csv"],
            }
            if name in fitting:
                return one.choice(fitting[name])
        # Starting MuJoCo takes too long.
        return one.choice([text for text in (*TEXTS, *PLACES) if text != "safe-fetch-reach"])


def outcome(argv: list[str]) -> tuple[str, str]:
    """Run a command; return what it ended with, and what is wrong with that (empty: nothing)."""
    written = io.BytesIO()
    # As strict as a terminal: it cannot show lone surrogates.
    said, complaint = (io.TextIOWrapper(file, "utf-8", write_through=True) for file in (io.BytesIO(), written))
    threads, folder = torch.get_num_threads(), Path.cwd()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complaint), at_most(60):
            code: Any = main(argv)
    except SystemExit as exit_:
        return "exit", "" if exit_.code == 0 else f"ends with {exit_.code!r} and no word of the program"
    except (Exception, Hangs) as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return "traceback", f"{type(error).__name__}: {str(error)[:150]} ({Path(place.filename).name}:{place.lineno})"
    finally:
        torch.set_num_threads(threads)
        os.chdir(folder)
    text = written.getvalue().decode()
    if code not in CODES:
        return "code", f"unknown exit code {code!r}"
    if code == 2 and not (text.startswith("samba-rl: ") and text.count("\n") == 1) and "not drawn: " not in text:
        return "lines", f"not an error of one line: {text[:200]!r}"
    return (ACCEPTED if ACCEPTED in text else "done"), ""


@contextlib.contextmanager
def surroundings(folder: Path) -> Iterator[None]:
    """Stand in a folder with files that are wrong in several ways, and a finished run."""
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / "bytes.py").write_bytes(b"\xff\xfe\x00")
    (folder / "folder.py").mkdir()
    runs.train("safe-pendulum", "ppo", preset="smoke", out=folder / "whole", real_samples=120)
    new_run(folder / "waits", "safe-pendulum", preset="smoke")
    before, modules = Path.cwd(), set(sys.modules)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
        for name in set(sys.modules) - modules:
            if name.partition(".")[0] in {file.partition(".")[0] for file in FILES}:
                del sys.modules[name]


@contextlib.contextmanager
def stand_ins() -> Iterator[None]:
    """Replace what takes long, after its arguments have been checked as they would be."""
    picture = np.zeros((64, 64, 3), np.uint8)
    real_evaluate, real_certify, real_rollout = runs.Run.evaluate, runs.Run.certify, rollout

    def train(task: Task, row: Any, **given: Any) -> None:
        settings = given["settings"]
        about = About(given["name"], row, given["preset"], given["seed"], settings, given["device"])
        found = earlier_data(task, None, settings)
        check(task, about, None if found is None else found[0].transitions)
        for path, value in leaves(settings).items():
            interval = FAMILIES[type(settings).__name__].get(path)
            if interval is not None and value is not None and not lies_in(value, interval):
                raise Nonsense(f"train accepted {path} = {value!r}")
        raise UserError(ACCEPTED)

    def evaluate(run: Any, steps: int | None = None, seed: int | None = None, **given: Any) -> Any:
        return real_evaluate(run, min(steps or 60, 60), seed, **{**given, "episodes": None})

    def certify(run: Any, episodes: int, *given: Any, **more: Any) -> Any:
        return real_certify(run, min(episodes, 4), *given, **more)

    def roll(world: Any, policy: Any, episodes: int, **given: Any) -> Any:
        return real_rollout(world, policy, min(episodes, 2), **given)

    def benchmark(run: Any, backend: Any, display: Any) -> list[Any]:
        for state in run.states.values():
            state.cell.settings()
        return []

    with contextlib.ExitStack() as stack:
        for name, stand_in in (
            ("samba_rl.runs.train", train),
            ("samba_rl.runs.waiting.finished", lambda _: (_ for _ in ()).throw(UserError("a stand-in for learning"))),
            (
                "samba_rl.runs.advise.Adviser.advise",
                lambda *_: (_ for _ in ()).throw(UserError("a stand-in for advice")),
            ),
            ("samba_rl.cli.sweep.run_grid", lambda *_, **__: 0),
            ("samba_rl.cli.sweep._run_one", lambda *_: 0),
            ("samba_rl.cli.sweep._show", lambda *_: None),
            ("samba_rl.runs.run.Run.evaluate", evaluate),
            ("samba_rl.runs.run.Run.certify", certify),
            ("samba_rl.benchmark.grid.GridRun.run", benchmark),
            ("samba_rl.report.film.policy_film", lambda *_, **__: [picture]),
            ("samba_rl.report.film.film", lambda *_, **__: [picture]),
            ("samba_rl.report.film.strip", lambda *_, **__: picture),
            ("samba_rl.tasks.rollout.rollout", roll),
            ("samba_rl.report.named.draw", lambda *_: (_ for _ in ()).throw(UserError("a stand-in for drawing"))),
        ):
            stack.enter_context(mock.patch(name, stand_in))
        yield
