"""The model, from real transitions to predictions in the units of the state."""

import dataclasses
import math
import resource
from typing import Literal

import pytest
import torch
from torch import Generator, Tensor

from samba_rl import SafeCartPoleDoublePendulum, SafePendulum, Task, Transitions, UniformPolicy, UserError, rollout
from samba_rl.data.plain import from_plain, to_plain
from samba_rl.models import posterior
from samba_rl.models.calibration import conformal_factor, episode_scores
from samba_rl.models.fit_report import FitReport
from samba_rl.models.gp import GPDynamics
from samba_rl.models.likelihood import FitSettings
from samba_rl.models.pathwise import Functions
from samba_rl.models.settings import GPSettings
from samba_rl.models.zeta import Entropy
from tests.line import Line

TASK = SafePendulum()
QUICK = FitSettings(iterations=20, points=100)


def real(n: int, seed: int = 0, task: Task = TASK) -> Transitions:
    bounds = tuple(a.low for a in task.actions), tuple(a.high for a in task.actions)
    traces = rollout(task.world(), UniformPolicy(*bounds), n // 20 + 1, generator=Generator().manual_seed(seed))
    return take(traces.transitions(), slice(0, n))


def take(transitions: Transitions, rows: slice | Tensor) -> Transitions:
    return Transitions(*(getattr(transitions, f.name)[rows] for f in dataclasses.fields(Transitions)))


def queries(n: int, seed: int = 9) -> Tensor:
    fresh = real(n, seed)
    return TASK.model_inputs(fresh.x, fresh.u)


def test_it_learns_the_pendulum_from_a_hundred_steps() -> None:
    model = GPDynamics(TASK)
    report = model.fit(real(100))
    fresh = real(200, seed=5)
    prediction = model.predict(TASK.model_inputs(fresh.x, fresh.u))
    change = fresh.x_next - fresh.x
    assert prediction.mean.shape == (200, 2) and prediction.zeta is None
    explained = 1 - (prediction.mean - change).square().mean(0) / change.var(0)
    assert float(explained.min()) > 0.99
    z = (prediction.mean - change) / (prediction.variance + model.noise).sqrt()
    assert 0.3 < float(z.square().mean().sqrt()) < 2.5
    assert report.points == 100 and report.kind == "exact" and report.failed == () and len(model) == 100


def test_the_report_measures_calibration_and_conditioning() -> None:
    model = GPDynamics(TASK)
    report = model.fit(real(120))
    scores = episode_scores(model.posterior, real(120).episode)
    assert scores is not None and report.validation == "episode-out" and min(report.factor) >= 1
    assert report.z_std == pytest.approx((scores / model.factor).square().mean(0).sqrt().tolist())
    assert report.coverage95 == pytest.approx((scores.abs() < 1.95996 * model.factor).double().mean(0).tolist())
    assert all(0.2 < value <= 1 for value in report.coverage50) and report.condition > 1
    # The intervals are nested, and the fields of single levels are columns of the table.
    assert len(report.coverage) == 5 and torch.equal(
        torch.tensor(report.coverage).sort(0).values, torch.tensor(report.coverage)
    )
    assert (report.coverage[0], report.coverage[3]) == (report.coverage50, report.coverage95)
    assert report.precision_error == 0 and math.isnan(report.sparse_error)
    for words in ("exact GP on 120 points", "left out with their episode", "in 99%", "factor", "condition number"):
        assert words in report.describe()
    rough = GPDynamics(TASK, GPSettings(precision="float32", fit=FitSettings(noise_bounds=(1e-2, 1.0))))
    assert 0 < rough.fit(real(120)).precision_error < 0.05
    assert rough.predict(queries(5)).mean.dtype == torch.float32


def test_a_report_from_before_calibration_is_still_read() -> None:
    model = GPDynamics(TASK, GPSettings(fit=QUICK))
    plain = to_plain(model.fit(real(60)))
    for name in ("validation", "coverage", "factor"):
        del plain[name]
    old = from_plain(FitReport, plain, "report")
    assert old.validation == "leave-one-out" and old.coverage == old.factor == ()
    assert "left out one by one" in old.describe() and "in 95%" in old.describe()
    assert "in 99%" not in old.describe()


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_calibration_widens_every_prediction_and_nothing_else(precision: Literal["float64", "float32"]) -> None:
    plain = GPDynamics(TASK, GPSettings(fit=QUICK, calibration="none", precision=precision))
    wide = GPDynamics(TASK, GPSettings(fit=QUICK, precision=precision))
    data = real(90)
    data.x_next[::10] += 0.3  # a tail that no Gaussian noise has
    assert plain.fit(data).factor == (1.0, 1.0)
    scores = episode_scores(plain.posterior, data.episode)
    assert scores is not None
    factor = conformal_factor(plain.posterior.loo_scores(), scores)
    assert wide.fit(data).factor == tuple(factor.tolist()) and float(factor.min()) > 1.1
    near, calibrated = plain.predict(queries(20), loo=True), wide.predict(queries(20), loo=True)
    assert torch.equal(near.mean, calibrated.mean) and near.zeta is not None and calibrated.zeta is not None
    assert torch.equal(near.zeta, calibrated.zeta) and torch.equal(wide.factor, factor.to(wide.dtype))
    assert torch.allclose(calibrated.variance, near.variance * wide.factor.square(), rtol=1e-6)
    assert torch.allclose(wide.noise, plain.noise * wide.factor.square(), rtol=1e-6)
    # More data change neither the factor nor what it scales.
    for model in (plain, wide):
        model.add(real(20, seed=3))
    assert torch.equal(wide.factor, factor.to(wide.dtype))
    assert torch.allclose(
        wide.predict(queries(20)).variance, plain.predict(queries(20)).variance * wide.factor.square()
    )
    assert torch.allclose(Entropy().predict(wide, queries(5))[1], Entropy().predict(plain, queries(5))[1], rtol=1e-5)


def test_adding_equals_conditioning_afresh_with_the_same_hyper_parameters() -> None:
    data = real(90)
    model = GPDynamics(TASK, GPSettings(fit=QUICK))
    model.fit(take(data, slice(0, 50)))
    model.add(take(data, slice(50, 60)))
    model.add(take(data, slice(60, 90)))
    inputs = model.normalised(TASK.model_inputs(data.x, data.u))
    targets = (data.x_next - data.x - model.denormalised(inputs, torch.zeros(1, 2).double())) / model.target_scale
    afresh = type(model.posterior).condition(inputs, targets, model.posterior.hyper)  # type: ignore[arg-type]
    z = model.normalised(queries(60))
    grown, fresh = model.posterior.predict(z, loo=True), afresh.predict(z, loo=True)
    assert len(model) == 90 and grown.zeta is not None and fresh.zeta is not None
    assert torch.allclose(grown.mean, fresh.mean, rtol=0, atol=1e-8)
    assert torch.allclose(grown.variance, fresh.variance, rtol=0, atol=1e-8)


def moved(n: int, seed: int) -> Transitions:
    """Return steps of a point that falls back half-way, and moves by its action; the wind moves it a little."""
    generator = Generator().manual_seed(seed)
    x, u = (
        2 * torch.rand(n, 1, generator=generator).double() - 1,
        2 * torch.rand(n, 1, generator=generator).double() - 1,
    )
    none, index = torch.zeros(n).double(), torch.arange(n)
    never = torch.zeros(n, 1, dtype=torch.bool)
    return Transitions(
        x=x, u=u, x_next=0.5 * x + u + 0.001 * (3 * x).sin(), cost=none, safety=none[:, None], violation=never,
        terminated=never[:, 0], episode=index, step=torch.zeros_like(index),
    )  # fmt: skip


def test_a_linear_mean_carries_over_to_where_there_are_no_data() -> None:
    data, far = moved(40, 0), torch.tensor([[30.0, 1.0], [30.0, -1.0]]).double()
    constant, linear = (GPDynamics(Line(), GPSettings(mean=mean)) for mean in ("constant", "linear"))
    for model in (constant, linear):
        model.fit(data)
    errors = [float((model.predict(far).mean[:, 0] - far[:, 1] + 15).abs().max()) for model in (constant, linear)]
    assert errors[1] < 0.1 < 5 < errors[0]
    # Beside the data both are right.
    near = moved(20, 1)
    for model in (constant, linear):
        assert float((model.predict(torch.cat([near.x, near.u], 1)).mean - (near.x_next - near.x)).abs().max()) < 1e-3
    # Functions that are drawn from it, more data and a restored copy have the same line.
    functions = Functions.draw(linear, 500, 512, Generator().manual_seed(0))
    expected = linear.predict(far[:1])
    assert abs(float(functions(far[:1].expand(500, -1)).mean() - expected.mean)) < 0.2 * float(expected.variance.sqrt())
    restored = GPDynamics(Line(), GPSettings(mean="linear"))
    assert restored.load_state_dict(linear.state_dict(), data)
    assert torch.equal(restored.predict(far).mean, linear.predict(far).mean)
    linear.add(near)
    assert torch.allclose(linear.predict(far[:1]).mean, expected.mean, atol=0.2)


def test_a_second_fit_starts_from_the_first() -> None:
    model = GPDynamics(TASK)
    cold = model.fit(real(100))
    warm = model.fit(real(110))
    assert warm.evaluations < cold.evaluations


def test_surprise_is_the_rms_z_score_of_unseen_transitions() -> None:
    model = GPDynamics(TASK, GPSettings(fit=QUICK))
    with pytest.raises(UserError, match="has no data yet"):
        model.surprise(real(5))
    model.fit(real(60))
    fresh = real(4, seed=5)
    mean, variance, _ = model.predict(TASK.model_inputs(fresh.x, fresh.u))
    scores = [
        (float(fresh.x_next[i, d] - fresh.x[i, d]) - float(mean[i, d])) ** 2
        / (float(variance[i, d]) + float(model.noise[d]))
        for i in range(4)
        for d in range(2)
    ]
    assert model.surprise(fresh) == pytest.approx(math.sqrt(sum(scores) / 8))
    assert len(model) == 60  # measuring is not learning


def test_surprise_by_hand() -> None:
    model = GPDynamics(TASK, GPSettings(fit=QUICK))
    model.fit(real(60))
    fresh = real(4, seed=5)
    mean, variance, _ = model.predict(TASK.model_inputs(fresh.x, fresh.u))
    deviation = (variance + model.noise).sqrt()

    def off_by(deviations: list[list[float]]) -> float:
        to = fresh.x + mean + torch.tensor(deviations, dtype=torch.float64) * deviation
        return model.surprise(dataclasses.replace(fresh, x_next=to))

    assert off_by([[0.0, 0.0]]) == pytest.approx(0, abs=1e-6)
    assert off_by([[1.0, -1.0]]) == pytest.approx(1, rel=1e-6)
    assert off_by([[-3.0, 3.0]]) == pytest.approx(3, rel=1e-6)
    # All rows and dimensions count equally.
    assert off_by([[4.0, 0.0]]) == pytest.approx(math.sqrt(8), rel=1e-6)
    assert off_by([[0.0, 0.0], [0.0, 4.0], [0.0, 0.0], [0.0, 0.0]]) == pytest.approx(math.sqrt(2), rel=1e-6)


def test_surprise_detects_a_system_that_has_changed() -> None:
    model = GPDynamics(TASK)
    model.fit(real(100))
    heavier = dataclasses.replace(real(40, seed=5), u=-real(40, seed=5).u)
    assert model.surprise(real(40, seed=5)) < 3 < 10 < model.surprise(heavier)


@pytest.mark.parametrize("case", ["one", "duplicates", "still"])
def test_degenerate_data_can_be_fitted(case: str) -> None:
    data = real(30)
    if case == "one":
        data = take(data, slice(0, 1))
    elif case == "duplicates":
        data = take(data, torch.zeros(30, dtype=torch.long))
    else:
        data = dataclasses.replace(data, x_next=data.x)
    model = GPDynamics(TASK, GPSettings(fit=QUICK))
    model.fit(data)
    model.add(real(3, seed=2))
    prediction = model.predict(torch.cat([queries(20), 1e300 * torch.ones(1, 4).double()]), loo=True)
    for value in prediction:
        assert value is not None and bool(torch.isfinite(value).all())


def test_values_that_are_not_finite_are_rejected() -> None:
    data = real(10)
    data.x_next[4, 1] = math.nan
    model = GPDynamics(TASK)
    with pytest.raises(UserError, match="transition 4 of 10 has nan in column 1 of its changes of state"):
        model.fit(data)
    model.fit(real(10))
    with pytest.raises(UserError, match="transition 4 of 10 has nan"):
        model.add(data)
    assert len(model) == 10
    with pytest.raises(UserError, match="was given no transitions"):
        model.fit(take(data, slice(0, 0)))
    with pytest.raises(UserError, match="has no data yet; call fit"):
        GPDynamics(TASK).predict(queries(2))
    with pytest.raises(UserError, match="has no data yet; call fit"):
        GPDynamics(TASK).add(real(2))


def test_many_points_switch_to_the_inducing_point_model() -> None:
    settings = GPSettings(fit=QUICK, sparse_above=150, inducing=60)
    model = GPDynamics(TASK, settings)
    exact = GPDynamics(TASK, GPSettings(fit=QUICK))
    assert model.fit(real(140)).kind == "exact"
    model.add(take(real(200), slice(140, 200)))
    exact.fit(real(140))
    exact.add(take(real(200), slice(140, 200)))
    assert type(model.posterior).__name__ == "SparsePosterior" and len(model) == 200
    a, b = model.predict(queries(50), loo=True), exact.predict(queries(50), loo=True)
    deviation = (b.variance + exact.noise).sqrt()
    assert float(((a.mean - b.mean) / deviation).abs().median()) < 0.5
    report = model.fit(real(400))
    assert report.kind == "sparse" and 0 <= report.sparse_error < 1 and "inducing points" in report.describe()


def test_correlated_outputs() -> None:
    model = GPDynamics(TASK, GPSettings(outputs="correlated", fit=FitSettings(iterations=15, points=60)))
    assert model.fit(real(60)).kind == "correlated"
    model.add(real(10, seed=3))
    fresh = real(60, seed=5)
    prediction = model.predict(TASK.model_inputs(fresh.x, fresh.u), loo=True)
    change = fresh.x_next - fresh.x
    assert float((1 - (prediction.mean - change).square().mean(0) / change.var(0)).min()) > 0.9
    assert prediction.zeta is not None and float(prediction.zeta.min()) >= 0


def test_correlated_outputs_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posterior, "CORRELATED_LIMIT", 100)
    model = GPDynamics(TASK, GPSettings(outputs="correlated", fit=FitSettings(iterations=2, points=20)))
    model.fit(real(45))
    before = model.predict(queries(5)).mean
    for attempt in (lambda: model.fit(real(60)), lambda: model.add(real(15, seed=3))):
        with pytest.raises(UserError, match=r"at most 50 points of 2 outputs, not 60; use outputs='independent'"):
            attempt()
        # A failure changes nothing.
        assert len(model) == 45 and torch.equal(before, model.predict(queries(5)).mean)


@pytest.mark.slow
def test_fifty_thousand_transitions() -> None:
    model = GPDynamics(TASK)
    report = model.fit(real(50_000))
    assert report.points == len(model) == 50_000 and report.kind == "sparse" and report.failed == ()
    fresh = real(1000, seed=5)
    prediction = model.predict(TASK.model_inputs(fresh.x, fresh.u), loo=True)
    change = fresh.x_next - fresh.x
    assert float((1 - (prediction.mean - change).square().mean(0) / change.var(0)).min()) > 0.999
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 4 * 2**20  # kibibytes: below 4 GiB


@pytest.mark.parametrize(
    "settings",
    [
        GPSettings(fit=QUICK),
        GPSettings(fit=QUICK, precision="float32"),
        GPSettings(fit=QUICK, sparse_above=20, inducing=10),
        GPSettings(fit=FitSettings(iterations=5), outputs="correlated"),
    ],
    ids=["exact", "float32", "sparse", "correlated"],
)
def test_a_saved_model_is_restored_to_the_bit(settings: GPSettings) -> None:
    data, model, restored = real(60), GPDynamics(TASK, settings), GPDynamics(TASK, settings)
    assert model.state_dict() == {} and restored.load_state_dict({}, data)
    report = model.fit(take(data, slice(0, 40)))
    state = model.state_dict()
    # Transitions that were measured after the fit do not belong to it.
    assert restored.load_state_dict(state, data) and len(restored) == 40
    assert restored.report is not None and restored.report.describe() == report.describe()
    assert torch.equal(restored.factor, model.factor) and torch.equal(restored.noise, model.noise)
    for a, b in zip(restored.predict(queries(20), loo=True), model.predict(queries(20), loo=True), strict=True):
        assert a is not None and b is not None and torch.equal(a, b)
    assert not restored.load_state_dict(state | {"fingerprint": "0" * 64}, data)
    with pytest.raises(UserError, match="was fitted to 40 transitions, but there are 39; give at least those"):
        restored.load_state_dict(state, take(data, slice(0, 39)))


def test_six_outputs() -> None:
    task = SafeCartPoleDoublePendulum()
    model = GPDynamics(task, GPSettings(fit=QUICK))
    model.fit(real(80, task=task))
    fresh = real(20, seed=4, task=task)
    assert model.predict(task.model_inputs(fresh.x, fresh.u)).mean.shape == (20, 6)
