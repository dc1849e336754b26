"""Speed of the GP model, for one step of 1000 queries and for the fit, compared with GPyTorch and TorchRL.

Ours, GPyTorch (exact posterior by Cholesky) and TorchRL (GPWorldModel) compute mean and variance; the ratios
`..._with_zeta` are those of ours with ζ_LOO beside them. The floor is the bare matrix product with the whole inverse.
Contestants take turns, and the ratios are medians over the turns.

With `--device cuda`, whole rollouts are timed instead, eager and captured as a CUDA graph. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import Generator, Tensor

from samba_rl import SafePendulum, UniformPolicy, rollout
from samba_rl.models.exact import ExactPosterior
from samba_rl.models.gp import GPDynamics
from samba_rl.models.likelihood import FitSettings, Hyper, default_hyper, fit_hyper, negative_log_likelihood
from samba_rl.models.settings import GPSettings
from samba_rl.models.world import ModelWorld
from samba_rl.models.zeta import LeaveOneOut

warnings.filterwarnings("ignore")
QUERIES = 1000
NOISE = 1e-2


def milliseconds(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - begin)


def turns(contestants: dict[str, Callable[[], Any]], count: int) -> list[dict[str, float]]:
    """Time each contestant once per turn, after one turn to warm up."""
    return [{name: milliseconds(call) for name, call in contestants.items()} for _ in range(count + 1)][1:]


def median(rows: list[dict[str, float]], top: str, bottom: str | None = None) -> float:
    return statistics.median(row[top] / (row[bottom] if bottom else 1.0) for row in rows)


def problem(n: int, outputs: int, inputs: int = 4) -> tuple[Tensor, Tensor, Tensor, Hyper]:
    """Make inputs [n, ni], targets [n, D], queries [1000, ni] and hyper-parameters."""
    generator = Generator().manual_seed(n)
    x = torch.randn(n, inputs, generator=generator, dtype=torch.float64)
    mixing = torch.randn(inputs, outputs, generator=generator, dtype=torch.float64)
    y = (x @ mixing).sin() + NOISE**0.5 * torch.randn(n, outputs, generator=generator, dtype=torch.float64)
    queries = torch.randn(QUERIES, inputs, generator=generator, dtype=torch.float64)
    lengths = torch.full((outputs, inputs), 1.5, dtype=torch.float64)
    ones = torch.ones(outputs, dtype=torch.float64)
    return x, y, queries, Hyper(lengths, ones, NOISE * ones)


def gpytorch_model(x: Tensor, y: Tensor, hyper: Hyper) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """Return GPyTorch's exact GPs with the same hyper-parameters, as a function of queries."""
    import gpytorch

    outputs = y.shape[1]
    shape = torch.Size([outputs])

    class Model(gpytorch.models.ExactGP):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(
                x.expand(outputs, *x.shape), y.T, gpytorch.likelihoods.GaussianLikelihood(batch_shape=shape)
            )
            self.mean_module = gpytorch.means.ZeroMean(batch_shape=shape)
            base = gpytorch.kernels.RBFKernel(ard_num_dims=x.shape[1], batch_shape=shape)
            self.covar_module = gpytorch.kernels.ScaleKernel(base, batch_shape=shape)

        def forward(self, inputs: Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(inputs), self.covar_module(inputs))

    model = Model().double()
    model.covar_module.base_kernel.lengthscale = hyper.lengthscales[:, None]
    model.covar_module.outputscale = hyper.signal
    model.likelihood.noise = hyper.noise[:, None]
    model.eval()

    def predict(queries: Tensor) -> tuple[Tensor, Tensor]:
        exact = gpytorch.settings.fast_computations(False, False, False)
        with torch.no_grad(), exact, gpytorch.settings.max_cholesky_size(100_000):
            answer = model(queries.expand(outputs, *queries.shape))
            return answer.mean.T, answer.variance.T

    return predict


def pendulum(n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return observations [n, 3], actions [n, 1] and next observations [n, 3] of random episodes of Safe Pendulum."""
    task = SafePendulum()
    policy = UniformPolicy((-2.0,), (2.0,))
    steps = rollout(task.world(), policy, n // 25 + 2, generator=Generator().manual_seed(n)).transitions()
    return task.observe(steps.x)[:n].contiguous(), steps.u[:n], task.observe(steps.x_next)[:n].contiguous()


def torchrl_model(x: Tensor, u: Tensor, following: Tensor) -> tuple[Any, float]:
    """Fit TorchRL's GPWorldModel to transitions; return it and the seconds that took."""
    from tensordict import TensorDict
    from torchrl.modules import GPWorldModel

    model = GPWorldModel(obs_dim=x.shape[1], action_dim=u.shape[1])
    data = TensorDict({"observation": x, "action": u, "next": {"observation": following}}, batch_size=[len(x)])
    begin = time.perf_counter()
    model.fit(data)
    return model, time.perf_counter() - begin


def torchrl_predict(model: Any, x: Tensor, u: Tensor) -> Any:
    from tensordict import TensorDict

    keys = dict(zip(("action", "observation"), (model.in_keys[0], model.in_keys[3]), strict=True))
    data = TensorDict({}, batch_size=[len(x)])
    data.set(keys["observation"], x)
    data.set(keys["action"], u)
    with torch.no_grad():
        return model.deterministic_forward(data)


def torchrl_likelihood(model: Any, inputs: Tensor, targets: Tensor, x_scale: Tensor) -> float:
    """Compute our log likelihood per point at TorchRL's hyper-parameters, on normalised data, averaged over outputs."""
    total = 0.0
    for output, gp in enumerate(model.model_list.models):
        lengths = gp.covar_module.base_kernel.lengthscale.detach().flatten() / x_scale
        signal, noise = gp.covar_module.outputscale.detach().flatten(), gp.likelihood.noise.detach().flatten()
        theta = torch.cat([lengths, signal, noise]).double().log()
        total -= negative_log_likelihood(inputs, targets[:, output].contiguous(), theta)[0] / len(inputs)
    return total / targets.shape[1]


def predictions(count: int) -> tuple[dict[str, float], dict[str, Any]]:
    """Measure one step; return the ratios and the times."""
    ratios: dict[str, float] = {}
    table: dict[str, Any] = {}
    for n, outputs in ((300, 3), (1600, 3), (5000, 6)):
        x, y, queries, hyper = problem(n, outputs)
        ours = ExactPosterior.condition(x, y, hyper)
        single, queries32 = ours.cast(torch.float32), queries.float()
        assert ours.inverse is not None
        inverse, block = ours.inverse, torch.randn(outputs, QUERIES, n, dtype=torch.float64)
        inverse32, block32 = inverse.float(), block.float()
        contestants: dict[str, Callable[[], Any]] = {
            "ours": partial(ours.predict, queries),
            "ours, with ζ": partial(ours.predict, queries, loo=True),
            "ours, float32": partial(single.predict, queries32),
            "floor": partial(torch.matmul, block, inverse),
            "floor, float32": partial(torch.matmul, block32, inverse32),
        }
        if n < 5000:
            peer = gpytorch_model(x, y, hyper)
            contestants["GPyTorch"] = partial(peer, queries)
            mean, variance = peer(queries)
            mine = ours.predict(queries)
            worst = max(float((mean - mine.mean).abs().max()), float((variance - mine.variance).abs().max()))
            ratios[f"disagreement_with_gpytorch_n{n}"] = worst
        if n == 300:
            model, _ = torchrl_model(*pendulum(300))
            at, action, _ = pendulum(QUERIES)
            contestants["TorchRL"] = partial(torchrl_predict, model, at, action)
        rows = turns(contestants, count if n < 5000 else 2)
        table[f"n={n}, {outputs} outputs [ms]"] = {name: round(median(rows, name), 1) for name in contestants}
        if n == 1600:
            ratios["ratio_vs_gpytorch_n1600"] = median(rows, "GPyTorch", "ours")
            ratios["ratio_vs_gpytorch_n1600_with_zeta"] = median(rows, "GPyTorch", "ours, with ζ")
            ratios["ratio_vs_gpytorch_n1600_float32"] = median(rows, "GPyTorch", "ours, float32")
            ratios["zeta_over_variance_n1600"] = median(rows, "ours, with ζ", "ours")
            ratios["over_floor_n1600"] = median(rows, "ours", "floor")
            ratios["over_floor_n1600_float32"] = median(rows, "ours, float32", "floor, float32")
        if n == 300:
            ratios["ratio_vs_torchrl_n300"] = median(rows, "TorchRL", "ours")
            ratios["ratio_vs_torchrl_n300_with_zeta"] = median(rows, "TorchRL", "ours, with ζ")
            ratios["ratio_vs_torchrl_n300_float32"] = median(rows, "TorchRL", "ours, float32")
    return ratios, table


def fits() -> tuple[dict[str, float], dict[str, Any]]:
    """Measure cold and warm fits; return ratios of time and differences of likelihood to TorchRL, and the times."""
    ratios: dict[str, float] = {}
    table: dict[str, Any] = {}
    everything = FitSettings(points=None)
    for n in (300, 800, 1600):
        x, u, following = pendulum(n)
        raw, change = torch.cat([x, u], dim=1), following - x
        inputs = (raw - raw.mean(0)) / raw.std(0)
        targets = ((change - change.mean(0)) / change.std(0)).contiguous()
        cold = fit_hyper(inputs, targets, default_hyper(4, 3), everything)
        # Warm, as in a run: start from the fit to the data without the last episode.
        before = fit_hyper(inputs[:-30], targets[:-30].contiguous(), default_hyper(4, 3), everything)
        warm = fit_hyper(inputs, targets, before.hyper, everything)
        row: dict[str, Any] = {
            "cold": round(cold.seconds, 2),
            "warm": round(warm.seconds, 2),
            "likelihood, warm": round(statistics.mean(warm.likelihood), 3),
        }
        if n <= 800:
            model, seconds = torchrl_model(x, u, following)
            theirs = torchrl_likelihood(model, inputs, targets, raw.std(0))
            row |= {"TorchRL": round(seconds, 2), "likelihood, TorchRL": round(theirs, 3)}
            ratios[f"fit_ratio_vs_torchrl_n{n}"] = seconds / warm.seconds
            ratios[f"fit_ratio_cold_vs_torchrl_n{n}"] = seconds / cold.seconds
            ratios[f"likelihood_gain_n{n}"] = statistics.mean(warm.likelihood) - theirs
        table[f"fit, n={n} [s]"] = row
    return ratios, table


def device_rollouts(device: str, count: int) -> dict[str, Any]:
    """Time 30 steps of 1000 trajectories with ζ_LOO, eager and captured: milliseconds and transitions per second."""
    task, result = SafePendulum(), {}
    for n in (300, 1600):
        steps = rollout(
            task.world(), UniformPolicy((-2.0,), (2.0,)), n // 25 + 2, generator=Generator().manual_seed(0)
        ).transitions()
        chosen = type(steps)(*(getattr(steps, name)[:n] for name in steps.__dataclass_fields__))
        precisions: tuple[Literal["float64", "float32"], ...] = ("float64", "float32")
        for precision in precisions:
            settings = GPSettings(precision=precision, fit=FitSettings(noise_bounds=(1e-3, 1.0)))
            model = GPDynamics(task, settings, device=device)
            model.fit(chosen)
            world = ModelWorld(model, zeta=LeaveOneOut())
            generator = Generator(device=device).manual_seed(0)
            policy = UniformPolicy((-2.0,), (2.0,))

            def run(w: ModelWorld = world, p: UniformPolicy = policy, g: Generator = generator) -> Any:
                traces = rollout(w, p, QUERIES, 30, generator=g)
                torch.cuda.synchronize()
                return traces

            eager = turns({"eager": run}, count)
            graph = torch.cuda.CUDAGraph()
            graph.register_generator_state(generator)
            with torch.cuda.graph(graph):
                traces = rollout(world, policy, QUERIES, 30, generator=generator)

            def replay(g: Any = graph) -> None:
                g.replay()
                torch.cuda.synchronize()

            captured = turns({"captured": replay}, count)
            times = {"eager": median(eager, "eager"), "captured": median(captured, "captured")}
            rates = {f"{name}_transitions_per_s": 30 * QUERIES / (1e-3 * value) for name, value in times.items()}
            finite = bool(torch.isfinite(traces.x).all())
            result[f"n={n}, {precision}"] = {f"{name}_ms": value for name, value in times.items()} | rates
            print(f"n={n} {precision}: {times} finite={finite} return={float(traces.returns.mean()):.1f}", flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--turns", type=int, default=7, help="number of measurements of each contestant (default: %(default)s)"
    )
    parser.add_argument("--device", default="cpu", help="cpu, or cuda for rollouts on a GPU (default: %(default)s)")
    options = parser.parse_args()
    if options.device != "cpu":
        print(json.dumps(device_rollouts(options.device, options.turns)))
        return
    ratios, table = predictions(options.turns)
    fit_ratios, fit_table = fits()
    for name, row in (table | fit_table).items():
        print(f"{name:28s}" + ", ".join(f"{key} {value}" for key, value in row.items()))
    for name, value in (ratios | fit_ratios).items():
        print(f"{name:40s} {value:.3g}")
    print(json.dumps(ratios | fit_ratios))


if __name__ == "__main__":
    main()
