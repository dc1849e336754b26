"""Fuzzing of environments: NaN, wrong shapes and types, exceptions, exits, enormous values, odd costs.

Whatever an environment returns or raises: the run ends with a policy, pauses, or says what is wrong. What was measured
is in the journal, and nothing that is not finite is learned from. Exits of the whole process are tried with `exits`,
each of which takes seconds, because simulations then run in processes of their own.
"""

from __future__ import annotations

import os
import random
import tempfile
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from samba_rl.data.journal import Journal
from samba_rl.errors import Paused
from samba_rl.runs import Run, resume, train
from samba_rl.tasks.gym.task import GymTask
from samba_rl.types import Traces
from tests.fuzz.cases import Words, Wrong, cases
from tests.runs.systems import cost, edge
from tests.threads import one_thread

HOW: dict[str, Any] = {"preset": "smoke", "seed": 1, "real_samples": 60, "first": {"samples": 20}}
VALUES = (1e3, 1e9, 1e37, 1e60, 1e154, 1e200, 1e308, -1e308, 1e-320, float("nan"), float("inf"), -float("inf"))
OBSERVATIONS = (
    "value", "value", "value", "shape", "none", "text", "float32", "integers", "list", "object", "empty", "complex",
)  # fmt: skip
RESULTS = ("short", "long", "none", "reward none", "reward text", "reward array", "reward value", "info none", "ended")
RAISED = ("exception", "exit", "assertion", "recursion", "memory", "stop", "keyboard-like")


class Odd(gymnasium.Env[Any, Any]):
    """A point on a line that does something odd now and then, in a way that its seed decides."""

    def __init__(self, seed: int, share: float, kinds: tuple[str, ...], value: float) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float64)
        self._draw, self._share, self._kinds, self._value, self._x = random.Random(seed), share, kinds, value, 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._x = float(self.np_random.uniform(-3.0, -1.5))
        # Seldom, or the run would only pause.
        kind = self._draw.choice(self._kinds) if self._draw.random() < self._share / 5 else ""
        return self._observed(kind), {}

    def step(self, action: Any) -> Any:
        self._x += float(action[0])
        kind = self._draw.choice(self._kinds) if self._draw.random() < self._share else ""
        seen, info = self._observed(kind), {"cost": 0.0}
        rewards = {"reward none": None, "reward text": "much", "reward array": np.zeros(2), "reward value": self._value}
        reward = rewards.get(kind, -abs(self._x))
        results = {
            "short": (seen, reward),
            "long": (seen, reward, False, False, info, 1, 2),
            "none": None,
            "info none": (seen, reward, False, False, None),
            "ended": (seen, reward, True, True, info),
        }
        return results.get(kind, (seen, reward, False, False, info))

    def _observed(self, kind: str) -> Any:
        errors: dict[str, BaseException] = {
            "exception": RuntimeError("the cable\ncame off"),
            "exit": SystemExit(3),
            "assertion": AssertionError(),
            "recursion": RecursionError("too deep"),
            "memory": MemoryError(),
            "stop": StopIteration(1),
            "keyboard-like": type("Strange", (Exception,), {"__str__": lambda self: "\x1b[31m"})(),
        }
        if kind in errors:
            raise errors[kind]
        if kind == "dead":
            os._exit(7)
        x = np.array([self._x])
        odd: dict[str, Any] = {
            "value": np.array([self._value]), "shape": np.zeros((2, 2)), "none": None, "text": "here",
            "float32": x.astype(np.float32), "integers": x.astype(np.int8), "list": [self._x], "empty": np.zeros(0),
            "object": np.array([None]), "complex": x + 1j,
        }  # fmt: skip
        return odd.get(kind, x)


def fuzz(seconds: float, seed: int, *, exits: bool = False) -> list[str]:
    """Train on odd environments for some seconds; return the failures, one line each."""

    def case(draw: random.Random, words: Words) -> None:
        one_case(draw, words, exits=exits)

    with one_thread(), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return cases(seconds, seed, case, least=2)


def one_case(draw: random.Random, words: Words, *, exits: bool) -> None:
    """Train on one odd environment, with a few pauses, and look at what was kept."""
    kinds = ("dead",) if exits else tuple(draw.sample([*OBSERVATIONS, *RESULTS, *RAISED], draw.choice([1, 1, 3])))
    value, share, learner = draw.choice(VALUES), draw.choice([0.01, 0.05, 0.3]), draw.choice(["ppo", "ppo", "samba"])
    rig, measured, seed = draw.random() < 0.5 and not exits, draw.random() < 0.3, draw.randrange(10**6)
    words(
        f"{learner}, {'rig' if rig else 'simulation'}, {', '.join(kinds)} in {share:.0%}, value {value:g}, seed {seed}"
    )

    def make() -> Odd:
        return Odd(seed, share, kinds, value)

    functions: dict[str, Any] = {} if measured and learner == "ppo" else {"cost": cost, "safety": edge}
    task = GymTask(make() if rig else make, horizon=10, **functions)
    workers = None if rig else 1 if exits else 0
    real = {"on_fault": draw.choice(["pause", "continue"]), "outliers": draw.choice(["aside", "aside", "keep"])}
    words(f"{real['on_fault']}, {real['outliers']}, {'measured costs' if not functions else 'costs by functions'}")
    with tempfile.TemporaryDirectory() as home:
        out, pauses = Path(home) / "run", 0
        while pauses < 6:
            try:
                if (out / "config.json").exists():
                    run = resume(out, task, workers=workers)
                else:
                    run = train(task, learner, out=out, real=real, workers=workers, **HOW)
            except Paused as pause:
                pauses += 1
                if "\n" in str(pause) or "\x1b" in str(pause):
                    raise Wrong(f"the message is not one clean line: {pause!r}") from pause
            else:
                check(run, out, kept=real["outliers"] == "keep")
                return


def check(run: Run, out: Path, *, kept: bool) -> None:
    """Check a finished run: its data are those of the journal, and everything is finite."""
    recorded = sum(each.steps for each in Journal.read(out / "real.journal").trials() if isinstance(each, Traces))
    if not recorded == len(run.data) == run.summary["real_samples"]:
        raise Wrong(f"{recorded} steps in the journal, {len(run.data)} in the data")
    for name, tensor in run.policy.state_dict().items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise Wrong(f"'{name}' of the policy is not finite")
    if not kept and not bool(run.data.transitions.x.isfinite().all()):
        raise Wrong("the data are not finite")
