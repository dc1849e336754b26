"""Tries an environment as a learner would and explains in plain words what is missing or wrong."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import SupportsFloat

import gymnasium
import numpy as np
import torch
from gymnasium.spaces.utils import flatten
from numpy.typing import NDArray
from torch import Tensor

from samba_rl.errors import UserError
from samba_rl.tasks.gym.adapters import AnyEnv, Source, action_box, make_env, name_of, observed, time_limit
from samba_rl.tasks.gym.check_costs import (
    check_function,
    check_measured_cost,
    check_measured_safety,
    check_sign,
    note_measured,
)
from samba_rl.tasks.gym.findings import Finding, Findings
from samba_rl.tasks.gym.names import described
from samba_rl.tasks.gym.task import Function, GymTask
from samba_rl.tasks.rollout import rollout
from samba_rl.tasks.task import Quantity, Task, no_costs_yet

__all__ = ["Finding", "check_env", "check_task"]

EPISODES = 3
"""Number of random episodes to try."""
STEPS = 50
"""Largest number of steps per episode."""
SEED = 7
"""Seed of the first episode."""


@dataclass
class _Experience:
    """Data from a few random episodes, one entry per step."""

    states: list[NDArray[np.float64]] = field(default_factory=list)
    actions: list[NDArray[np.float64]] = field(default_factory=list)
    costs: list[object] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    info_keys: set[str] = field(default_factory=set)


@dataclass(frozen=True, kw_only=True)
class Functions:
    """Users' functions of states and actions; None where there is none."""

    safety: Function | None = None
    cost: Function | None = None
    violation: Function | None = None
    done: Callable[[Tensor], Tensor] | None = None


def check_env(
    source: Source,
    *,
    safety: Function | None = None,
    cost: Function | None = None,
    horizon: int | None = None,
) -> list[Finding]:
    """Try an environment with its functions; it can be used if no finding has the level "problem"."""
    return _check(source, Functions(safety=safety, cost=cost), horizon, None)


def check_task(task: Task) -> list[Finding]:
    """Try a task as `check_env` tries an environment."""
    if isinstance(task, GymTask):
        functions = Functions(
            safety=task.safety_function,
            cost=task.cost_function,
            violation=task.violation_function,
            done=task.done_function,
        )
        return _check(task.env, functions, task.horizon, task)
    findings = Findings()
    findings.fine("actions", described(task.actions))
    findings.fine("observations", described(task.observations))
    low, high = task.action_bounds()
    world = task.world(0)
    try:
        traces = rollout(
            world,
            lambda o, g: low + (high - low) * torch.rand(len(o), len(low), generator=g, dtype=torch.float64),
            EPISODES if task.parallel else 1,
            min(task.horizon, STEPS),
            generator=torch.Generator().manual_seed(SEED),
        )
    except Exception as error:
        findings.problem("step", f"random steps raised {type(error).__name__}: {error}")
        return findings.list
    finally:
        world.close()
    findings.fine("step", f"{traces.steps} random steps")
    x, u = traces.x[:, 1:][traces.active], traces.u[traces.active]
    check_function("safety", task.safety, x, u, findings)
    check_function("cost", task.cost, x, u, findings)
    return findings.list


def _check(source: Source, given: Functions, horizon: int | None, task: GymTask | None) -> list[Finding]:
    """Try an environment, as the task that it belongs to, if there is one."""
    findings = Findings()
    try:
        env = make_env(source)
    except UserError as error:
        findings.problem("environment", str(error))
        return findings.list
    try:
        fits = _check_description(env, source, horizon, findings, None if task is None else task.states)
        if not fits or not _check_reset(env, findings):
            return findings.list
        limit = horizon or time_limit(source, env) or STEPS
        experience = _try_episodes(env, min(limit, STEPS), findings)
        if experience is None:
            return findings.list
        if given.cost is None:
            check_measured_cost(experience.rewards, findings)
        if given.safety is None:
            check_measured_safety(experience.costs, experience.info_keys, findings)
        _check_repeatable_steps(env, findings)
    finally:
        if not isinstance(source, gymnasium.Env):
            env.close()
    measured_safety = given.safety is None and not findings.problems_of("safety")
    note_measured(cost=given.cost is None, safety=measured_safety, findings=findings)
    if experience.states:
        as_task = task or GymTask(source, safety=given.safety, cost=given.cost, horizon=limit)
        _check_functions(as_task, given, experience, findings)
    return findings.list


def _check_functions(task: GymTask, given: Functions, experience: _Experience, findings: Findings) -> None:
    """Try the functions that are given on what random actions led to."""
    x, u = torch.from_numpy(np.stack(experience.states)), torch.from_numpy(np.stack(experience.actions))
    before = findings.problems_of()
    if given.safety is not None:
        check_function("safety", task.safety, x, u, findings)
    if given.violation is not None and findings.problems_of() == before:
        check_function("violation", task.violation, x, u, findings)
    if given.done is not None:
        check_function("done", lambda x, _: task.done(x, no_costs_yet(task, x)), x, u, findings)
    if given.cost is not None:
        before = findings.problems_of()
        check_function("cost", task.cost, x, u, findings)
        if findings.problems_of() == before:
            check_sign(task.cost(x, u), experience.rewards, findings)


def _check_description(
    env: AnyEnv, source: Source, horizon: int | None, findings: Findings, states: tuple[Quantity, ...] | None
) -> bool:
    """Check the spaces and the time limit; return False if no episode can be tried."""
    name, fits = name_of(source), True
    try:
        box = action_box(env, name)
        bounds = f", from {box.low.ravel().tolist()} to {box.high.ravel().tolist()}" if box.low.size <= 4 else ""
        findings.fine("actions", f"{box.low.size} continuous{bounds}")
    except UserError as error:
        findings.problem("actions", str(error))
        fits = False
    try:
        findings.fine("observations", described(observed(env, name) if states is None else states))
    except UserError as error:
        findings.problem("observations", str(error))
        fits = False
    limit = time_limit(source, env)
    if horizon is not None and horizon < 1:
        findings.problem("horizon", f"horizon = {horizon}; an episode has at least 1 step")
        fits = False
    elif horizon is None and limit is None:
        findings.problem(
            "horizon", "the environment has no time limit; give the number of steps per episode (--horizon N)"
        )
    else:
        findings.fine("horizon", f"{horizon or limit} steps")
    return fits


def _check_reset(env: AnyEnv, findings: Findings) -> bool:
    """Check that the same seed gives the same start; return False if no episode can be tried."""
    states = []
    for _ in range(2):
        try:
            result: object = env.reset(seed=SEED)
        except Exception as error:
            findings.problem("reset", f"reset(seed={SEED}) raised {type(error).__name__}: {error}")
            return False
        if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)):
            findings.problem("reset", f"reset returned {_kind(result)}; it must return (observation, info)")
            return False
        state = _state(env, result[0], "reset", findings)
        if state is None:
            return False
        states.append(state)
    if np.array_equal(states[0], states[1]):
        findings.fine("reset", "the same seed gives the same start")
    else:
        gap = float(np.abs(states[0] - states[1]).max())
        findings.problem(
            "reset",
            f"reset(seed={SEED}) gave two different starts (they differ by up to {gap:g}), so no run can be repeated. "
            "Call super().reset(seed=seed) and draw every random number from self.np_random",
        )
    return True


def _try_episodes(env: AnyEnv, steps: int, findings: Findings) -> _Experience | None:
    """Take random actions for a few episodes; return None if a step fails."""
    experience = _Experience()
    env.action_space.seed(SEED)
    began = time.perf_counter()
    for episode in range(EPISODES):
        env.reset(seed=SEED + episode)
        for _ in range(steps):
            action = env.action_space.sample()
            try:
                observation, reward, terminated, truncated, info = env.step(action)
            except UserError as error:
                findings.problem("step", str(error))
                return None
            except Exception as error:
                findings.problem("step", f"step raised {type(error).__name__}: {error} (action {action.tolist()})")
                return None
            state = _state(env, observation, "step", findings)
            if state is None:
                return None
            if not isinstance(reward, SupportsFloat) or not np.isfinite(float(reward)):
                findings.problem("reward", f"the reward is {reward!r}; it must be one finite number")
                return None
            experience.states.append(state)
            experience.actions.append(np.asarray(action, dtype=np.float64).ravel())
            experience.rewards.append(float(reward))
            experience.info_keys |= set(info)
            experience.costs.append(info.get("cost"))
            if terminated or truncated:
                break
    count, seconds = len(experience.states), time.perf_counter() - began
    findings.fine("step", f"{count} random steps in {EPISODES} episodes, {count / seconds:,.0f} steps/s")
    return experience


def _check_repeatable_steps(env: AnyEnv, findings: Findings) -> None:
    """Check that the same seed and actions give the same states."""
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
    if np.array_equal(runs[0], runs[1]):
        findings.fine("repeatable", "the same seed and actions give the same states")
    else:
        findings.note(
            "repeatable",
            "the same seed and actions give different states; learning works, but runs cannot be repeated exactly",
        )


def _state(env: AnyEnv, observation: object, where: str, findings: Findings) -> NDArray[np.float64] | None:
    """Return the flattened observation, or None if it does not fit its space or is not finite."""
    expected = env.observation_space
    if isinstance(expected, gymnasium.spaces.Box):
        shape = np.asarray(observation).shape
        if shape != expected.shape:
            findings.problem(
                where,
                f"{where} returned an observation of shape {list(shape)}; its space says {list(expected.shape)}",
            )
            return None
    try:
        state = np.asarray(flatten(expected, observation), dtype=np.float64)
    except Exception as error:
        findings.problem(
            where, f"{where} returned {_kind(observation)}, which does not fit its space {expected} ({error})"
        )
        return None
    if not np.isfinite(state).all():
        findings.problem(where, f"{where} returned an observation with NaN or infinity: {state.tolist()}")
        return None
    return state


def _kind(value: object) -> str:
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else f"a {type(value).__name__}"
