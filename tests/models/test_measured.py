"""Costs that are only measured, learned beside the dynamics."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Generator, Tensor

from samba_rl import GymTask, UniformPolicy, rollout
from samba_rl.models.gp import GPDynamics
from samba_rl.models.likelihood import FitSettings
from samba_rl.models.measured import Plausible, measured_costs, unknown
from samba_rl.models.settings import GPSettings
from samba_rl.models.world import ModelWorld
from samba_rl.types import Traces
from tests.tasks.own_envs import Drift, Goal, danger

TASK = GymTask("OwnDrift-v0")
RANDOM = UniformPolicy((-0.5,), (0.5,))


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def real(task: GymTask, episodes: int, seed: int = 0) -> Traces:
    return rollout(task.world(workers=0), RANDOM, episodes, generator=seeded(seed))


@pytest.fixture(scope="module")
def model() -> GPDynamics:
    model = GPDynamics(TASK)
    model.fit(real(TASK, 12).transitions())
    return model


def test_what_has_no_function_is_measured() -> None:
    steps = real(TASK, 2).transitions()
    assert TASK.measured == ("cost", "safety")
    assert torch.equal(measured_costs(TASK, steps), torch.cat([steps.cost[:, None], steps.safety], dim=1))
    assert GymTask("OwnDrift-v0", safety=danger).measured == ("cost",)
    known = GymTask("OwnDrift-v0", safety=danger, cost=lambda x, u: x[..., 0].abs())
    assert known.measured == () and measured_costs(known, steps).shape == (len(steps), 0)
    several = GymTask(Goal, horizon=4, constraints=("heat", "noise"))
    assert several.measured == ("cost", "heat", "noise")


def test_an_imagined_cost_stays_where_the_measured_ones_are() -> None:
    measured = torch.tensor([[0.0, -2.0, 0.0, 3.0], [1.0, 5.0, 0.0, 3.0]], dtype=torch.float64)
    plausible = Plausible.of(measured, torch.tensor([[0.2], [-0.2]], dtype=torch.float64).expand(2, 4))
    imagined = torch.tensor(
        [[-0.5, -9.0, 0.7, 2.0], [0.19, 0.1, -0.7, 9.0], [0.21, 9.0, 0.0, 3.0]], dtype=torch.float64
    )
    # At least zero, and zero below the error; anything; always the same zero; always the same three.
    expected = torch.tensor([[0.0, -9.0, 0.0, 3.0], [0.0, 0.1, 0.0, 3.0], [0.21, 9.0, 0.0, 3.0]], dtype=torch.float64)
    assert torch.equal(plausible(imagined), expected)


def test_imagined_costs_resemble_measured_ones(model: GPDynamics) -> None:
    imagined = rollout(
        ModelWorld(model, draw="functions", starts=TASK.start(40, seeded(7))), RANDOM, 400, generator=seeded()
    )
    truth = real(TASK, 400, seed=1)
    assert float(imagined.returns.mean()) == pytest.approx(float(truth.returns.mean()), rel=0.2)
    assert float(imagined.safety_costs.mean()) == pytest.approx(float(truth.safety_costs.mean()), rel=0.4)
    assert torch.equal(imagined.violation, imagined.safety > 0)
    position = imagined.x[:, 1:, 0]
    assert float((imagined.cost - position.abs()).abs().median()) < 0.05
    unsafe = [each.violation[..., 0].sum(1).double().mean() for each in (imagined, truth)]
    assert float(unsafe[0]) == pytest.approx(float(unsafe[1]), rel=0.3)
    inside = (position.abs() < 0.5) & imagined.active
    assert float(imagined.violation[inside].double().mean()) < 0.01


def test_a_function_takes_the_place_of_a_measurement() -> None:
    task = GymTask("OwnDrift-v0", safety=danger)
    model = GPDynamics(task)
    model.fit(real(task, 4).transitions())
    imagined = rollout(ModelWorld(model, starts=task.start(5, seeded())), RANDOM, 5, generator=seeded())
    on = imagined.active[:, 2]
    assert torch.equal(imagined.safety[on, 2, 0], danger(imagined.x[on, 3], imagined.u[on, 2]))


def test_little_is_known_of_costs_far_from_the_data(model: GPDynamics) -> None:
    """Imagined costs differ from one function of the posterior to the next, the more the less was measured."""

    def spread(position: float) -> Tensor:
        x = torch.tensor([[position, 0.0]], dtype=torch.float64).repeat(300, 1)
        world = ModelWorld(model, draw="functions")
        world.reset(300, seeded(), x=x)
        return world.step(x, torch.zeros(300, 1, dtype=torch.float64)).charges.cost.std()

    assert spread(6.0) > 10 * spread(0.3)


def test_a_cost_that_was_never_seen_is_imagined_as_zero_and_told() -> None:
    task = GymTask(lambda: Drift("safe"), horizon=10)
    model = GPDynamics(task)
    report = model.fit(real(task, 3).transitions())
    assert not report.failed and all(math.isfinite(each) for each in report.z_std)
    imagined = rollout(
        ModelWorld(model, draw="functions", starts=task.start(5, seeded())), RANDOM, 50, generator=seeded()
    )
    assert not bool(imagined.safety.any()) and not bool(imagined.violation.any()) and imagined.finite
    [sentence] = unknown(task, model.plausible, real(task, 3).transitions())
    assert sentence.startswith("the safety cost 'safety' was 0 at every step so far: the model knows of no danger")


@pytest.mark.parametrize(
    "settings",
    [GPSettings(sparse_above=100, inducing=100), GPSettings(outputs="correlated"), GPSettings(precision="float32")],
    ids=["sparse", "correlated", "float32"],
)
def test_every_kind_of_model_learns_measured_costs(settings: GPSettings) -> None:
    model = GPDynamics(TASK, replace(settings, fit=FitSettings(iterations=12)))
    model.fit(real(TASK, 8).transitions())
    imagined = rollout(ModelWorld(model, starts=TASK.start(40, seeded(7))), RANDOM, 200, generator=seeded())
    position = imagined.x[:, 1:, 0].abs()
    assert float((imagined.cost - position)[imagined.active].abs().median()) < 0.1
    inside = (position < 0.5) & imagined.active
    assert imagined.finite and float(imagined.safety[inside].mean()) < 0.06


def test_ends_that_only_the_system_knows_are_told(model: GPDynamics) -> None:
    steps = rollout(
        TASK.world(workers=0), lambda x, g: torch.full((len(x), 1), 0.5), 3, generator=seeded()
    ).transitions()
    [sentence] = unknown(TASK, model.plausible, steps)
    assert sentence.startswith("the system itself has ended 3 episodes, but imagined ones go on there")
    told = GymTask("OwnDrift-v0", done=lambda x: x[..., 0].abs() > 3)
    assert unknown(told, model.plausible, steps) == []
    assert unknown(TASK, model.plausible, real(TASK, 2).transitions()) == []


def test_a_restored_model_imagines_the_same_costs(model: GPDynamics) -> None:
    steps = real(TASK, 12).transitions()
    again = GPDynamics(TASK)
    assert again.load_state_dict(model.state_dict(), steps)
    for name in ("low", "high", "least"):
        assert torch.equal(getattr(again.plausible, name), getattr(model.plausible, name))
    first, second = (
        rollout(ModelWorld(each, starts=steps.x[:1]), RANDOM, 20, generator=seeded()) for each in (model, again)
    )
    assert torch.equal(first.cost, second.cost) and torch.equal(first.safety, second.safety)
