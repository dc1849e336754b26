"""The `paper` preset: its numbers against the paper's tables, and a run in which nothing of ours is on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from samba_rl.agents.first import FirstSettings
from samba_rl.agents.settings import ModelBasedSettings, ModelFreeSettings, PolicyGradientSettings, Settings
from samba_rl.improve.feasibility import Safest
from samba_rl.improve.step import Improver
from samba_rl.improve.updates.batch import Advantages, Batch, UpdateReport
from samba_rl.improve.updates.proximal import ProximalUpdate
from samba_rl.learners import LEARNERS
from samba_rl.models.zeta import LeaveOneOut
from samba_rl.planet.settings import PlanetSettings
from samba_rl.presets import find_row, make_settings
from samba_rl.tasks import TASKS
from tests.agents.agents import agent_of, improvements, notices, real
from tests.line import Line, spend
from tests.threads import one_thread

ON_A_MODEL, WITHOUT, PLANNERS = (
    ("samba", "sppilco", "ppilco"),
    ("ppo", "sppo", "trpo", "strpo", "cpo"),
    ("planet", "planet-rs"),
)

TABLE = """
N samples | 30 | 30 | 300
N init samples | 30 | 30 | 1000
Optimizer | FullBatchLBFGS | FullBatchLBFGS | FullBatchLBFGS
Predict delta states | True | True | True
Normalize states | True | True | True
GP model | Exact | Exact | Exact
Objective function | Exact Marginal Log Likelihood | Exact Marginal Log Likelihood | Exact Marginal Log Likelihood
kernel | RBF | RBF | RBF
CG tolerance | 0.00001 | 0.00001 | 0.00001
Max preconditioner size | 200 | 30 | 150
Max cg iterations | 15000 | 15000 | 15000
Optimization iterations | 300 | 300 | 100
Learning rate | 0.1 | 0.1 | 0.0001
N update epochs | 80 | 80 | 80
Mini batch size | 30000 | 30000 | 90000
N neurons | 32 | 32 | 32
Policy learning rate | 3e-4 | 3e-4 | 3e-4
Value function learning rate | 1e-3 | 1e-3 | 1e-3
Penalty learning rate | 5e-2 | 5e-2 | 5e-2
Clipping | 0.2 | 0.2 | 0.2
Max gradiant norm | 0.5 | 0.5 | 1.0
Gamma | 0.99 | 0.95 | 0.99
Lambda | 0.97 | 0.97 | 0.95
Value function tragets | Monte Carlo | Monte Carlo | Monte Carlo
Value function loss fn | Squared loss | Squared loss | Clipped loss
CVaR cost limit | 0.025 | 0.025 | 0.0166666667
CVaR risk | α ∈ (0.5, 1.0) | α ∈ (0.5, 1.0) | α ∈ (0.5, 1.0)
Max trajectory length | 30 | 30 | 30
N training epochs | 100 | 100 | 100
N epoch samples | 30000 | 30000 | 90000
"""
"""The paper's table of hyper-parameters, with its spelling; the columns are `TASKS`."""

SAMPLES = """
trpo | 1000 | 1000 | 1000
ppo | 1000 | 1000 | 1000
planet | 100 | 40 | 100
ppilco | 2 | 6 | 5
planet-rs | 100 | 40 | 100
cpo | 1000 | 1000 | 1000
strpo | 1000 | 1000 | 1000
sppo | 1000 | 1000 | 1000
sppilco | 1.8 | 6 | 5
samba | 1.6 | 5 | 5
"""
"""Learning samples of Table 1, in thousands; PlaNet w RS diverged on Fetch and has those of PlaNet there."""


def rows_of(text: str) -> dict[str, list[str]]:
    rows = [[part.strip() for part in line.split("|")] for line in text.strip().splitlines()]
    return {name: values for name, *values in rows}


ROWS = rows_of(TABLE)

Read = Callable[[Any], Any]
"""Reads the value of a row from settings."""

MODEL: dict[str, Read] = {
    "N samples": lambda s: 30 * s.episodes,
    "N init samples": lambda s: s.first.samples,
    "GP model": lambda s: "Exact" if s.model.sparse_above > s.real_samples else "sparse",
    "Objective function": lambda s: (
        "Exact Marginal Log Likelihood"
        if s.model.fit.points is None and s.model.fit.max_snr == s.model.fit.lengthscale_prior[1] == math.inf
        else "penalised"
    ),
    "Optimization iterations": lambda s: s.model.fit.iterations,
    "N training epochs": lambda s: s.imagination.iterations,
    "N epoch samples": lambda s: 30 * s.imagination.trajectories,
}
AGENT: dict[str, Read] = {
    "N update epochs": lambda s: s.update.epochs,
    "Mini batch size": lambda s: s.update.minibatch,
    "Policy learning rate": lambda s: s.update.policy_rate,
    "Value function learning rate": lambda s: s.update.critic_rate,
    "Penalty learning rate": lambda s: s.multiplier.rate,
    "Clipping": lambda s: s.update.clip,
    "Max gradiant norm": lambda s: s.update.max_gradient_norm,
    "Gamma": lambda s: s.advantage.gamma,
    "Lambda": lambda s: s.advantage.lam,
    "Value function loss fn": lambda s: f"{s.update.critic_loss.capitalize()} loss",
    "CVaR cost limit": lambda s: s.constraint.limit,
}
FREE: dict[str, Read] = {"N epoch samples": lambda s: 30 * s.episodes}
OTHERS = {"N neurons", "CVaR risk", "Max trajectory length", "Value function tragets"}
"""Rows with a test of their own."""
NOT_SETTINGS = {"Predict delta states", "Normalize states", "kernel"}
"""Rows that say what every model does; tests/models/test_gp.py holds it to them."""
ABSENT = {"Optimizer", "CG tolerance", "Max preconditioner size", "Max cg iterations", "Learning rate"}
"""Rows without a counterpart, which docs/paper.md explains."""


def check(rows: dict[str, Read], settings: Settings, column: int, where: str) -> None:
    for name, read in rows.items():
        expected, value = ROWS[name][column], read(settings)
        if isinstance(value, str):
            assert value == expected, (where, name)
        else:
            assert value == pytest.approx(float(expected), rel=1e-9), (where, name)


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("column", range(3), ids=list(TASKS))
def test_every_learner_has_its_column_of_the_papers_tables(learner: str, column: int) -> None:
    task = list(TASKS)[column]
    settings, where = make_settings(task, learner, "paper"), f"{learner} on {task}"
    assert settings.real_samples == round(1000 * float(rows_of(SAMPLES)[learner][column])), where
    if isinstance(settings, PlanetSettings):
        assert learner in PLANNERS
        return
    assert isinstance(settings, PolicyGradientSettings)
    check(AGENT, settings, column, where)
    assert settings.policy.hidden == settings.advantage.hidden == (int(ROWS["N neurons"][column]),) * 2
    assert 0.5 < settings.constraint.alpha < 1 and settings.constraint.per == "step"
    assert TASKS[task].horizon == int(ROWS["Max trajectory length"][column])
    if isinstance(settings, ModelBasedSettings):
        assert learner in ON_A_MODEL
        check(MODEL, settings, column, where)
        assert settings.imagination.last_iterations == settings.imagination.iterations
    else:
        assert learner in WITHOUT
        check(FREE, settings, column, where)


def test_no_row_of_the_table_is_left_out() -> None:
    groups = [set(MODEL), set(AGENT), OTHERS, NOT_SETTINGS, ABSENT]
    assert set().union(*groups) == set(ROWS) and sum(map(len, groups)) == len(ROWS) and set(FREE) <= set(MODEL)
    page = Path(__file__).parent.parent.joinpath("docs", "paper.md").read_text("utf-8").lower()
    for name in ROWS:
        assert name.lower().replace("gradiant", "gradient").replace("tragets", "targets") in page, name


def test_planet_has_the_numbers_of_its_own_paper() -> None:
    for task in TASKS:
        settings = make_settings(task, "planet", "paper")
        assert isinstance(settings, PlanetSettings) and settings.episodes == 1 and settings.first.samples == 5 * 30
        planner, latent = settings.planner, settings.latent
        assert (planner.horizon, planner.iterations, planner.candidates, planner.elites) == (12, 10, 1000, 100)
        assert planner.noise == 0.3 and not planner.warm_start
        assert (latent.deterministic, latent.stochastic, latent.hidden) == (200, 30, 200)
        assert (latent.batch, latent.length, latent.updates, latent.first_updates) == (50, 50, 100, 100)
        assert (latent.rate, latent.last_rate, latent.free_nats, latent.max_gradient_norm) == (1e-3, 1, 3, 1000)


@pytest.mark.parametrize("learner", [*ON_A_MODEL, *WITHOUT])
@pytest.mark.parametrize("task", TASKS)
def test_what_was_added_to_the_paper_is_off(task: str, learner: str) -> None:
    settings = make_settings(task, learner, "paper")
    assert isinstance(settings, PolicyGradientSettings)
    update, multiplier, policy, advantage = settings.update, settings.multiplier, settings.policy, settings.advantage
    assert update.kl_target is None and update.kl_stop is None and not update.standardise and update.entropy == 0
    assert multiplier.schedule == "dual-ascent" and multiplier.excess == "absolute" and multiplier.slack is None
    assert (multiplier.margin, multiplier.floor, multiplier.cap) == (0, 0, math.inf)
    assert policy.mean_bound is None and policy.std_floor_first == policy.std_floor == 0 and policy.std == 1
    assert not advantage.time and not advantage.tail_critic and not advantage.normalise_targets
    assert settings.constraint.nu_floor == 0 and settings.constraint.gamma == advantage.gamma
    if isinstance(settings, ModelFreeSettings):
        assert settings.trust_region.fisher_samples is None
        return
    assert isinstance(settings, ModelBasedSettings)
    assert settings.feasibility_iterations == 0 and settings.shield == "off" and settings.first.how == "uniform"
    assert settings.imagination.candidates == 1 and settings.imagination.restart == "off"
    assert settings.imagination.draw == "marginals" and settings.model.calibration == "none"
    assert settings.weights.least_cost_weight is None and not settings.weights.spread
    assert [settings.weights.least_at(progress) for progress in (0.0, 0.5, 1.0)] == [0, 0, 0]


def test_samba_explores_by_leave_one_out() -> None:
    assert find_row("samba", "paper").zeta == LeaveOneOut()
    assert find_row("sppilco", "paper") == LEARNERS["sppilco"]


# A run ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


def reduced(learner: str = "samba") -> ModelBasedSettings:
    """Return the paper's settings with a small budget, small batches and larger steps."""
    settings = make_settings("line", learner, "paper")
    assert isinstance(settings, ModelBasedSettings)
    return replace(
        settings,
        real_samples=40,
        first=FirstSettings(samples=20, how="uniform"),
        imagination=replace(settings.imagination, iterations=4, last_iterations=4, trajectories=40),
        update=replace(settings.update, epochs=3, policy_rate=0.05),
    )


def shortest(policy: Any, advantages: Advantages) -> float:
    """Return λ in [0, 1] with the least |λ g₁ + (1 - λ) g₂|², by trisection; gradients by autograd."""
    gradients = []
    for each in advantages.objectives:
        policy.zero_grad()
        mean, std = policy.network(advantages.inputs), policy.log_std.exp()
        density = torch.distributions.Normal(mean, std).log_prob(advantages.raw).sum(-1)  # type: ignore[no-untyped-call]
        (density * each).mean().backward()
        gradients.append(torch.cat([p.grad.flatten().double() for p in policy.parameters()]))
    first, second = gradients
    low, high = 0.0, 1.0
    for _ in range(200):
        a, b = low + (high - low) / 3, high - (high - low) / 3
        lengths = [float((w * first + (1 - w) * second).square().sum()) for w in (a, b)]
        low, high = (low, b) if lengths[0] < lengths[1] else (a, high)
    return (low + high) / 2


def test_lambda_pi_is_the_min_norm_weight_of_raw_gradients_and_sums_what_the_policy_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected: list[float] = []
    judged: list[Advantages] = []
    batches: list[Batch] = []
    passes: list[int] = []
    min_norm, update = Improver.min_norm, ProximalUpdate.__call__

    def watched(self: Improver, advantages: Advantages, least: float) -> tuple[float, ...]:
        assert least == 0
        expected.append(shortest(self.policy, advantages))
        judged.append(advantages)
        return min_norm(self, advantages, least)

    def followed(self: ProximalUpdate, batch: Batch, generator: Generator) -> UpdateReport:
        batches.append(batch)
        report = update(self, batch, generator)
        passes.append(report.epochs)
        return report

    monkeypatch.setattr(Improver, "min_norm", watched)
    monkeypatch.setattr(ProximalUpdate, "__call__", followed)
    agent, events = agent_of(Line(goal=1.0), "samba", reduced())
    spend(agent)
    reports = improvements(events)
    assert len(reports) == 12 and passes == [3] * 12  # no pass is left out, whatever the divergence
    assert max(report.kl for report in reports) > 0.1
    for report, weight, advantages, batch in zip(reports, expected, judged, batches, strict=True):
        assert report.lambda_pi == pytest.approx(weight, abs=1e-5)
        assert advantages.tails.shape[0] == 1 and batch.multipliers == report.multipliers
        plain = weight * advantages.objectives[0] + (1 - weight) * advantages.objectives[1]
        assert torch.allclose(
            batch.lagrangian, plain + report.multipliers[0] * advantages.tails[0], rtol=1e-3, atol=1e-4
        )
    assert any(0 < weight < 1 for weight in expected) and max(expected) < 0.9


@pytest.mark.parametrize("learner", ["samba", "sppilco"])
def test_lambda_follows_dual_ascent_on_the_plain_excess(learner: str) -> None:
    agent, events = agent_of(Line(goal=1.0), learner, reduced(learner))
    spend(agent)
    value, large = 1.0, 0.0
    for report in improvements(events):
        (measured,) = report.values
        large = max(large, (measured - 0.025) / 0.025)
        value = max(0.0, value + 0.05 * (measured - 0.025))
        assert report.multipliers == pytest.approx((value,)) and report.targets == (0.025,)
    assert large > 1  # where the default would clip the excess


def test_nothing_searches_restarts_or_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Safest, "__init__", lambda *_, **__: pytest.fail("no search for a feasible policy"))
    agent, events = agent_of(Line(goal=1.0), "samba", reduced())
    agent.tell(real(2))
    agent.ask()
    monkeypatch.setattr(Line, "_cost", lambda self, x, u: torch.ones_like(x[:, 0]))
    agent.tell(real(1, seed=1))
    left: list[Tensor] = []
    update = ProximalUpdate.__call__

    def followed(self: ProximalUpdate, batch: Batch, generator: Generator) -> UpdateReport:
        report = update(self, batch, generator)
        left[:] = [p.detach().clone() for p in agent.improver.policy.parameters()]
        return report

    monkeypatch.setattr(ProximalUpdate, "__call__", followed)
    events.clear()
    before: list[Tensor] = [p.detach().clone() for p in agent.improver.policy.parameters()]
    agent._begin(last=False)
    _, said = agent.imagine()
    assert not said and not notices(events)
    assert all(torch.equal(a, b) for a, b in zip(before, agent.improver.policy.parameters(), strict=True))
    # The policy of the last control iteration is handed over.
    agent.ask(last=True)
    assert all(torch.equal(a, b) for a, b in zip(left, agent.policy.parameters(), strict=True))
    assert not [text for text in notices(events) if "stranded" in text or "infeasible" in text or "place" in text]
