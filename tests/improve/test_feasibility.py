"""The search for the least value of a constraint, and runs whose limit lies below it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Generator, Tensor

from samba_rl.agents.first import FirstSettings
from samba_rl.agents.policy_gradient import Agent
from samba_rl.agents.settings import ModelBasedSettings
from samba_rl.events import Event, ImprovementReport, Notice
from samba_rl.improve.advantages import AdvantageSettings
from samba_rl.improve.constraints import Constraint, CVaR, Expectation
from samba_rl.improve.feasibility import Safest
from samba_rl.improve.limits import MultiplierSettings
from samba_rl.improve.multipliers import Multiplier
from samba_rl.improve.policies import GaussianPolicy, PolicySettings
from samba_rl.improve.results import Estimate
from samba_rl.improve.updates.proximal import ProximalSettings
from samba_rl.improve.updates.rules import UpdateSettings
from samba_rl.improve.updates.trust_region import TrustRegionSettings
from samba_rl.learners import LEARNERS
from samba_rl.presets import make_settings
from samba_rl.types import Policy, Traces
from tests.line import Line, spend
from tests.threads import one_thread
from tests.traces import on_a_line, seeded, simple_policy

FAST = UpdateSettings(
    ProximalSettings(epochs=10, minibatch=10**6, policy_rate=0.02, critic_rate=0.02, kl_target=None),
    TrustRegionSettings(),
)
SMALL = AdvantageSettings(hidden=(8,))
FRESH = 2000


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


# The least value ------------------------------------------------------------------------------------------------------


class Starts:
    """A source of traces of a point that starts within ±1, moves by at most a half and should not be above 0.

    Full speed downward is best: the first step reaches x - 0.5 and those after it are safe. So the least cost of an
    episode is (x - 0.5)⁺, and no policy can do better.
    """

    def __init__(self) -> None:
        self.asked: list[Traces] = []

    def __call__(self, policy: Policy, n: int, generator: Generator) -> Traces:
        self.asked.append(on_a_line(policy, n, 3, seed=5))
        return self.asked[-1]


def down(observation: Tensor, generator: Generator) -> Tensor:
    return -torch.ones_like(observation)


def safest(constraint: Constraint) -> tuple[Safest, GaussianPolicy]:
    policy = simple_policy(hidden=(8,), std=0.2, mean_bound=1.1)
    return Safest(policy, constraint, SMALL, FAST, seeded(0), FRESH), policy


@pytest.mark.parametrize(
    ("constraint", "in_theory"),
    [
        (CVaR(name="place", limit=0.0, alpha=0.9), 0.4),  # the worst tenth starts in 0.8..1
        (CVaR(name="place", limit=0.0, alpha=0.75), 0.25),  # the worst quarter in 0.5..1
        (Expectation(name="place", limit=0.0), 0.0625),
    ],
    ids=["worst tenth", "worst quarter", "mean"],
)
def test_the_least_value_of_a_tiny_system_is_found(constraint: Constraint, in_theory: float) -> None:
    source = Starts()
    looking, _ = safest(constraint)
    found = looking.least(source, 40, 400, seeded(1)).value
    exact = constraint.measure(source(down, FRESH, seeded(0)))
    assert exact == pytest.approx(in_theory, rel=0.2)  # up to the luck of the starts
    assert exact <= found < 1.1 * exact + 0.02
    assert constraint.measure(source.asked[0]) > 1.5 * found  # the first policy was far from it
    assert len(source.asked) == 40 + 1 + 1


def test_it_stops_as_soon_as_the_limit_is_met() -> None:
    constraint = CVaR(name="place", limit=0.6, alpha=0.9)
    source = Starts()
    looking, _ = safest(constraint)
    found = looking.least(source, 40, 200, seeded(1)).value
    *values, fresh = [constraint.measure(traces) for traces in source.asked]
    assert 2 < len(values) < 40 and values[-1] <= 0.6 < min(values[:-1])
    assert found == pytest.approx(fresh) and len(source.asked[-1].cost) == FRESH


def test_where_the_limit_is_met_at_once_the_policy_stays_as_it_is() -> None:
    source = Starts()
    looking, policy = safest(CVaR(name="place", limit=100.0))
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    assert looking.least(source, 40, 50, seeded(1)).value < 100 and len(source.asked) == 2
    assert all(torch.equal(value, before[name]) for name, value in policy.state_dict().items())


def test_it_gives_the_least_that_it_saw_and_goes_on_from_there() -> None:
    constraint = CVaR(name="place", limit=0.0)
    source = Starts()
    looking, _ = safest(constraint)
    first = looking.least(source, 15, 200, seeded(1))
    assert first.value == pytest.approx(constraint.measure(source.asked[-1])) and 0 < first.error < 0.1
    again = looking.least(source, 1, 200, seeded(2)).value
    assert again < 0.5 * (constraint.measure(source.asked[0]) + first.value)


def test_a_search_continues_from_its_state() -> None:
    constraint = CVaR(name="place", limit=0.0)
    (one, _), (other, _) = safest(constraint), safest(constraint)
    one.least(Starts(), 5, 100, seeded(1))
    other.load_state_dict(one.state_dict())
    assert one.least(Starts(), 5, 100, seeded(2)) == other.least(Starts(), 5, 100, seeded(2))


def test_a_search_undoes_an_update_that_is_not_finite() -> None:
    constraint = CVaR(name="place", limit=0.0)
    looking, policy = safest(constraint)
    before = {name: value.clone() for name, value in policy.state_dict().items()}

    def broken(policy: Policy, n: int, generator: Generator) -> Traces:
        traces = on_a_line(policy, n, 3, seed=5)
        return replace(traces, observation=traces.observation * torch.nan)

    assert looking.least(broken, 3, 50, seeded(1)).value > 0
    assert all(torch.equal(value, before[name]) for name, value in policy.state_dict().items())


# In a run -------------------------------------------------------------------------------------------------------------

SMOKE = make_settings("line", "sppilco", "smoke")
assert isinstance(SMOKE, ModelBasedSettings)
QUICK = replace(
    SMOKE,
    real_samples=50,
    feasibility_iterations=2,
    first=FirstSettings(samples=20, how="uniform"),
    policy=PolicySettings(hidden=(8,)),
    imagination=replace(SMOKE.imagination, confirm="off"),
)
"""The policy is finished after the last trial."""
INFEASIBLE = (
    "CVaR 0.9 of the edge cost of a trajectory: the limit 0.75 looks infeasible; the safest policy found on the model "
    "so far reaches 5."
)
AFTER_ALL = "CVaR 0.9 of the edge cost of a trajectory: the limit 0.75 can be met after all"


@pytest.fixture
def _everywhere_unsafe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every step cost a half, whatever the policy does: 5 per episode."""
    monkeypatch.setattr(Line, "safety", lambda self, x, u=None: torch.full_like(x, 0.5))


def run(
    settings: ModelBasedSettings = QUICK, task: Line | None = None
) -> tuple[Agent, list[str], list[ImprovementReport]]:
    events: list[Event] = []
    agent = Agent(task or Line(), LEARNERS["sppilco"], settings)
    agent.log = events.append
    spend(agent)
    texts = [event.text for event in events if isinstance(event, Notice)]
    notices = [text for text in texts if "infeasible" in text or "after all" in text]
    return agent, notices, [event for event in events if isinstance(event, ImprovementReport)]


@pytest.mark.usefixtures("_everywhere_unsafe")
def test_an_infeasible_limit_is_said_once_and_relaxed() -> None:
    agent, notices, improvements = run()
    assert notices == [
        f"{INFEASIBLE} The target is 6.5 instead. Raise the limit, or change where the system starts",
    ]
    (multiplier,) = agent.multipliers.each
    assert multiplier.infeasible and multiplier.least == pytest.approx(5)
    assert multiplier.target == pytest.approx(1.3 * 5)
    # The first search follows the first improvement, so the target changes from the second one on.
    targets: dict[int, set[float]] = {iteration: set() for iteration in range(4)}
    for each in improvements:
        targets[each.iteration].add(round(each.targets[0], 6))
        assert each.values == pytest.approx((5.0,))
    assert targets == {0: {0.75}, 1: {6.5}, 2: {6.5}, 3: {6.5}}
    # λ falls once the target is within reach.
    first = [each.multipliers[0] for each in improvements if each.iteration == 0]
    assert first[-1] >= first[0] > QUICK.multiplier.initial and improvements[-1].multipliers[0] <= first[-1]


@pytest.mark.usefixtures("_everywhere_unsafe")
@pytest.mark.parametrize(("doubt", "stands"), [(2.5, False), (2.6, True)])
def test_a_limit_stands_while_some_function_of_the_model_allows_it(
    doubt: float, stands: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The value is 5 everywhere. 1.645 standard deviations below it lie 0.89 and 0.72; the limit is 0.75.
    monkeypatch.setattr("samba_rl.improve.feasibility.between_functions", lambda constraint, traces: doubt)
    agent, notices, improvements = run()
    (multiplier,) = agent.multipliers.each
    assert (multiplier.least is None) is stands is (not notices)
    assert {each.targets for each in improvements} == ({(0.75,)} if stands else {(0.75,), (multiplier.target,)})


@pytest.mark.usefixtures("_everywhere_unsafe")
def test_without_slack_an_infeasible_limit_is_said_and_pursued() -> None:
    agent, notices, improvements = run(replace(QUICK, multiplier=MultiplierSettings(slack=None)))
    assert notices == [f"{INFEASIBLE} Raise the limit, or change where the system starts"]
    (multiplier,) = agent.multipliers.each
    assert multiplier.infeasible and multiplier.least == pytest.approx(5)
    assert {each.targets for each in improvements} == {(multiplier.target,)} and multiplier.target == 0.75


@pytest.mark.usefixtures("_everywhere_unsafe")
def test_what_is_not_to_be_estimated_is_not_said() -> None:
    agent, notices, _ = run(replace(QUICK, feasibility_iterations=0))
    assert not notices and agent.multipliers.each[0].least is None and not agent.multipliers.each[0].infeasible
    assert agent.clock.by_phase()["feasibility"] == 0


class Estimates:
    """A replacement of `Safest.least` that returns these values in turn and records the iterations asked for."""

    def __init__(self, *values: float) -> None:
        self.values = list(values)
        self.iterations: list[int] = []

    def __call__(self, source: object, iterations: int, trajectories: int, generator: Generator) -> Estimate:
        self.iterations.append(iterations)
        return Estimate(self.values.pop(0), 0.0)


def say(patch: pytest.MonkeyPatch, *values: float) -> Estimates:
    estimates = Estimates(*values)
    patch.setattr(Safest, "least", lambda self, *arguments: estimates(*arguments))
    patch.setattr(Multiplier, "note_least", lambda self, estimate: None)  # the gates estimate them afresh
    return estimates


@pytest.mark.usefixtures("_everywhere_unsafe")
def test_when_the_estimate_falls_below_the_limit_that_is_said_too(monkeypatch: pytest.MonkeyPatch) -> None:
    # Searches after the first two improvements and at the end; in between the limit counts as feasible.
    estimates = say(monkeypatch, 5.0, 0.7, 0.3)
    agent, notices, improvements = run()
    assert [notice.split(" Raise")[0] for notice in notices] == [
        f"{INFEASIBLE} The target is 6.5 instead.",
        AFTER_ALL,
    ]
    assert not estimates.values and not agent.multipliers.each[0].infeasible and agent.multipliers.each[0].least == 0.3
    first = {each.iteration: each.targets[0] for each in reversed(improvements)}
    assert first == {0: 0.75, 1: 6.5, 2: 0.75, 3: 0.75} and agent.multipliers.each[0].target == 0.75


@pytest.mark.usefixtures("_everywhere_unsafe")
def test_a_limit_that_was_met_after_all_can_be_lost_again(monkeypatch: pytest.MonkeyPatch) -> None:
    say(monkeypatch, 5.0, 0.3, 4.0, 4.5)
    agent, notices, _ = run()
    assert [("infeasible" in each, "after all" in each) for each in notices] == [
        (True, False),
        (False, True),
        (True, False),
    ]
    assert "reaches 4. The target is 5.2 instead." in notices[-1] and agent.multipliers.each[0].infeasible


@pytest.mark.usefixtures("_everywhere_unsafe")
def test_what_the_policy_itself_reached_is_an_estimate_too(monkeypatch: pytest.MonkeyPatch) -> None:
    say(monkeypatch, *[9.0] * 6)
    agent, notices, _ = run()
    assert agent.multipliers.each[0].least == pytest.approx(5) and len(notices) == 1


@pytest.mark.usefixtures("_everywhere_unsafe")
def test_the_first_and_the_last_look_are_whole_and_those_between_a_quarter(monkeypatch: pytest.MonkeyPatch) -> None:
    estimates = say(monkeypatch, *[5.0] * 6)
    run(replace(QUICK, feasibility_iterations=20))
    # Beside the second, halfway, a whole one starts afresh; beside the last, one that starts from the policy.
    assert estimates.iterations == [20, 5, 20, 5, 20, 20]


@pytest.mark.usefixtures("_everywhere_unsafe")
@pytest.mark.parametrize(("afresh", "least"), [(4.0, 4.0), (4.9, 4.5)])
def test_a_search_that_is_stuck_gives_way_to_a_fresh_one(
    afresh: float, least: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(monkeypatch, 4.8, 4.5, afresh, 4.9, 4.9, 4.9)
    _, _, improvements = run()
    targets = {each.iteration: each.targets[0] for each in improvements}
    assert targets[2] == pytest.approx(1.3 * least)


@pytest.mark.usefixtures("_everywhere_unsafe")
def test_the_last_iterations_pursue_what_the_last_search_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second search at the end starts from the policy, which may know a way that the first does not."""
    started = []
    monkeypatch.setattr(Safest, "start_from", lambda self, policy: started.append(policy))
    say(monkeypatch, 4.8, 4.8, 4.8, 4.8, 4.8, 4.0)
    agent, _, improvements = run()
    assert started == [agent.improver.policy]
    assert {each.targets[0] for each in improvements if each.iteration == 3} == {1.3 * 4.0}


@pytest.mark.usefixtures("_everywhere_unsafe")
def test_a_policy_that_is_finished_before_the_last_trial_pursues_it_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last look, in full and from the policy, is before the last trial."""
    settings = replace(QUICK, feasibility_iterations=20, real_samples=60)
    settings = replace(settings, imagination=replace(settings.imagination, confirm="on", starts=0))
    estimates = say(monkeypatch, 4.8, 4.8, 4.8, 4.6, 4.0)
    _, _, improvements = run(settings)
    assert estimates.iterations == [20, 5, 5, 20, 20] and not estimates.values
    last = max(each.iteration for each in improvements)
    assert {each.targets[0] for each in improvements if each.iteration == last} == {1.3 * 4.0}


def test_a_limit_that_is_kept_is_looked_into_at_the_end_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Line, "safety", lambda self, x, u=None: torch.full_like(x, 0.05))
    estimates = say(monkeypatch, 0.4)
    agent, notices, _ = run(replace(QUICK, feasibility_iterations=20))
    assert estimates.iterations == [20] and not notices and agent.multipliers.each[0].least == 0.4


def test_each_constraint_has_its_own_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    def two(self: Line, x: Tensor, u: Tensor | None = None) -> Tensor:
        return torch.cat([torch.full_like(x, 0.05), torch.full_like(x, 0.5)], dim=-1)

    monkeypatch.setattr(Line, "safety", two)
    agent, (notice,), _ = run(task=Line(constraints=("edge", "wall")))
    assert "CVaR 0.9 of the wall cost" in notice
    edge, wall = agent.multipliers.each
    assert edge.least == pytest.approx(0.5) and not edge.infeasible
    assert wall.least == pytest.approx(5.0) and wall.infeasible
