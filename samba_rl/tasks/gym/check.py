"""Looks at an environment as a learner would, and says in plain words what is missing or wrong."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Literal, SupportsFloat

import gymnasium
import numpy as np
import torch
from gymnasium.spaces.utils import flatten
from numpy.typing import NDArray
from torch import Tensor

from samba_rl.errors import UserError
from samba_rl.tasks.gym.adapters import Source, action_box, make_env, name_of, observed, time_limit
from samba_rl.tasks.gym.task import Function, GymTask

EPISODES = 3
STEPS = 50
"""At most, in each of the episodes that are tried."""
SEED = 7


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    level: Literal["fine", "note", "problem"]
    subject: str
    text: str


@dataclass
class _Experience:
    """What a few random episodes gave."""

    states: list[NDArray[np.float64]] = field(default_factory=list)
    actions: list[NDArray[np.float64]] = field(default_factory=list)
    costs: list[Any] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    info_keys: set[str] = field(default_factory=set)
    ended: int = 0
    seconds: float = 0.0


def check_env(
    source: Source, *, safety: Function | None = None, cost: Function | None = None, horizon: int | None = None
) -> list[Finding]:
    """Try an environment and the functions that go with it; no finding of level "problem" means that it can be used."""
    findings: list[Finding] = []

    def say(level: Literal["fine", "note", "problem"], subject: str, text: str) -> None:
        findings.append(Finding(level, subject, text))

    try:
        env = make_env(source)
    except UserError as error:
        say("problem", "environment", str(error))
        return findings
    name = name_of(source)
    try:
        fits = _check_description(env, name, source, horizon, say)
        if not fits or not _check_reset(env, say):
            return findings
        limit = horizon or time_limit(source, env) or STEPS
        experience = _try_episodes(env, min(limit, STEPS), say)
        if experience is None:
            return findings
        _check_measured(experience, safety is None, cost is None, say)
        _check_repeatable_steps(env, say)
    finally:
        if not isinstance(source, gymnasium.Env):
            env.close()
    if (safety is not None or cost is not None) and experience.states:
        task = GymTask(source, safety=safety, cost=cost, horizon=limit)
        x, u = torch.from_numpy(np.stack(experience.states)), torch.from_numpy(np.stack(experience.actions))
        for what, function in (("safety", safety), ("cost", cost)):
            if function is not None:
                _check_function(task, what, x, u, say)
    return findings


def _check_description(env: gymnasium.Env[Any, Any], name: str, source: Source, horizon: int | None, say: Any) -> bool:
    """Spaces and time limit; whether it makes sense to go on."""
    fits = True
    try:
        box = action_box(env, name)
        bounds = f"{box.low.ravel().tolist()} to {box.high.ravel().tolist()}"
        say(
            "fine",
            "actions",
            f"{box.low.size} continuous, from {bounds}" if box.low.size <= 4 else f"{box.low.size} continuous",
        )
    except UserError as error:
        say("problem", "actions", str(error))
        fits = False
    try:
        say("fine", "observations", f"{len(observed(env, name))} numbers")
    except UserError as error:
        say("problem", "observations", str(error))
        fits = False
    limit = time_limit(source, env)
    if horizon is not None and horizon < 1:
        say("problem", "horizon", f"horizon = {horizon}; an episode has at least 1 step")
        fits = False
    elif horizon is None and limit is None:
        say("problem", "horizon", "the environment has no time limit; say how many steps an episode has (--horizon N)")
    else:
        say("fine", "horizon", f"{horizon or limit} steps")
    return fits


def _check_reset(env: gymnasium.Env[Any, Any], say: Any) -> bool:
    """Whether reset gives what it should, and the same for the same seed."""
    states = []
    for _ in range(2):
        try:
            result: Any = env.reset(seed=SEED)
        except Exception as error:
            say("problem", "reset", f"reset(seed={SEED}) raised {type(error).__name__}: {error}")
            return False
        if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)):
            say("problem", "reset", f"reset gave {_kind(result)}; it must give (observation, info)")
            return False
        state = _state(env, result[0], "reset", say)
        if state is None:
            return False
        states.append(state)
    if not np.array_equal(states[0], states[1]):
        gap = float(np.abs(states[0] - states[1]).max())
        say(
            "problem",
            "reset",
            f"reset(seed={SEED}) gave two different starts (they differ by up to {gap:g}), so no run can be repeated. "
            "Call super().reset(seed=seed) and draw every random number from self.np_random",
        )
        return True
    say("fine", "reset", "the same seed gives the same start")
    return True


def _try_episodes(env: gymnasium.Env[Any, Any], steps: int, say: Any) -> _Experience | None:
    """Random actions for a few episodes; None if stepping fails."""
    experience = _Experience()
    env.action_space.seed(SEED)
    begin = time.perf_counter()
    for episode in range(EPISODES):
        env.reset(seed=SEED + episode)
        for _ in range(steps):
            action = env.action_space.sample()
            try:
                observation, reward, terminated, truncated, info = env.step(action)
            except UserError as error:
                say("problem", "step", str(error))
                return None
            except Exception as error:
                say("problem", "step", f"step raised {type(error).__name__}: {error} (action {action.tolist()})")
                return None
            state = _state(env, observation, "step", say)
            if state is None:
                return None
            if not isinstance(reward, SupportsFloat) or not np.isfinite(float(reward)):
                say("problem", "reward", f"the reward is {reward!r}; it must be one finite number")
                return None
            experience.states.append(state)
            experience.actions.append(np.asarray(action, dtype=np.float64).ravel())
            experience.rewards.append(float(reward))
            experience.info_keys |= set(info)
            experience.costs.append(info.get("cost"))
            if terminated or truncated:
                experience.ended += 1
                break
    experience.seconds = time.perf_counter() - begin
    count = len(experience.states)
    say("fine", "step", f"{count} random steps in {EPISODES} episodes, {count / experience.seconds:,.0f} steps/s")
    return experience


def _check_measured(experience: _Experience, needs_safety: bool, needs_cost: bool, say: Any) -> None:
    """The cost and safety cost that the environment itself gives, where no function replaces them."""
    if needs_cost:
        low, high = min(experience.rewards), max(experience.rewards)
        say("fine", "cost", f"measured: the negative reward, seen from {-high:.4g} to {-low:.4g}")
        if high > 0:
            say(
                "note",
                "cost",
                f"rewards reach {high:.4g}, so the cost goes below zero; learning works, limits stay as they are",
            )
    if not needs_safety:
        return
    missing = sum(value is None for value in experience.costs)
    if missing == len(experience.costs):
        keys = ", ".join(sorted(experience.info_keys)) or "nothing"
        say(
            "problem",
            "safety",
            f'no safety cost: info["cost"] is missing (info has: {keys}) and step gives no cost as third of six. Give '
            'a function of (states, actions) with --safety module:function, or have the environment fill info["cost"]',
        )
        return
    if missing:
        say(
            "problem",
            "safety",
            f'info["cost"] is missing in {missing} of {len(experience.costs)} steps; it must be in all',
        )
        return
    try:
        values = np.array([np.asarray(value, dtype=np.float64).ravel() for value in experience.costs])
    except (TypeError, ValueError):
        say("problem", "safety", f'info["cost"] is {experience.costs[0]!r}; it must be a number')
        return
    _judge_safety(values, 'info["cost"]', say)


def _judge_safety(values: NDArray[np.float64], what: str, say: Any) -> None:
    """Whether safety costs are numbers that can be limited."""
    if not np.isfinite(values).all():
        bad = int((~np.isfinite(values)).sum())
        say("problem", "safety", f"{what} is NaN or infinite in {bad} of {values.size} places")
    elif (values < 0).any():
        say(
            "problem",
            "safety",
            f"{what} goes down to {values.min():.4g}; a safety cost is zero where all is well, never less",
        )
    else:
        say(
            "fine",
            "safety",
            f"{what}, seen from {values.min():.4g} to {values.max():.4g}, positive in {(values > 0).mean():.0%}",
        )
        if values.max() > 1:
            say(
                "note",
                "safety",
                f"{what} exceeds 1; that works, but limits are then in its units, not in [0, 1] a step",
            )


def _check_repeatable_steps(env: gymnasium.Env[Any, Any], say: Any) -> None:
    """Whether the same seed and actions give the same states."""
    runs = []
    for _ in range(2):
        env.reset(seed=SEED)
        env.action_space.seed(SEED)
        states = []
        for _ in range(10):
            observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
            states.append(np.asarray(flatten(env.observation_space, observation), dtype=np.float64))
            if terminated or truncated:
                break
        runs.append(np.concatenate(states))
    if runs[0].shape == runs[1].shape and np.array_equal(runs[0], runs[1]):
        say("fine", "repeatable", "the same seed and actions give the same states")
    else:
        say(
            "note",
            "repeatable",
            "the same seed and actions give different states: learning works, runs cannot be repeated exactly",
        )


def _check_function(task: GymTask, what: str, x: Tensor, u: Tensor, say: Any) -> None:
    """Whether a user's function works on batches: the right shape, finite, each row's value its own."""
    function = task.safety if what == "safety" else task.cost
    before = x.clone()
    try:
        whole = function(x, u)
        rows = torch.cat([function(x[i : i + 1], u[i : i + 1]) for i in range(len(x))])
    except UserError as error:
        say("problem", what, str(error))
        return
    except Exception as error:
        say("problem", what, f"the {what} function raised {type(error).__name__} on a batch of {len(x)}: {error}")
        return
    if not torch.equal(x, before):
        say(
            "problem", what, f"the {what} function changed the states that it was given; it must leave them as they are"
        )
        return
    if not torch.allclose(whole.double(), rows.double(), rtol=1e-9, atol=1e-12, equal_nan=True):
        worst = int((whole - rows).abs().reshape(len(x), -1).amax(1).argmax())
        say(
            "problem",
            what,
            f"the {what} function does not work on batches: row {worst} of {len(x)} gives {whole[worst].tolist()} in "
            f"the batch and {rows[worst].tolist()} alone. Index columns as x[..., i] and never sum over rows",
        )
        return
    values = whole.double().numpy().reshape(len(x), -1)
    if what == "safety":
        _judge_safety(values, "the safety function", say)
    elif np.isfinite(values).all():
        say("fine", what, f"the cost function, seen from {values.min():.4g} to {values.max():.4g}")
    else:
        say(
            "problem",
            what,
            f"the cost function is NaN or infinite in {int((~np.isfinite(values)).sum())} of {values.size} states",
        )


def _state(env: gymnasium.Env[Any, Any], observation: Any, where: str, say: Any) -> NDArray[np.float64] | None:
    """The flattened observation, if it is one of the observation space and finite."""
    expected = env.observation_space
    if isinstance(expected, gymnasium.spaces.Box):
        shape = np.shape(observation)
        if shape != expected.shape:
            say(
                "problem",
                where,
                f"{where} gave an observation of shape {list(shape)}; its space says {list(expected.shape)}",
            )
            return None
    try:
        state = np.asarray(flatten(expected, observation), dtype=np.float64)
    except Exception as error:
        say("problem", where, f"{where} gave {_kind(observation)}, which does not fit its space {expected} ({error})")
        return None
    if not np.isfinite(state).all():
        say("problem", where, f"{where} gave an observation with NaN or infinity: {state.tolist()}")
        return None
    return state


def _kind(value: Any) -> str:
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else f"a {type(value).__name__}"
