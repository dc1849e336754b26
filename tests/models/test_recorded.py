"""Recorded rollouts: points that fill a posterior up have no effect, and recordings follow a model that learns on."""

from __future__ import annotations

from typing import Literal

import pytest
import torch

from samba_rl.capture import Recorder
from samba_rl.improve.experts import MixturePolicy
from samba_rl.improve.policies import GaussianPolicy, PolicySettings
from samba_rl.models.exact import ExactPosterior
from samba_rl.models.gp import GPDynamics
from samba_rl.models.recorded import filled, recorded_rollout
from samba_rl.models.settings import GPSettings
from samba_rl.models.world import ModelWorld
from samba_rl.models.zeta import Entropy, LeaveOneOut, Zeta
from samba_rl.tasks.rollout import rollout
from samba_rl.types import Policy
from tests.capture.fakes import FakeGraphs
from tests.models.test_gp import QUICK, TASK, real
from tests.traces import seeded

CPU = torch.device("cpu")


def a_policy(seed: int) -> GaussianPolicy:
    scale = torch.zeros(3), torch.ones(3)
    return GaussianPolicy((-2.0,), (2.0,), *scale, PolicySettings(hidden=(8,)), seeded(seed))


@pytest.mark.parametrize("noise", [1e-6, 0.1], ids=["by the factor", "by the inverse"])
def test_points_that_fill_up_have_no_effect(noise: float) -> None:
    generator = seeded(0)
    inputs, targets = torch.randn(2, 70, 3, generator=generator, dtype=torch.float64)
    from samba_rl.models.likelihood import Hyper

    hyper = Hyper(torch.ones(3, 3), torch.ones(3), torch.full((3,), noise)).to(inputs)
    plain = ExactPosterior.condition(inputs, targets, hyper)
    assert (plain.inverse is None) == (noise < 1e-3)
    full = filled(plain, loo=True)
    assert len(full) == 128 and (full.inverse is None) == (plain.inverse is None)
    queries = torch.randn(9, 3, generator=generator, dtype=torch.float64)
    for given, expected in zip(full.predict(queries, loo=True), plain.predict(queries, loo=True), strict=True):
        assert given is not None and expected is not None and torch.allclose(given, expected, rtol=1e-9)
    for given, expected in zip(filled(plain, loo=False).predict(queries)[:2], plain.predict(queries)[:2], strict=True):
        assert torch.allclose(given, expected, rtol=1e-9)
    # The definition, in which each sum has only the real points.
    again = full.predict(torch.full((1, 3), 1e6, dtype=torch.float64), loo=True)
    assert float(again.mean.abs().max()) == 0 and again.zeta is not None and float(again.zeta) == 0


@pytest.mark.parametrize("draw", ["marginals", "functions"])
@pytest.mark.parametrize("zeta", [None, LeaveOneOut()], ids=["without ζ", "with ζ"])
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_recordings_agree_with_plain_rollouts_while_the_model_learns_on(
    draw: Literal["marginals", "functions"], zeta: Zeta | None, precision: Literal["float64", "float32"]
) -> None:
    graphs = FakeGraphs()
    recorder = Recorder(CPU, graphs)
    model = GPDynamics(TASK, GPSettings(fit=QUICK, precision=precision))
    plain, recorded = seeded(3), seeded(3)
    # Functions have features in single precision, and trajectories magnify what differs.
    digits = 2 if precision == "float32" else 4 if draw == "functions" else 7
    loose = 10.0**-digits
    for i, count in enumerate((70, 100, 120)):  # all filled up to 128
        model.fit(real(count))
        policy = a_policy(i)
        worlds = [ModelWorld(model, draw=draw, zeta=zeta, share=5) for _ in range(2)]
        expected = rollout(worlds[0], policy, 20, generator=plain)
        found = recorded_rollout(recorder, worlds[1], policy, 20, recorded)
        for name, value in vars(expected).items():
            given = getattr(found, name)
            if value is None:
                assert given is None
            else:
                assert given.dtype == value.dtype and given.shape == value.shape
                if precision == "float32" and name == "zeta":
                    continue  # a difference of large numbers
                if precision == "float32" and value.dim() > 1:
                    given, value = given[:, :3], value[:, :3]
                assert torch.allclose(given.double(), value.double(), rtol=loose, atol=loose), name
    assert (graphs.watched, graphs.recorded, graphs.replayed) == (1, 1, 2)
    assert torch.equal(plain.get_state(), recorded.get_state())


def test_noise_that_only_measurements_have_is_recorded_too() -> None:
    graphs = FakeGraphs()
    recorder = Recorder(CPU, graphs)
    model = GPDynamics(TASK, GPSettings(fit=QUICK, noise="split"))
    model.fit(real(90))
    model._share = torch.tensor([0.5, 0.3], dtype=torch.float64)
    plain, recorded = seeded(3), seeded(3)
    for _ in range(3):
        expected = rollout(ModelWorld(model), a_policy(0), 10, generator=plain)
        found = recorded_rollout(recorder, ModelWorld(model), a_policy(0), 10, recorded)
        assert torch.allclose(found.x, expected.x)
    assert graphs.recorded == 1


def test_what_has_a_memory_or_another_zeta_is_not_recorded() -> None:
    graphs = FakeGraphs()
    recorder = Recorder(CPU, graphs)
    model = GPDynamics(TASK, GPSettings(fit=QUICK))
    model.fit(real(60))
    settings = PolicySettings(hidden=(8,), experts=2)
    mixture = MixturePolicy((-2.0,), (2.0,), torch.zeros(3), torch.ones(3), settings, seeded(0), 1)
    cases: list[tuple[Policy, Zeta | None]] = [(mixture, None), (mixture.learning(), None), (a_policy(0), Entropy())]
    for policy, zeta in cases:
        expected = rollout(ModelWorld(model, zeta=zeta), policy, 5, generator=seeded(1))
        found = recorded_rollout(recorder, ModelWorld(model, zeta=zeta), policy, 5, seeded(1))
        assert torch.equal(found.x, expected.x)
    assert graphs.watched == 0


needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@needs_cuda
@pytest.mark.parametrize("draw", ["marginals", "functions"])
def test_a_gpu_agrees_with_itself_and_with_a_cpu(draw: Literal["marginals", "functions"]) -> None:
    cuda = torch.device("cuda")
    models = [GPDynamics(TASK, GPSettings(fit=QUICK), device) for device in ("cpu", "cuda")]
    for model in models:
        model.fit(real(100))
    queries = torch.randn(50, 4, generator=seeded(1), dtype=torch.float64)
    on_both = [model.predict(queries.to(model.posterior.z), loo=True) for model in models]
    for expected, given in zip(*on_both, strict=True):
        assert given is not None and expected is not None and torch.allclose(given.cpu(), expected, rtol=1e-4)
    recorder, policy = Recorder(cuda), a_policy(0).to(cuda)
    plain, recorded = (torch.Generator(cuda).manual_seed(3) for _ in range(2))
    for _ in range(3):
        expected_traces = rollout(ModelWorld(models[1], draw=draw, zeta=LeaveOneOut()), policy, 20, generator=plain)
        traces = recorded_rollout(recorder, ModelWorld(models[1], draw=draw, zeta=LeaveOneOut()), policy, 20, recorded)
        assert torch.allclose(traces.x, expected_traces.x, atol=1e-4)
    assert not recorder.refused
