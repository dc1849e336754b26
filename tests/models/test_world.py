"""Imagined episodes."""

from typing import Literal

import pytest
import torch
from torch import Generator, Tensor

from samba_rl import UniformPolicy, UserError, rollout
from samba_rl.models.gp import GPDynamics
from samba_rl.models.settings import GPSettings
from samba_rl.models.world import ModelWorld
from samba_rl.models.zeta import Entropy, LeaveOneOut
from tests.models.test_gp import QUICK, TASK, real

RANDOM = UniformPolicy((-2.0,), (2.0,))


@pytest.fixture(scope="module")
def model() -> GPDynamics:
    model = GPDynamics(TASK)
    model.fit(real(150))
    return model


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def still(observation: Tensor, generator: Generator) -> Tensor:
    return torch.zeros(len(observation), 1, dtype=observation.dtype)


@pytest.mark.parametrize("draw", ["marginals", "functions"])
def test_imagined_episodes_resemble_real_ones(model: GPDynamics, draw: str) -> None:
    imagined = rollout(ModelWorld(model, draw=draw), RANDOM, 300, generator=seeded())  # type: ignore[arg-type]
    truth = rollout(TASK.world(), RANDOM, 300, generator=seeded(1))
    assert imagined.x.shape == truth.x.shape and imagined.zeta is None
    assert float(imagined.returns.mean()) == pytest.approx(float(truth.returns.mean()), rel=0.1)
    assert float(imagined.x[..., 1].abs().max()) <= 8  # the task's own limit
    # Costs are the task's own functions of imagined states.
    on = imagined.active[:, 3]
    assert torch.allclose(imagined.safety[on, 3], TASK.safety(imagined.x[on, 4]))


def test_marginals_have_the_models_moments(model: GPDynamics) -> None:
    x = TASK.start(1, seeded(5)).expand(20_000, 2)
    u = torch.full((20_000, 1), 0.7, dtype=torch.float64)
    world = ModelWorld(model)
    world.reset(20_000, seeded(6), x=x)
    change = world.step(x, u).x - x
    expected = model.predict(TASK.model_inputs(x[:1], u[:1]))
    deviation = (expected.variance[0] + model.noise).sqrt()
    assert ((change.mean(0) - expected.mean[0]) / deviation).abs().max() < 0.03
    assert torch.allclose(change.std(0), deviation, rtol=0.03)
    silent = ModelWorld(model, noise=False)
    silent.reset(20_000, seeded(6), x=x)
    assert torch.allclose((silent.step(x, u).x - x).std(0), expected.variance[0].sqrt(), rtol=0.03)


def test_an_episode_follows_one_function(model: GPDynamics) -> None:
    x = TASK.start(5, seeded(1))
    u = torch.ones(5, 1, dtype=torch.float64)
    world = ModelWorld(model, draw="functions", noise=False)
    world.reset(5, seeded(3), x=x)
    first, again = world.step(x, u).x, world.step(x, u).x
    assert torch.equal(first, again)
    world.reset(5, seeded(4), x=x)
    assert not torch.equal(first, world.step(x, u).x)


def test_zeta_is_measured_at_every_step(model: GPDynamics) -> None:
    traces = rollout(ModelWorld(model, zeta=LeaveOneOut()), RANDOM, 20, 5, generator=seeded())
    assert traces.zeta is not None and traces.zeta.shape == (20, 5)
    expected = model.predict(TASK.model_inputs(traces.x[:, 2], traces.u[:, 2]), loo=True).zeta
    assert expected is not None and torch.allclose(traces.zeta[:, 2], expected * traces.active[:, 2])
    other = rollout(ModelWorld(model, zeta=Entropy()), RANDOM, 20, 5, generator=seeded())
    _, entropy = Entropy().predict(model, TASK.model_inputs(other.x[:, 1], other.u[:, 1]))
    assert other.zeta is not None and torch.allclose(other.zeta[:, 1], entropy)


@pytest.mark.parametrize("draw", ["marginals", "functions"])
def test_extreme_states_stay_finite(model: GPDynamics, draw: str) -> None:
    world = ModelWorld(model, draw=draw, zeta=LeaveOneOut())  # type: ignore[arg-type]
    x = torch.tensor([[1e9, 8.0], [-1e12, -8.0], [0.0, 0.0]], dtype=torch.float64)
    world.reset(3, seeded(), x=x)
    for _ in range(50):
        step = world.step(x, torch.full((3, 1), 2.0, dtype=torch.float64))
        x = step.x
        for value in (x, *step.charges[:2], step.zeta):
            assert value is not None and bool(torch.isfinite(value).all())


def test_seeds_repeat(model: GPDynamics) -> None:
    first, again, other = (rollout(ModelWorld(model), RANDOM, 5, generator=seeded(seed)) for seed in (3, 3, 4))
    assert torch.equal(first.x, again.x) and not torch.equal(first.x, other.x)


@pytest.mark.parametrize("draw", ["marginals", "functions"])
def test_episodes_start_only_in_the_given_states(
    model: GPDynamics, draw: Literal["marginals", "functions"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(TASK), "start", lambda *_, **__: pytest.fail("the task's own start must not be used"))
    starts = torch.tensor([[0.1, 0.0], [-2.0, 1.0], [3.0, -4.0]], dtype=torch.float64)
    world = ModelWorld(model, draw=draw, starts=starts)
    x = world.reset(300, seeded())
    which = (x[:, None] == starts).all(-1)
    assert x.shape == (300, 2) and which.sum(1).tolist() == [1] * 300
    assert int(which.sum(0).min()) > 60  # roughly as often as the others
    assert torch.equal(rollout(world, RANDOM, 300, 2, generator=seeded()).x[:, 0], x)
    assert not torch.equal(world.reset(300, seeded(1)), x)
    # One state is enough, and an explicit start takes precedence.
    assert torch.equal(ModelWorld(model, starts=starts[:1]).reset(4, seeded()), starts[:1].expand(4, 2))
    assert torch.equal(world.reset(3, seeded(), x=starts + 1), starts + 1)


def test_start_states_are_in_the_models_precision() -> None:
    rough = GPDynamics(TASK, GPSettings(fit=QUICK, precision="float32"))
    rough.fit(real(30))
    starts = torch.tensor([[0.1, 0.2]], dtype=torch.float64)
    x = ModelWorld(rough, starts=starts).reset(2, seeded())
    assert x.dtype == torch.float32 and torch.equal(x, starts.float().expand(2, 2))


def test_unsupported_requests_are_rejected(model: GPDynamics) -> None:
    world = ModelWorld(model)
    with pytest.raises(UserError, match="all start together"):
        world.reset(2, seeded(), slots=torch.tensor([0, 1]))
    with pytest.raises(UserError, match="an imagined episode cannot be rendered"):
        world.render(torch.zeros(2), None, 0, 64)
    sparse = GPDynamics(TASK, GPSettings(fit=QUICK, sparse_above=20, inducing=10))
    sparse.fit(real(40))
    with pytest.raises(UserError, match=r"Use draw='marginals'"):
        ModelWorld(sparse, draw="functions").reset(2, seeded())
    assert float(rollout(ModelWorld(sparse), still, 3, generator=seeded()).returns.mean()) < 0
