"""`GPDynamics`: a Gaussian-process model of a system, learned from few real transitions."""

from __future__ import annotations

import hashlib
import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, final

import torch
from torch import Tensor

from samba_rl.data.plain import from_plain, to_plain
from samba_rl.errors import UserError
from samba_rl.models.correlated import CorrelatedHyper, CorrelatedPosterior
from samba_rl.models.exact import ExactPosterior
from samba_rl.models.likelihood import FitSettings, Hyper, default_hyper, fit_hyper
from samba_rl.models.sparse import SparsePosterior, accuracy
from samba_rl.types import State, Transitions

if TYPE_CHECKING:
    from samba_rl.tasks.task import Task

CORRELATED_LIMIT = 12_000
"""Numbers (points times outputs) that a model with correlated outputs holds: their covariances take a gigabyte."""
Posterior = ExactPosterior | SparsePosterior | CorrelatedPosterior


@dataclass(frozen=True)
class GPSettings:
    """What kind of model is learned, and how."""

    fit: FitSettings = field(default_factory=FitSettings)
    outputs: Literal["independent", "correlated"] = "independent"
    """One GP for each state dimension, or a linear model of coregionalisation over all."""
    sparse_above: int = 3000
    """With more points than this an inducing-point model takes over (independent outputs)."""
    inducing: int = 500
    """How many inducing points it has."""
    latent: int = 2
    """How many latent functions the correlated model mixes."""
    precision: Literal["float64", "float32"] = "float64"
    """Of predictions. float32 is about twice as fast on a CPU, but good only where the noise is not tiny: the report
    says what it costs."""


class Prediction(NamedTuple):
    """What the model says of B queries, in the units of the state."""

    mean: Tensor
    """Expected changes of the predicted state dimensions [B, D]."""
    variance: Tensor
    """Of the function itself, without noise [B, D]."""
    zeta: Tensor | None
    """ζ_LOO [B], if it was asked for."""


@dataclass(frozen=True)
class Normaliser:
    """Shifts and scales columns to mean zero and standard deviation one; a constant column is only shifted."""

    mean: Tensor
    scale: Tensor

    @staticmethod
    def of(values: Tensor) -> Normaliser:
        """From values [n, k]."""
        mean = values.mean(0)
        scale = (values - mean).square().mean(0).sqrt()
        negligible = scale <= 1e-12 * (1 + mean.abs())
        return Normaliser(mean, torch.where(negligible, torch.ones_like(scale), scale))

    def __call__(self, values: Tensor) -> Tensor:
        """Normalised values, [..., k]."""
        return (values - self.mean) / self.scale

    def to(self, target: Tensor) -> Normaliser:
        """The same on the device and in the dtype of `target`."""
        return Normaliser(self.mean.to(target), self.scale.to(target))


@dataclass(frozen=True)
class FitReport:
    """How a fit went and how far the model can be trusted: comes with every fit."""

    points: int
    kind: str
    seconds: float
    evaluations: int
    likelihood: tuple[float, ...]
    """Log marginal likelihood per fitted point, by output (one number for correlated outputs)."""
    failed: tuple[str, ...]
    """What went wrong; then the last good hyper-parameters were kept."""
    jitter: float
    condition: float
    """Condition number of the covariance matrix (NaN where it is not formed)."""
    z_std: tuple[float, ...]
    """Standard deviation of the leave-one-out z-scores, by output: 1 is calibrated, above is overconfident."""
    coverage50: tuple[float, ...]
    """Share of targets inside their leave-one-out 50 % interval, by output."""
    coverage95: tuple[float, ...]
    precision_error: float
    """Largest error, at up to 64 of the points, of a predictive standard deviation (with noise) that the precision
    causes, as a share."""
    sparse_error: float
    """Root-mean-square error of an inducing-point mean against the exact one, in predictive standard deviations, both
    on at most 2000 evenly spread points, as many as an exact model can be had for (NaN: the model is exact)."""

    def describe(self) -> str:
        """In words, on a few lines."""
        lines = [
            f"{self.kind} GP on {self.points} points, fitted in {self.seconds:.2f} s ({self.evaluations} evaluations)",
            "log likelihood per point " + ", ".join(f"{value:.3f}" for value in self.likelihood),
            "leave-one-out: z-score deviation " + ", ".join(f"{value:.2f}" for value in self.z_std),
            "  in the 50 % interval " + ", ".join(f"{value:.0%}" for value in self.coverage50),
            "  in the 95 % interval " + ", ".join(f"{value:.0%}" for value in self.coverage95),
            f"condition number {self.condition:.1e}, jitter {self.jitter:g}",
            f"standard deviations off by at most {self.precision_error:.1e} of themselves through the precision",
        ]
        if math.isfinite(self.sparse_error):
            lines.append(
                f"inducing points: mean off by {self.sparse_error:.3f} predictive standard deviations (rms) from an "
                "exact model, on a part of the points"
            )
        return "\n".join(lines + [f"KEPT the last good hyper-parameters: {problem}" for problem in self.failed])


@final
class GPDynamics:
    """Predicts by how much a step changes the state, with what uncertainty, from `Task.model_inputs`."""

    def __init__(self, task: Task, settings: GPSettings | None = None, device: str | torch.device = "cpu") -> None:
        self.task = task
        self.settings = settings or GPSettings()
        self.report: FitReport | None = None
        self._device = torch.device(device)
        self._hyper: Hyper | CorrelatedHyper | None = None
        self._posterior: Posterior | None = None

    def __len__(self) -> int:
        return 0 if self._posterior is None else len(self._posterior)

    @property
    def posterior(self) -> Posterior:
        """The posterior in normalised units, in full precision."""
        if self._posterior is None:
            raise UserError(f"the model of {self.task.name} has no data yet; call fit(transitions) first")
        return self._posterior

    @property
    def noise(self) -> Tensor:
        """Noise variances of a step, in the units of the state [D]."""
        return (self.posterior.hyper.noise * self._targets.scale.square()).to(self.dtype)

    @property
    def dtype(self) -> torch.dtype:
        """The precision of predictions."""
        return torch.float64 if self.settings.precision == "float64" else torch.float32

    def fit(self, transitions: Transitions) -> FitReport:
        """Learn from all these transitions: normalise, fit hyper-parameters (from the last ones on), condition."""
        begin = time.perf_counter()
        raw_inputs, raw_targets = self._columns(transitions)
        of_inputs, of_targets = Normaliser.of(raw_inputs), Normaliser.of(raw_targets)
        inputs, targets = of_inputs(raw_inputs), of_targets(raw_targets)
        hyper, likelihood, evaluations, failed = self._fit_hyper(inputs, targets)
        posterior, problem = self._replace_posterior(inputs, targets, hyper)
        if problem:
            assert self._hyper is not None
            hyper, failed = self._hyper, (*failed, problem)
        # Only now, when nothing more can go wrong: a fit that fails leaves the model as it was.
        self._hyper, self._inputs, self._targets = hyper, of_inputs, of_targets
        self._set(posterior)
        self.report = self._judge(time.perf_counter() - begin, likelihood, evaluations, failed)
        return self.report

    def _replace_posterior(
        self, inputs: Tensor, targets: Tensor, hyper: Hyper | CorrelatedHyper
    ) -> tuple[Posterior, str]:
        """The posterior, and why it has the last hyper-parameters instead of these, if it does.

        The last posterior goes first: two of them may take more memory than there is. If everything fails it is made
        again.
        """
        last = None if self._posterior is None else (self._posterior.inputs, self._posterior.targets, self._hyper)
        if last is None:
            return self._condition(inputs, targets, hyper), ""
        self._let_go()
        try:
            try:
                return self._condition(inputs, targets, hyper), ""
            except UserError as error:
                return self._condition(inputs, targets, self._hyper), str(error)
        except BaseException:
            self._set(self._condition(*last))
            raise

    def add(self, transitions: Transitions) -> None:
        """Take in more transitions without fitting hyper-parameters or normalisation anew, in O(n²m)."""
        old = self.posterior
        raw_inputs, raw_targets = self._columns(transitions)
        inputs, targets = self._inputs(raw_inputs), self._targets(raw_targets)
        if self._kind(len(old) + len(inputs), targets.shape[1]) is type(old):
            self._set(old.extend(inputs, targets))
        else:
            everything = torch.cat([old.inputs, inputs]), torch.cat([old.targets, targets])
            self._set(self._condition(*everything, self._hyper))

    def state_dict(self) -> State:
        """What the fit found: hyper-parameters, normalisation and report; empty where there was none.

        The factor of the covariance is not in it: it follows from these and the data, and for thousands of points it
        would take gigabytes. Its fingerprint is, so that whoever rebuilds it knows whether it is the same to the bit.
        """
        if self._hyper is None or self.report is None:
            return {}
        return {
            "hyper": {name: value.clone() for name, value in vars(self._hyper).items()},
            "inputs": dict(vars(self._inputs)),
            "targets": dict(vars(self._targets)),
            "points": len(self),
            "report": to_plain(self.report),
            "fingerprint": self._fingerprint(),
        }

    def load_state_dict(self, state: State, transitions: Transitions) -> bool:
        """Become the model that gave this state, which was fitted to the first of these transitions.

        Gives whether it is the same to the last bit: on another machine, or with another number of threads, the factor
        differs in its last digits.
        """
        if not state:
            return True
        points = int(state["points"])
        if not 0 < points <= len(transitions):
            raise UserError(f"the model was fitted to {points} transitions, but there are {len(transitions)}")
        first = Transitions(**{name: value[:points] for name, value in vars(transitions).items()})
        raw_inputs, raw_targets = self._columns(first)
        kind = CorrelatedHyper if self.settings.outputs == "correlated" else Hyper
        self._hyper = kind(**state["hyper"]).to(raw_inputs)
        self._inputs = Normaliser(**state["inputs"]).to(raw_inputs)
        self._targets = Normaliser(**state["targets"]).to(raw_inputs)
        self._set(self._condition(self._inputs(raw_inputs), self._targets(raw_targets), self._hyper))
        self.report = from_plain(FitReport, state["report"], "report of the fit")
        return bool(self._fingerprint() == state["fingerprint"])

    def _fingerprint(self) -> str:
        """Of what the factor led to: every number of it has a part in these."""
        posterior, digest = self.posterior, hashlib.sha256()
        for value in (posterior.loo_scores(), posterior.predict(posterior.inputs[:8], loo=True).zeta):
            assert value is not None
            digest.update(value.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def predict(self, queries: Tensor, loo: bool = False) -> Prediction:
        """Mean and variance of the change of state, and ζ_LOO if asked for, at raw model inputs [B, ni]: one pass."""
        normalised = self.normalised(queries)
        mean, variance, zeta = self._rollout_posterior.predict(normalised, loo)
        return Prediction(self.denormalised(mean), variance * self.target_scale.square(), zeta)

    def surprise(self, transitions: Transitions) -> float:
        """How far transitions that the model has not seen lie from its predictions: root mean square, in predictive
        standard deviations with noise. 1 is calibrated, above is overconfident."""
        inputs, targets = self._columns(transitions)
        mean, variance, _ = self.predict(inputs)
        scores = (targets - mean.double()).square() / (variance + self.noise).double()
        return math.sqrt(float(scores.mean()))

    def bipartitions(self, count: int, seed: int) -> list[tuple[Posterior, Posterior]]:
        """`count` random splits of the data in halves, each half with a posterior; kept until the data change."""
        if len(self) < 2:
            raise UserError(f"the model of {self.task.name} has {len(self)} points; a bi-partition needs at least 2")
        if (count, seed) not in self._splits:
            generator = torch.Generator().manual_seed(seed)
            inputs, targets = self.posterior.inputs, self.posterior.targets
            pairs = []
            for _ in range(count):
                order = torch.randperm(len(inputs), generator=generator).to(inputs.device)
                halves = order[: len(order) // 2], order[len(order) // 2 :]
                first, second = (self._condition(inputs[half], targets[half], self._hyper) for half in halves)
                pairs.append((first.cast(self.dtype), second.cast(self.dtype)))
            self._splits[count, seed] = pairs
        return self._splits[count, seed]

    def normalised(self, queries: Tensor) -> Tensor:
        """Raw model inputs [B, ni] as the posterior sees them."""
        _ = self.posterior  # says what is missing if there are no data yet
        return self._rollout_inputs(queries.to(self.dtype))

    def denormalised(self, changes: Tensor) -> Tensor:
        """Normalised changes of state [B, D] in the units of the state."""
        return changes * self._rollout_targets.scale + self._rollout_targets.mean

    @property
    def target_scale(self) -> Tensor:
        """The standard deviations of the changes of state in the data [D]."""
        return self._rollout_targets.scale

    def _columns(self, transitions: Transitions) -> tuple[Tensor, Tensor]:
        """Model inputs [n, ni] and changes of state [n, D] in float64, if they are finite."""
        if len(transitions) == 0:
            raise UserError(f"the model of {self.task.name} was given no transitions; give at least one")
        x, u, x_next = (t.to(self._device, torch.float64) for t in (transitions.x, transitions.u, transitions.x_next))
        predicted = list(self.task.predicted)
        inputs, targets = self.task.model_inputs(x, u), (x_next - x)[:, predicted]
        for what, values in (("model inputs", inputs), ("changes of state", targets)):
            bad = ~torch.isfinite(values)
            if bool(bad.any()):
                row, column = (int(i) for i in bad.nonzero()[0])
                raise UserError(
                    f"{self.task.name}: transition {row} of {len(values)} has {values[row, column].item()} in column "
                    f"{column} of its {what}; leave such transitions out"
                )
        return inputs, targets

    def _fit_hyper(
        self, inputs: Tensor, targets: Tensor
    ) -> tuple[Hyper | CorrelatedHyper, tuple[float, ...], int, tuple[str, ...]]:
        """Hyper-parameters, likelihood, evaluations, failures."""
        if self.settings.outputs == "correlated":
            # Here, because it brings in GPyTorch, which independent outputs do without.
            from samba_rl.models.correlated_fit import fit_correlated

            start = self._hyper if isinstance(self._hyper, CorrelatedHyper) else None
            joint = fit_correlated(inputs, targets, start, self.settings.fit, self.settings.latent)
            return joint.hyper, (joint.likelihood,), 0, (joint.failed,) if joint.failed else ()
        first = self._hyper if isinstance(self._hyper, Hyper) else default_hyper(inputs.shape[1], targets.shape[1])
        result = fit_hyper(inputs, targets, first, self.settings.fit)
        return result.hyper, result.likelihood, result.evaluations, result.failed

    def _kind(self, points: int, outputs: int) -> type[Posterior]:
        """The kind of posterior that the settings and the number of points call for."""
        if self.settings.outputs == "independent":
            return SparsePosterior if points > self.settings.sparse_above else ExactPosterior
        if points * outputs > CORRELATED_LIMIT:
            raise UserError(
                f"a model with correlated outputs holds at most {CORRELATED_LIMIT // outputs} points of {outputs} "
                f"outputs, not {points}; use outputs='independent'"
            )
        return CorrelatedPosterior

    def _condition(self, inputs: Tensor, targets: Tensor, hyper: Hyper | CorrelatedHyper | None) -> Posterior:
        """The posterior given normalised inputs [n, ni] and targets [n, D]."""
        kind = self._kind(*targets.shape)
        posterior: Posterior
        if isinstance(hyper, CorrelatedHyper):
            posterior = CorrelatedPosterior.condition(inputs, targets, hyper)
        elif kind is SparsePosterior:
            assert hyper is not None
            posterior = SparsePosterior.condition(inputs, targets, hyper, self.settings.inducing)
        else:
            assert hyper is not None
            posterior = ExactPosterior.condition(inputs, targets, hyper)
        if not bool(posterior.loo_scores().isfinite().all()):
            raise UserError(f"the model of {self.task.name} on {len(inputs)} points holds numbers that are not finite")
        return posterior

    def _set(self, posterior: Posterior) -> None:
        self._posterior = posterior
        self._rollout_posterior = posterior.cast(self.dtype)
        like = posterior.inputs.new_empty(0, dtype=self.dtype)
        self._rollout_inputs, self._rollout_targets = self._inputs.to(like), self._targets.to(like)
        self._splits: dict[tuple[int, int], list[tuple[Posterior, Posterior]]] = {}

    def _let_go(self) -> None:
        """Forget the posterior and all that was derived from it."""
        self._posterior = None
        del self._rollout_posterior
        self._splits = {}

    def _judge(
        self, seconds: float, likelihood: tuple[float, ...], evaluations: int, failed: tuple[str, ...]
    ) -> FitReport:
        """Calibration, conditioning and precision of the posterior that was just set."""
        posterior = self.posterior
        scores = posterior.loo_scores()
        inside50, inside95 = scores.abs() < 0.67449, scores.abs() < 1.95996
        probes = posterior.inputs[torch.linspace(0, len(posterior) - 1, min(64, len(posterior))).long()]
        return FitReport(
            points=len(posterior),
            kind=type(posterior).__name__.removesuffix("Posterior").lower(),
            seconds=seconds,
            evaluations=evaluations,
            likelihood=likelihood,
            failed=failed,
            jitter=posterior.jitter,
            condition=posterior.condition_number() if isinstance(posterior, ExactPosterior) else math.nan,
            z_std=tuple(scores.square().mean(0).sqrt().tolist()),
            coverage50=tuple(inside50.double().mean(0).tolist()),
            coverage95=tuple(inside95.double().mean(0).tolist()),
            precision_error=self._precision_error(probes),
            sparse_error=self._sparse_error(probes),
        )

    def _precision_error(self, probes: Tensor) -> float:
        """How far the predictive standard deviations in the precision of rollouts are off, as a share."""
        noise = self.posterior.hyper.noise
        full = (self.posterior.predict(probes).variance + noise).sqrt()
        rough = (self._rollout_posterior.predict(probes.to(self.dtype)).variance.double() + noise).sqrt()
        return float(((rough - full) / full).abs().max())

    def _sparse_error(self, probes: Tensor) -> float:
        """How far the inducing-point model is from the exact one that has as many points as is exact."""
        posterior = self.posterior
        if not isinstance(posterior, SparsePosterior):
            return math.nan
        chosen = torch.linspace(0, len(posterior) - 1, min(self.settings.sparse_above, 2000)).long()
        inputs, targets = posterior.inputs[chosen], posterior.targets[chosen]
        small = SparsePosterior.condition(inputs, targets, posterior.hyper, self.settings.inducing)
        exact = ExactPosterior.condition(inputs, targets, posterior.hyper)
        return float(accuracy(small, exact, probes).mean_rms)
