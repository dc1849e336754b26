"""Presets: the numbers of each family of learners, by preset and by system; and the agent that they make."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, NamedTuple, TypeVar

from samba_rl.agents.agent import AnyAgent
from samba_rl.agents.first import FirstSettings
from samba_rl.agents.settings import (
    ImaginationSettings,
    ModelBasedSettings,
    ModelFreeSettings,
    PolicyGradientSettings,
    Settings,
)
from samba_rl.errors import UserError, did_you_mean
from samba_rl.events import Log
from samba_rl.improve.advantages import AdvantageSettings
from samba_rl.improve.limits import ConstraintSettings, FurtherConstraint, MultiplierSettings
from samba_rl.improve.policies import PolicySettings
from samba_rl.improve.step import WeightSettings
from samba_rl.improve.updates.proximal import ProximalSettings
from samba_rl.improve.updates.trust_region import TrustRegionSettings
from samba_rl.learners import LEARNERS, GPModel, LatentModel, Learner, RealTrials, TraceSource, find_learner
from samba_rl.models.likelihood import FitSettings
from samba_rl.models.settings import GPSettings
from samba_rl.models.zeta import LeaveOneOut
from samba_rl.planet.latent import LatentSettings
from samba_rl.planet.planner import PlannerSettings
from samba_rl.planet.settings import PlanetSettings
from samba_rl.tasks.task import Task

ANY = ""
"""Key of the settings for every system without its own."""
STEPS = 30
"""Steps of an episode in the paper (max trajectory length)."""
LEAST_TRIALS = 5
"""Least number of trials of the policy, however long the episodes are."""

# Learners on a Gaussian-process model ---------------------------------------------------------------------------------

_MODEL = {
    ANY: ModelBasedSettings(),
    "safe-pendulum": ModelBasedSettings(
        real_samples=600,
        episodes=1,
        first=FirstSettings(samples=30, how="uniform"),
        imagination=ImaginationSettings(iterations=15, last_iterations=130, start_iterations=60, most=1.0),
        policy=PolicySettings(std_floor_first=0.4),
        # Over a quarter of the episodes start inside the hazard, so the worst tenth depends on luck; what the policy
        # does shows in the worst quarter.
        constraint=ConstraintSettings(alpha=0.75),
        multiplier=MultiplierSettings(cap=20.0, slack=0.33),
        update=ProximalSettings(minibatch=10_000),
    ),
    "safe-cart-pole-double-pendulum": ModelBasedSettings(imagination=ImaginationSettings(trajectories=400, most=1.0)),
    # Leaping across a narrow slab and stopping before a wide one are two ways of acting, chosen at the start. The limit
    # on the share of unsafe steps keeps the second one off the slab's edge, where CVaR sees no harm. Trials are short,
    # because the arm touches the table now and then, and the model must have met that.
    "safe-fetch-reach": ModelBasedSettings(
        real_samples=450,
        episodes=2,
        first=FirstSettings(how="uniform"),
        imagination=ImaginationSettings(iterations=35, last_iterations=120, trajectories=400, starts=0, most=1.0),
        constraint=ConstraintSettings(nu_floor=0.9),
        more_constraints=(FurtherConstraint(kind="chance", per="step", limit=0.045),),
        multiplier=MultiplierSettings(initial=5.0, factor=1.03),
        policy=PolicySettings(std=0.3, std_floor_first=0.15, experts=2, apart=60, gate_passes=10),
        model=GPSettings(mean="linear"),
    ),
}


_MODEL_SMOKE = ModelBasedSettings(
    real_samples=120,
    episodes=1,
    feasibility_iterations=2,
    first=FirstSettings(samples=60),
    imagination=ImaginationSettings(
        iterations=2,
        last_iterations=2,
        trajectories=20,
        candidates=2,
        judged=100,
        starts=1,
        start_iterations=2,
        most=1.0,
    ),
    weights=WeightSettings(explore=2),
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
    multiplier=MultiplierSettings(initial=1.0, factor=1.15, steepness=2.0, reaction=1.0, margin=0.0, slack=None),
    # A wide squash: near the bound of a narrow one the Fisher matrix vanishes, and natural steps with it.
    policy=PolicySettings(std_floor_first=0.05, mean_bound=2.0),
    update=ProximalSettings(minibatch=500, policy_rate=1e-3),
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

_LATENT_SMOKE = replace(
    _LATENT,
    real_samples=180,
    episodes=2,
    first=FirstSettings(samples=60, how="uniform"),
    latent=LatentSettings(deterministic=16, stochastic=4, hidden=16, updates=4, first_updates=4, batch=8),
    planner=PlannerSettings(candidates=20, elites=4, iterations=2, horizon=5),
)

# The paper ------------------------------------------------------------------------------------------------------------


class _Column(NamedTuple):
    """A column of the paper's table of hyper-parameters."""

    samples: int
    """SAMBA's real samples (Table 1)."""
    trial: int
    """N samples."""
    first: int
    """N init samples."""
    fit: int
    """Optimization iterations."""
    batch: int
    """N epoch samples, and mini batch size."""
    norm: float
    """Max gradient norm."""
    gamma: float
    lam: float
    """Lambda."""
    loss: Literal["squared", "clipped"]
    """Value function loss fn."""
    limit: float
    """CVaR cost limit."""


_COLUMNS = {
    ANY: _Column(1600, 30, 30, 300, 30_000, 0.5, 0.99, 0.97, "squared", 0.025),
    "safe-cart-pole-double-pendulum": _Column(5000, 30, 30, 300, 30_000, 0.5, 0.95, 0.97, "squared", 0.025),
    "safe-fetch-reach": _Column(5000, 300, 1000, 100, 90_000, 1.0, 0.99, 0.95, "clipped", 0.0166666667),
}

AnyPolicyGradient = TypeVar("AnyPolicyGradient", bound=PolicyGradientSettings)


def _paper(base: AnyPolicyGradient, column: _Column) -> AnyPolicyGradient:
    """Return the settings with a column's numbers of the agent; where the paper is silent, the plainest choice."""
    return replace(
        base,
        constraint=ConstraintSettings(limit=column.limit, per="step", alpha=0.9, gamma=column.gamma),
        multiplier=MultiplierSettings(
            schedule="dual-ascent", excess="absolute", rate=0.05, reaction=0.0, initial=1.0, floor=0.0, cap=math.inf,
            margin=0.0, slack=None,
        ),
        policy=PolicySettings(hidden=(32, 32), std=1.0, std_floor_first=0.0, std_floor=0.0, mean_bound=None),
        advantage=AdvantageSettings(
            gamma=column.gamma, lam=column.lam, hidden=(32, 32), time=False, tail_critic=False, normalise_targets=False
        ),
        update=ProximalSettings(
            epochs=80, minibatch=column.batch, policy_rate=3e-4, kl_target=None, critic_rate=1e-3, clip=0.2,
            kl_stop=None, standardise=False, max_gradient_norm=column.norm, critic_loss=column.loss,
        ),
        trust_region=TrustRegionSettings(fisher_samples=None),
    )  # fmt: skip


def _model_paper(column: _Column) -> ModelBasedSettings:
    plain = FitSettings(column.fit, points=None, max_snr=math.inf, lengthscale_prior=(0.0, math.inf))
    base = ModelBasedSettings(
        real_samples=column.samples,
        episodes=column.trial // STEPS,
        first=FirstSettings(samples=column.first, how="uniform"),
        feasibility_iterations=0,
        shield="off",
        imagination=ImaginationSettings(
            100,
            100,
            column.batch // STEPS,
            draw="marginals",
            candidates=1,
            starts=0,
            restart="off",
            confirm="off",
            most=1.0,
        ),
        weights=WeightSettings(spread=False, explore=0),
        model=GPSettings(fit=plain, sparse_above=10_000, calibration="none"),
    )
    return _paper(base, column)


def _free_paper(column: _Column) -> ModelFreeSettings:
    return _paper(replace(_FREE, real_samples=1_000_000, episodes=column.batch // STEPS), column)


_LATENT_PAPER = PlanetSettings(
    real_samples=100_000,
    episodes=1,
    first=FirstSettings(samples=5 * STEPS, how="uniform"),
    # The paper has no numbers for PlaNet; these are those of PlaNet's own paper.
    latent=LatentSettings(
        deterministic=200, stochastic=30, hidden=200, free_nats=3.0, updates=100, first_updates=100, batch=50,
        length=50, rate=1e-3, last_rate=1.0, max_gradient_norm=1000.0, safety_weight=1.0,
    ),
    planner=PlannerSettings(warm_start=False),
)  # fmt: skip

_PAPER_SAMPLES = {
    "sppilco": {"safe-pendulum": 1800, "safe-cart-pole-double-pendulum": 6000},
    "ppilco": {"safe-pendulum": 2000, "safe-cart-pole-double-pendulum": 6000},
}
"""Real samples of Table 1 where they differ from SAMBA's."""

# All of them ----------------------------------------------------------------------------------------------------------

Family = Mapping[str, Mapping[str, Settings]]
"""Settings by preset and system."""

_FAMILIES: dict[type[TraceSource], Family] = {
    GPModel: {
        "default": _MODEL,
        "paper": {task: _model_paper(column) for task, column in _COLUMNS.items()},
        "smoke": {ANY: _MODEL_SMOKE},
    },
    RealTrials: {
        "default": {ANY: _FREE},
        "paper": {task: _free_paper(column) for task, column in _COLUMNS.items()},
        "smoke": {ANY: _FREE_SMOKE},
    },
    LatentModel: {
        "default": _LATENT_DEFAULT,
        "paper": {ANY: _LATENT_PAPER, "safe-cart-pole-double-pendulum": replace(_LATENT_PAPER, real_samples=40_000)},
        "smoke": {ANY: _LATENT_SMOKE},
    },
}
"""Presets of each family. default: tuned to reach the paper's results in a fraction of its time. paper: the paper
to the letter (docs/paper.md). smoke: a few seconds, to see whether everything works."""

PRESETS = ("default", "paper", "smoke")


def find_row(learner: str | Learner, preset: str = "default") -> Learner:
    """Return the row of that name, with the paper's ζ in the preset `paper`; a row of your own is left as it is."""
    row = find_learner(learner)
    if preset == "paper" and isinstance(learner, str) and row.zeta is not None:
        return row.with_zeta(LeaveOneOut())
    return row


def make_settings(task: str | Task, learner: str | Learner = "samba", preset: str = "default") -> Settings:
    """Return the settings of a learner on a system, or on the system of that name.

    A system that is given itself, and has no preset of its own, has trials of about as many steps as the paper's
    systems where its episodes are longer than theirs.
    """
    name = task if isinstance(task, str) else task.name
    row = find_learner(learner)
    family = _FAMILIES[type(row.source)]
    if preset not in family:
        raise UserError(f"no preset is called '{preset}'; {did_you_mean(preset, family)}")
    systems = family[preset]
    settings = systems.get(name, systems[ANY])
    if preset == "paper":
        budgets = next((each for label, each in _PAPER_SAMPLES.items() if LEARNERS[label] == row), {})
        return replace(settings, real_samples=budgets[name]) if name in budgets else settings
    if row.constraint is None and isinstance(settings, ModelBasedSettings):
        settings = _without_limits(settings)
    if isinstance(task, str) or name in systems or not isinstance(settings, ModelBasedSettings):
        return settings
    return _fitted(settings, task.horizon)


def _without_limits(settings: ModelBasedSettings) -> ModelBasedSettings:
    """Return settings for a learner without a limit, which has no use for several ways of acting either."""
    return replace(settings, more_constraints=(), policy=replace(settings.policy, experts=1))


def _fitted(settings: ModelBasedSettings, horizon: int) -> ModelBasedSettings:
    """Return settings for a system whose episodes may be longer than `STEPS`: a trial then has fewer of them."""
    trials = (settings.real_samples - settings.first.samples) // (settings.episodes * STEPS)
    episodes = min(settings.episodes, max(1, round(settings.episodes * STEPS / horizon)))
    first = max(1, round(settings.first.samples / horizon)) * horizon
    least = first + min(trials, LEAST_TRIALS) * episodes * horizon
    return replace(
        settings,
        episodes=episodes,
        first=replace(settings.first, samples=first),
        real_samples=max(settings.real_samples, least),
    )


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
    chosen = make_settings(task, row) if settings is None else settings
    agent = chosen.make_agent(task, row, seed=seed, device=device)
    agent.log = log
    return agent
