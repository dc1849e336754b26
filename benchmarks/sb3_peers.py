"""PPO and TRPO, ours and those of stable-baselines3, with the same numbers and the same evaluation."""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import gymnasium
import torch
from torch import Generator, Tensor, nn

from samba_rl import IDS
from samba_rl.agents.settings import ModelFreeSettings
from samba_rl.presets import make_settings
from samba_rl.runs import train
from samba_rl.runs.evaluation import evaluate
from samba_rl.tasks.task import Task

ENVS, STEPS = 8, 250
"""Number of their environments, and the steps of each in a rollout."""

LearnerName = Literal["ppo", "trpo"]


@dataclass(frozen=True)
class TheirPolicy:
    """Their Gaussian policy behind our interface: observations [B, no] to actions [B, nu]."""

    policy: Any
    normaliser: Any
    """Their VecNormalize; None without one."""
    deterministic: bool = False

    @torch.no_grad()
    def __call__(self, observation: Tensor, generator: Generator) -> Tensor:
        seen = observation.numpy()
        if self.normaliser is not None:
            seen = self.normaliser.normalize_obs(seen)
        normal = self.policy.get_distribution(torch.as_tensor(seen).float()).distribution
        action: Tensor = normal.mean
        if not self.deterministic:
            # Their own sampling uses PyTorch's global generator.
            action = action + normal.stddev * torch.randn(action.shape, generator=generator)
        return action.to(observation.dtype)


def their_learner(name: LearnerName, task: Task, settings: ModelFreeSettings, seed: int, *, normalise: bool) -> Any:
    """Make their PPO or TRPO with the numbers of our settings."""
    from sb3_contrib import TRPO
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    env_id = next(env_id for env_id, name in IDS.items() if name == task.name)
    env: Any = make_vec_env(env_id, n_envs=ENVS, seed=seed, vec_env_cls=DummyVecEnv)
    assert all(env.env_is_wrapped(gymnasium.wrappers.TimeLimit)), "the time limit must be a truncation"
    advantage, update, region = settings.advantage, settings.update, settings.trust_region
    if normalise:
        env = VecNormalize(env, gamma=advantage.gamma)
    # Theirs works in the units of the actions, with the same initial noise for all of them.
    half_widths = [math.log((action.high - action.low) / 2) for action in task.actions]
    common: dict[str, Any] = {
        "n_steps": STEPS,
        "batch_size": update.minibatch,
        "gamma": advantage.gamma,
        "gae_lambda": advantage.lam,
        "policy_kwargs": {
            "net_arch": {"pi": list(settings.policy.hidden), "vf": list(advantage.hidden)},
            "activation_fn": nn.Tanh,
            "log_std_init": math.log(settings.policy.std) + statistics.mean(half_widths),
        },
        "seed": seed,
        "device": "cpu",
    }
    if name == "ppo":
        return PPO(
            "MlpPolicy",
            env,
            learning_rate=update.policy_rate,
            n_epochs=update.epochs,
            clip_range=update.clip,
            ent_coef=update.entropy,
            max_grad_norm=update.max_gradient_norm,
            **common,
        )
    return TRPO(
        "MlpPolicy",
        env,
        # The critic's; the policy has no learning rate.
        learning_rate=update.critic_rate,
        n_critic_updates=update.epochs,
        target_kl=region.kl,
        cg_damping=region.damping,
        cg_max_steps=region.cg_iterations,
        line_search_shrinking_factor=region.shrink,
        # They count the full step as well.
        line_search_max_iter=region.backtracks + 1,
        **common,
    )


def settings_of(task: str, learner: LearnerName, preset: str = "default") -> ModelFreeSettings:
    settings = make_settings(task, learner, preset)
    assert isinstance(settings, ModelFreeSettings)
    return settings


def whole_rollouts(samples: int) -> int:
    """Round down to their whole rollouts, but to at least one."""
    return max(1, samples // (ENVS * STEPS)) * ENVS * STEPS


class Outcome(NamedTuple):
    """The result of learning."""

    seconds: float
    samples: int
    return_mean: float
    """Mean return of the policy with its noise."""
    return_without_noise: float
    """Mean return of the policy without its noise."""


def run_ours(name: LearnerName, task: Task, settings: ModelFreeSettings, seed: int) -> Outcome:
    begin = time.perf_counter()
    run = train(task, name, settings=settings, seed=seed, out=None)
    seconds = time.perf_counter() - begin
    noisy, still = (run.evaluate(deterministic=deterministic).return_mean for deterministic in (False, True))
    return Outcome(seconds, run.summary["real_samples"], noisy, still)


def run_theirs(name: LearnerName, task: Task, settings: ModelFreeSettings, seed: int, *, normalise: bool) -> Outcome:
    learner = their_learner(name, task, settings, seed, normalise=normalise)
    begin = time.perf_counter()
    learner.learn(whole_rollouts(settings.real_samples))
    seconds = time.perf_counter() - begin
    learner.policy.set_training_mode(False)
    noisy, still = (
        evaluate(task, TheirPolicy(learner.policy, learner.get_vec_normalize_env(), deterministic)).return_mean
        for deterministic in (False, True)
    )
    learner.env.close()
    return Outcome(seconds, learner.num_timesteps, noisy, still)
