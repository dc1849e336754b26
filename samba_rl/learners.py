"""The learners as rows of a table, and the settings that a row, a system and a preset stand for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from samba_rl.agents.agent import AnyAgent
from samba_rl.agents.first import FirstTrials
from samba_rl.agents.policy_gradient import Agent
from samba_rl.errors import UserError, did_you_mean
from samba_rl.events import Log
from samba_rl.improve.advantages import AdvantageSettings
from samba_rl.improve.constraints import ConstraintSettings, Kind, MultiplierSettings
from samba_rl.improve.objectives import ObjectiveName
from samba_rl.improve.policies import PolicySettings
from samba_rl.improve.step import Rule, WeightSettings
from samba_rl.improve.updates.proximal import ProximalSettings
from samba_rl.improve.updates.trust_region import TrustRegionSettings
from samba_rl.models.gp import GPSettings
from samba_rl.models.likelihood import FitSettings
from samba_rl.models.world import ZetaName
from samba_rl.planet.agent import PlanetAgent
from samba_rl.planet.latent import LatentSettings
from samba_rl.planet.planner import PlannerSettings
from samba_rl.tasks.faults.settings import RealSettings
from samba_rl.tasks.task import Task

Preset = Literal["default", "paper", "smoke"]
TracesFrom = Literal["model", "real", "latent"]


@dataclass(frozen=True)
class Learner:
    """What makes a learner: a row of the table."""

    traces: TracesFrom
    """Where the traces come from on which the policy is improved."""
    objectives: tuple[ObjectiveName, ...]
    constraint: Kind
    update: Rule | Literal["none"]
    """none: a planner is the policy."""


LEARNERS = {
    "samba": Learner("model", ("cost", "information"), "cvar", "proximal"),
    "sppilco": Learner("model", ("cost",), "cvar", "proximal"),
    "ppilco": Learner("model", ("cost",), "none", "proximal"),
    "ppo": Learner("real", ("cost",), "none", "proximal"),
    "sppo": Learner("real", ("cost",), "expectation", "proximal"),
    "trpo": Learner("real", ("cost",), "none", "trust-region"),
    "strpo": Learner("real", ("cost",), "expectation", "trust-region"),
    "cpo": Learner("real", ("cost",), "expectation", "projection"),
    "planet": Learner("latent", ("cost",), "none", "none"),
    "planet-rs": Learner("latent", ("cost", "safety"), "none", "none"),
}


@dataclass(frozen=True)
class FirstSettings:
    """The first real trials, before there is a model."""

    samples: int = 150
    """How many real steps, rounded up to whole episodes."""
    how: FirstTrials = "held"
    """uniform: every action drawn afresh. held: drawn and kept for `hold` steps, which leads farther from the start.
    sobol: sequences of held actions, spread evenly over all that there are."""
    hold: int = 5
    """Steps."""
    data: str = ""
    """A CSV or Parquet file of real transitions that are there already; they do not count as samples."""


@dataclass(frozen=True)
class ImaginationSettings:
    """How the policy is improved on the model, between two real trials."""

    iterations: int = 40
    """Control iterations after each real trial."""
    last_iterations: int = 60
    """Control iterations after the last one."""
    trajectories: int = 300
    """Imagined in each control iteration."""
    draw: Literal["marginals", "functions"] = "marginals"
    """Whether imagined steps are independent draws, or follow one function drawn for the whole trajectory."""
    candidates: int = 5
    """At the end the best of this many of the latest policies is handed over: the cheapest that keeps to the limits on
    the model, or else the safest. 1: the last one."""


@dataclass(frozen=True)
class Settings:
    """Everything that a run depends on, beside the system and the seed."""

    real_samples: int = 1500
    """Real steps to spend at most, the first ones included."""
    episodes: int = 5
    """Real episodes in a trial, between two improvements of the policy."""
    traces: TracesFrom = "model"
    """Whether the policy is improved on what a model imagines, on the real trials themselves, or not at all, because it
    is a planner on a latent model."""
    rule: Rule = "proximal"
    """How: clipped steps (PPO), a natural gradient step within a trust region (TRPO), or such a step that keeps to the
    limit by itself (CPO)."""
    zeta: ZetaName | Literal["none"] = "loo"
    """What exploration seeks: sensitivity of the model to leaving a point out, its bootstrap, entropy, or nothing."""
    feasibility_iterations: int = 40
    """Control iterations at most that go into the least value of a constraint that the model can reach: when its limit
    is first missed and at the end, and an eighth of that after each trial while the limit looks out of reach. 0: it is
    not estimated."""
    first: FirstSettings = field(default_factory=FirstSettings)
    real: RealSettings = field(default_factory=RealSettings)
    constraint: ConstraintSettings = field(default_factory=ConstraintSettings)
    more_constraints: tuple[ConstraintSettings, ...] = ()
    """Further limits, each with its own multiplier."""
    multiplier: MultiplierSettings = field(default_factory=MultiplierSettings)
    imagination: ImaginationSettings = field(default_factory=ImaginationSettings)
    weights: WeightSettings = field(default_factory=WeightSettings)
    policy: PolicySettings = field(default_factory=PolicySettings)
    advantage: AdvantageSettings = field(default_factory=AdvantageSettings)
    update: ProximalSettings = field(default_factory=ProximalSettings)
    trust_region: TrustRegionSettings = field(default_factory=TrustRegionSettings)
    model: GPSettings = field(default_factory=GPSettings)
    latent: LatentSettings = field(default_factory=LatentSettings)
    planner: PlannerSettings = field(default_factory=PlannerSettings)

    def __post_init__(self) -> None:
        for what, value, least in (
            ("real_samples", self.real_samples, 1),
            ("episodes", self.episodes, 1),
            ("feasibility_iterations", self.feasibility_iterations, 0),
            ("first.samples", self.first.samples, 0),
            ("imagination.iterations", self.imagination.iterations, 1),
            ("imagination.last_iterations", self.imagination.last_iterations, 1),
            ("imagination.trajectories", self.imagination.trajectories, 2),
            ("imagination.candidates", self.imagination.candidates, 1),
            ("update.epochs", self.update.epochs, 1),
            ("update.minibatch", self.update.minibatch, 1),
        ):
            if value < least:
                raise UserError(f"{what} = {value}; it must be at least {least}")
        if self.traces == "real" and self.zeta != "none":
            raise UserError(f"zeta = '{self.zeta}' without a model: real steps say nothing of what one would learn")
        if self.traces == "latent" and (self.zeta != "none" or self.constraint.kind != "none" or self.more_constraints):
            raise UserError(
                "a planner on a latent model knows neither zeta nor limits; leave zeta and constraint.kind at none "
                "and let the safety cost weigh: latent.safety_weight"
            )
        if self.rule == "projection" and (self.constraint.kind == "none" or self.more_constraints):
            raise UserError("the rule 'projection' keeps to exactly one limit; give one, or take 'trust-region'")
        if self.first.samples > self.real_samples:
            raise UserError(
                f"first.samples = {self.first.samples} exceeds real_samples = {self.real_samples}; leave some for the "
                "trials of the policy"
            )

    @property
    def objectives(self) -> tuple[ObjectiveName, ...]:
        """What is minimised."""
        if self.traces == "latent" and self.latent.safety_weight:
            return ("cost", "safety")
        return ("cost",) if self.zeta == "none" else ("cost", "information")


# The presets ----------------------------------------------------------------------------------------------------------

_DEFAULT = {
    "": Settings(),
    "safe-pendulum": Settings(
        real_samples=600,
        episodes=1,
        first=FirstSettings(samples=30, how="uniform"),
        imagination=ImaginationSettings(iterations=15, last_iterations=60),
        # Over a quarter of the episodes start inside the hazard: the worst tenth is a matter of luck, the worst quarter
        # of what the policy does.
        constraint=ConstraintSettings(alpha=0.75),
        multiplier=MultiplierSettings(cap=10.0),
        update=ProximalSettings(minibatch=10_000),
    ),
    "safe-cart-pole-double-pendulum": Settings(imagination=ImaginationSettings(trajectories=400)),
    # Stopping before the slab and leaping across it are far apart: λ starts high, so that the policy first stops.
    "safe-fetch-reach": Settings(
        real_samples=450,
        first=FirstSettings(how="uniform"),
        imagination=ImaginationSettings(iterations=60, last_iterations=120),
        constraint=ConstraintSettings(nu_floor=0.8),
        multiplier=MultiplierSettings(initial=5.0, factor=1.03),
        policy=PolicySettings(std=0.3, std_floor_first=0.15),
    ),
}
"""What reaches the paper's results in a fraction of its time, by system; empty: any other system."""


def _paper(
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
) -> Settings:
    return Settings(
        real_samples=samples,
        episodes=batch // 30,
        first=FirstSettings(samples=first, how="uniform"),
        constraint=ConstraintSettings(limit=limit, per="step"),
        multiplier=MultiplierSettings(schedule="dual-ascent", rate=0.05, cap=100.0, margin=0.0, slack=None),
        imagination=ImaginationSettings(100, 100, trajectories, candidates=1),
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
        model=GPSettings(fit=FitSettings(iterations=fit_iterations, points=None), sparse_above=10_000),
    )


_PAPER = {
    "": _paper(1600, 30, 30, 1000, 0.025, 0.99, 0.97, 0.5, "squared", 300),
    "safe-pendulum": _paper(1600, 30, 30, 1000, 0.025, 0.99, 0.97, 0.5, "squared", 300),
    "safe-cart-pole-double-pendulum": _paper(5000, 30, 30, 1000, 0.025, 0.95, 0.97, 0.5, "squared", 300),
    "safe-fetch-reach": _paper(5000, 300, 1000, 3000, 0.5 / 30, 0.99, 0.95, 1.0, "clipped", 100),
}
"""The paper's table of hyper-parameters to the letter; of what it leaves out, the plainest."""

_REAL = Settings(
    real_samples=100_000,
    episodes=66,
    traces="real",
    zeta="none",
    feasibility_iterations=0,
    # Their only use is to say what observations look like.
    first=FirstSettings(samples=600, how="uniform"),
    # One update after each trial.
    imagination=ImaginationSettings(iterations=1, last_iterations=1, candidates=1),
    # What is measured is the truth: there is no margin for a model's errors.
    multiplier=MultiplierSettings(initial=1.0, factor=1.15, margin=0.0, slack=None),
    # A wide squash: near the bound of a narrow one the Fisher matrix vanishes, and natural steps with it.
    policy=PolicySettings(std_floor_first=0.05, mean_bound=2.0),
    update=ProximalSettings(minibatch=500, policy_rate=1e-3),
)
"""Learners without a model, on any system."""

_REAL_PAPER = replace(
    _REAL,
    real_samples=1_000_000,
    episodes=334,
    # Twice as many updates, of five times as many steps each: λ can take its time.
    multiplier=MultiplierSettings(initial=1.0, factor=1.1, cap=20.0, margin=0.0, slack=None),
)

_REAL_SMOKE = replace(
    _REAL, real_samples=240, episodes=2, first=FirstSettings(samples=60, how="uniform"),
    update=ProximalSettings(epochs=2, minibatch=300),
)  # fmt: skip

_LATENT = Settings(
    real_samples=20_000,
    episodes=10,
    traces="latent",
    zeta="none",
    feasibility_iterations=0,
    first=FirstSettings(samples=600, how="held"),
    constraint=ConstraintSettings(kind="none"),
    # With so few candidates the true equations of Safe Pendulum are planned as well as with the paper's.
    planner=PlannerSettings(candidates=100, elites=12, iterations=5),
)
"""Planners on a latent model, on any system."""

_LATENT_DEFAULT = {
    "": _LATENT,
    # The cost is flat from where it hangs to where it begins to rise: 12 steps do not see that far.
    "safe-cart-pole-double-pendulum": replace(_LATENT, planner=replace(_LATENT.planner, horizon=20)),
}


def _latent_paper(samples: int) -> Settings:
    return replace(
        _LATENT,
        real_samples=samples,
        latent=LatentSettings(length=50, free_nats=3.0, rate=1e-3, max_gradient_norm=1000.0),
        planner=PlannerSettings(),
    )


_LATENT_PAPER = {"": _latent_paper(100_000), "safe-cart-pole-double-pendulum": _latent_paper(40_000)}

_LATENT_SMOKE = replace(
    _LATENT, real_samples=180, episodes=2, first=FirstSettings(samples=60, how="uniform"),
    latent=LatentSettings(deterministic=16, stochastic=4, hidden=16, updates=4, first_updates=4, batch=8),
    planner=PlannerSettings(candidates=20, elites=4, iterations=2, horizon=5),
)  # fmt: skip

_SMOKE = Settings(
    real_samples=120,
    episodes=1,
    feasibility_iterations=2,
    first=FirstSettings(samples=60),
    imagination=ImaginationSettings(iterations=2, last_iterations=2, trajectories=20, candidates=2),
    update=ProximalSettings(epochs=2, minibatch=300),
    model=GPSettings(fit=FitSettings(iterations=10)),
)
"""A few seconds: whether everything works, not whether it learns."""


def find_learner(name: str) -> Learner:
    """The row of that name."""
    if name not in LEARNERS:
        raise UserError(f"no learner is called '{name}'; {did_you_mean(name, LEARNERS)}")
    return LEARNERS[name]


def make_settings(task: str, learner: str | Learner = "samba", preset: str = "default") -> Settings:
    """The settings of a learner on the system of that name; those that a row rules are the row's."""
    row = find_learner(learner) if isinstance(learner, str) else learner
    second = "safety" if row.traces == "latent" else "information"
    if row.objectives not in (("cost",), ("cost", second)):
        raise UserError(f"a learner's objectives are {row.objectives}; it minimises cost, alone or with {second}")
    presets = {"default": _DEFAULT, "paper": _PAPER, "smoke": {"": _SMOKE}}
    if row.traces == "real":
        presets = {"default": {"": _REAL}, "paper": {"": _REAL_PAPER}, "smoke": {"": _REAL_SMOKE}}
    elif row.traces == "latent":
        presets = {"default": _LATENT_DEFAULT, "paper": _LATENT_PAPER, "smoke": {"": _LATENT_SMOKE}}
    if preset not in presets:
        raise UserError(f"no preset is called '{preset}'; {did_you_mean(preset, presets)}")
    of_system = presets[preset]
    base = of_system.get(task, of_system[""])
    shaped = row.traces != "latent" or "safety" in row.objectives
    return replace(
        base,
        traces=row.traces,
        rule=base.rule if row.update == "none" else row.update,
        zeta=base.zeta if "information" in row.objectives else "none",
        constraint=replace(base.constraint, kind=row.constraint),
        latent=base.latent if shaped else replace(base.latent, safety_weight=0.0),
    )


def make_agent(
    task: Task, settings: Settings, *, seed: int = 0, device: str = "cpu", log: Log | None = None
) -> AnyAgent:
    """An agent that learns the task as the settings say: `tell` it real traces, `ask` it for the next policy."""
    kind = PlanetAgent if settings.traces == "latent" else Agent
    return kind(task, settings, seed=seed, device=device, log=log)
