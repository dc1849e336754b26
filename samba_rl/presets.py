"""Presets: the numbers of each family of learners, by preset and by system; and the agent that they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from samba_rl.agents.agent import AnyAgent
from samba_rl.agents.first import FirstSettings
from samba_rl.agents.settings import ImaginationSettings, ModelBasedSettings, ModelFreeSettings, Settings
from samba_rl.errors import UserError, did_you_mean
from samba_rl.events import Log
from samba_rl.improve.advantages import AdvantageSettings
from samba_rl.improve.constraints import ConstraintSettings
from samba_rl.improve.multipliers import MultiplierSettings
from samba_rl.improve.policies import PolicySettings
from samba_rl.improve.step import WeightSettings
from samba_rl.improve.updates.proximal import ProximalSettings
from samba_rl.learners import GPModel, LatentModel, Learner, RealTrials, TraceSource, find_learner
from samba_rl.models.gp import GPSettings
from samba_rl.models.likelihood import FitSettings
from samba_rl.planet.latent import LatentSettings
from samba_rl.planet.planner import PlannerSettings
from samba_rl.planet.settings import PlanetSettings
from samba_rl.tasks.task import Task

ANY = ""
"""Key of the settings for every system without its own."""

# Learners on a Gaussian-process model ---------------------------------------------------------------------------------

_MODEL = {
    ANY: ModelBasedSettings(),
    "safe-pendulum": ModelBasedSettings(
        real_samples=600,
        episodes=1,
        first=FirstSettings(samples=30, how="uniform"),
        imagination=ImaginationSettings(iterations=15, last_iterations=90, start_iterations=60),
        policy=PolicySettings(std_floor_first=0.4),
        # Over a quarter of the episodes start inside the hazard, so the worst tenth depends on luck; what the policy
        # does shows in the worst quarter.
        constraint=ConstraintSettings(alpha=0.75),
        multiplier=MultiplierSettings(cap=10.0),
        update=ProximalSettings(minibatch=10_000),
    ),
    "safe-cart-pole-double-pendulum": ModelBasedSettings(imagination=ImaginationSettings(trajectories=400)),
    # Stopping before the slab and leaping across it are far apart. λ starts high, so that the policy stops first.
    "safe-fetch-reach": ModelBasedSettings(
        real_samples=450,
        first=FirstSettings(how="uniform"),
        imagination=ImaginationSettings(iterations=60, last_iterations=120),
        constraint=ConstraintSettings(nu_floor=0.8),
        multiplier=MultiplierSettings(initial=5.0, factor=1.03),
        policy=PolicySettings(std=0.3, std_floor_first=0.15),
    ),
}


def _model_paper(
    *,
    samples: int,
    batch: int,
    first: int,
    trajectories: int,
    limit: float,
    gamma: float,
    lam: float,
    norm: float,
    loss: Literal["squared", "clipped"],
    fit_iterations: int,
) -> ModelBasedSettings:
    """Return a column of the paper's table of hyper-parameters; where it is silent, the plainest choice."""
    return ModelBasedSettings(
        real_samples=samples,
        episodes=batch // 30,
        first=FirstSettings(samples=first, how="uniform"),
        constraint=ConstraintSettings(limit=limit, per="step"),
        multiplier=MultiplierSettings(
            schedule="dual-ascent", rate=0.05, reaction=0.0, cap=100.0, margin=0.0, slack=None
        ),
        shield="off",
        imagination=ImaginationSettings(100, 100, trajectories, draw="marginals", candidates=1, starts=0),
        weights=WeightSettings(spread=False, least_cost_weight=0.0),
        policy=PolicySettings(mean_bound=None, std_floor_first=0.01, std_floor=0.01),
        advantage=AdvantageSettings(gamma=gamma, lam=lam, time=False, tail_critic=False),
        update=ProximalSettings(
            epochs=80,
            minibatch=30 * trajectories,
            policy_rate=3e-4,
            critic_rate=1e-3,
            kl_target=None,
            kl_stop=0.015,
            max_gradient_norm=norm,
            critic_loss=loss,
        ),
        model=GPSettings(
            fit=FitSettings(iterations=fit_iterations, points=None), sparse_above=10_000, calibration="none"
        ),
    )


_PENDULUM_PAPER = _model_paper(
    samples=1600, batch=30, first=30, trajectories=1000, limit=0.025, gamma=0.99, lam=0.97, norm=0.5, loss="squared",
    fit_iterations=300,
)  # fmt: skip

_MODEL_PAPER = {
    ANY: _PENDULUM_PAPER,
    "safe-cart-pole-double-pendulum": _model_paper(
        samples=5000, batch=30, first=30, trajectories=1000, limit=0.025, gamma=0.95, lam=0.97, norm=0.5,
        loss="squared", fit_iterations=300,
    ),
    "safe-fetch-reach": _model_paper(
        samples=5000, batch=300, first=1000, trajectories=3000, limit=0.5 / 30, gamma=0.99, lam=0.95, norm=1.0,
        loss="clipped", fit_iterations=100,
    ),
}  # fmt: skip

_MODEL_SMOKE = ModelBasedSettings(
    real_samples=120,
    episodes=1,
    feasibility_iterations=2,
    first=FirstSettings(samples=60),
    imagination=ImaginationSettings(
        iterations=2, last_iterations=2, trajectories=20, candidates=2, judged=100, starts=1, start_iterations=2
    ),
    update=ProximalSettings(epochs=2, minibatch=300),
    model=GPSettings(fit=FitSettings(iterations=10)),
)

# Learners without a model ---------------------------------------------------------------------------------------------

_FREE = ModelFreeSettings(
    real_samples=100_000,
    episodes=66,
    # Only to learn the scale of the observations.
    first=FirstSettings(samples=600, how="uniform"),
    # The measured value is the truth, so no margin for a model's errors is needed.
    multiplier=MultiplierSettings(initial=1.0, factor=1.15, steepness=2.0, reaction=2.0, margin=0.0, slack=None),
    # A wide squash: near the bound of a narrow one the Fisher matrix vanishes, and natural steps with it.
    policy=PolicySettings(std_floor_first=0.05, mean_bound=2.0),
    update=ProximalSettings(minibatch=500, policy_rate=1e-3),
)

_FREE_PAPER = replace(
    _FREE,
    real_samples=1_000_000,
    episodes=334,
    # Twice as many updates, each of five times as many steps, let λ grow more slowly.
    multiplier=MultiplierSettings(initial=1.0, factor=1.1, cap=20.0, margin=0.0, slack=None),
)

_FREE_SMOKE = replace(
    _FREE,
    real_samples=240,
    episodes=2,
    first=FirstSettings(samples=60, how="uniform"),
    update=ProximalSettings(epochs=2, minibatch=300),
)

# Planners on a latent model -------------------------------------------------------------------------------------------

_LATENT = PlanetSettings(
    real_samples=20_000,
    episodes=10,
    first=FirstSettings(samples=600, how="held"),
    # On the true equations of Safe Pendulum this many candidates plan as well as the paper's 1000.
    planner=PlannerSettings(candidates=100, elites=12, iterations=5),
)

_LATENT_DEFAULT = {
    ANY: _LATENT,
    # The cost is flat from where it hangs to where it begins to rise; 12 steps do not look that far ahead.
    "safe-cart-pole-double-pendulum": replace(_LATENT, planner=replace(_LATENT.planner, horizon=20)),
}

_LATENT_PAPER = replace(
    _LATENT,
    real_samples=100_000,
    latent=LatentSettings(length=50, free_nats=3.0, rate=1e-3, max_gradient_norm=1000.0),
    planner=PlannerSettings(),
)

_LATENT_SMOKE = replace(
    _LATENT,
    real_samples=180,
    episodes=2,
    first=FirstSettings(samples=60, how="uniform"),
    latent=LatentSettings(deterministic=16, stochastic=4, hidden=16, updates=4, first_updates=4, batch=8),
    planner=PlannerSettings(candidates=20, elites=4, iterations=2, horizon=5),
)

# All of them ----------------------------------------------------------------------------------------------------------

Family = Mapping[str, Mapping[str, Settings]]
"""Settings by preset and system."""

_FAMILIES: dict[type[TraceSource], Family] = {
    GPModel: {"default": _MODEL, "paper": _MODEL_PAPER, "smoke": {ANY: _MODEL_SMOKE}},
    RealTrials: {"default": {ANY: _FREE}, "paper": {ANY: _FREE_PAPER}, "smoke": {ANY: _FREE_SMOKE}},
    LatentModel: {
        "default": _LATENT_DEFAULT,
        "paper": {ANY: _LATENT_PAPER, "safe-cart-pole-double-pendulum": replace(_LATENT_PAPER, real_samples=40_000)},
        "smoke": {ANY: _LATENT_SMOKE},
    },
}
"""Presets of each family. default: tuned to reach the paper's results in a fraction of its time. paper: the paper's
table of hyper-parameters. smoke: a few seconds, to see whether everything works."""

PRESETS = ("default", "paper", "smoke")


def make_settings(task: str, learner: str | Learner = "samba", preset: str = "default") -> Settings:
    """Return the settings of a learner on the system of that name."""
    family = _FAMILIES[type(find_learner(learner).source)]
    if preset not in family:
        raise UserError(f"no preset is called '{preset}'; {did_you_mean(preset, family)}")
    systems = family[preset]
    return systems.get(task, systems[ANY])


def make_agent(
    task: Task,
    learner: str | Learner = "samba",
    settings: Settings | None = None,
    *,
    seed: int = 0,
    device: str = "cpu",
    log: Log | None = None,
) -> AnyAgent:
    """Make an agent that learns the task: `tell` it real traces, `ask` it for the next policy.

    Without `settings` it has those of the default preset. `log` is called with every event of `ask` and `tell`.
    """
    row = find_learner(learner)
    chosen = make_settings(task.name, row) if settings is None else settings
    agent = chosen.make_agent(task, row, seed=seed, device=device)
    agent.log = log
    return agent
