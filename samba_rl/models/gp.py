"""`GPDynamics`: a Gaussian-process model of a system, learned from few real transitions."""

from __future__ import annotations

import hashlib
import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, final

import torch
from torch import Tensor

from samba_rl.data.plain import from_plain, to_plain
from samba_rl.errors import UserError
from samba_rl.models.calibration import conformal_factor, episode_scores
from samba_rl.models.correlated import CorrelatedHyper
from samba_rl.models.fit_report import FitReport, judge
from samba_rl.models.likelihood import Hyper
from samba_rl.models.measured import Plausible
from samba_rl.models.measurement import ImaginedNoise, share_of
from samba_rl.models.normalise import Normaliser, Trend, inputs_and_targets
from samba_rl.models.posterior import AnyHyper, Posterior, condition, fit_any_hyper, posterior_kind
from samba_rl.models.settings import GPSettings
from samba_rl.ranges import check
from samba_rl.types import State, Transitions

if TYPE_CHECKING:
    from samba_rl.tasks.task import Task


class Prediction(NamedTuple):
    """Predictions at B queries, in the units of the state and of measured costs."""

    mean: Tensor
    """Expected changes of the predicted state dimensions, then measured costs [B, D]."""
    variance: Tensor
    """Variances of the function, without noise, calibrated [B, D]."""
    zeta: Tensor | None
    """ζ_LOO [B]; None unless it was requested."""


@final
class GPDynamics:
    """Predicts from `Task.model_inputs` how a step changes the state, what it costs if that is only measured, and with
    what uncertainty."""

    def __init__(self, task: Task, settings: GPSettings | None = None, device: str | torch.device = "cpu") -> None:
        self.task = task
        self.settings = settings or GPSettings()
        check(self.settings, "model.")
        self.report: FitReport | None = None
        self._device = torch.device(device)
        self._latent = self.settings.latent if self.settings.outputs == "correlated" else None
        self._hyper: AnyHyper | None = None
        self._posterior: Posterior | None = None
        self._share: Tensor | None = None

    def __len__(self) -> int:
        return 0 if self._posterior is None else len(self._posterior)

    @property
    def posterior(self) -> Posterior:
        """Return the posterior, in normalised units and in full precision."""
        if self._posterior is None:
            raise UserError(f"the model of {self.task.name} has no data yet; call fit(transitions) first")
        return self._posterior

    @property
    def noise(self) -> Tensor:
        """Return the noise variances of a step, calibrated, in the units of the state [D]."""
        return (self.posterior.hyper.noise * (self._targets.scale * self._factor).square()).to(self.dtype)

    @property
    def factor(self) -> Tensor:
        """Return the factors by which calibration scales the predicted standard deviations [D]; 1 without it."""
        return self._factor.to(self.dtype)

    @property
    def imagined_noise(self) -> ImaginedNoise:
        """Return the noise of imagined steps: that which moves the system, and that which only measurements have."""
        return ImaginedNoise.of(self.noise, self._share, len(self.task.predicted))

    @property
    def target_scale(self) -> Tensor:
        """Return the standard deviations of the changes of state in the data [D]."""
        return self._rollout_targets.scale

    @property
    def dtype(self) -> torch.dtype:
        """Return the precision of predictions."""
        return torch.float64 if self.settings.precision == "float64" else torch.float32

    # Learning ---------------------------------------------------------------------------------------------------------

    def fit(self, transitions: Transitions) -> FitReport:
        """Learn from these transitions alone: normalise, fit hyper-parameters, condition the posterior and calibrate.

        The search for hyper-parameters starts from the last ones, which are also kept if it fails. An error leaves the
        model as it was.
        """
        begin = time.perf_counter()
        raw_inputs, raw_targets = inputs_and_targets(self.task, transitions, self._device)
        of_inputs = Normaliser.of(raw_inputs)
        inputs = of_inputs(raw_inputs)
        of_targets = Trend.of(inputs, raw_targets, linear=len(self.task.predicted) * (self.settings.mean == "linear"))
        targets = of_targets(inputs, raw_targets)
        found = fit_any_hyper(inputs, targets, self._hyper, self.settings.fit, latent=self._latent)
        posterior, problem = self._replace_posterior(inputs, targets, found.hyper)
        if problem:
            assert self._hyper is not None
            found = replace(found, hyper=self._hyper, failed=(*found.failed, problem))
        single, whole = posterior.loo_scores(), episode_scores(posterior, transitions.episode)
        # Only now, so that a fit that fails leaves the model as it was.
        self._hyper, self._inputs, self._targets = found.hyper, of_inputs, of_targets
        self._factor = torch.ones_like(of_targets.scale)
        if self.settings.calibration == "conformal":
            self._factor = conformal_factor(single) if whole is None else conformal_factor(single, whole)
        self._share = share_of(posterior, transitions.episode) if self.settings.noise == "split" else None
        self._set_posterior(posterior)
        self.report = judge(
            posterior,
            self._rollout_posterior,
            found,
            self._factor,
            episodes=whole,
            seconds=time.perf_counter() - begin,
            sparse_above=self.settings.sparse_above,
            inducing=self.settings.inducing,
        )
        return self.report

    def add(self, transitions: Transitions) -> None:
        """Add m transitions in O(n²m), with the hyper-parameters, normalisation and calibration of the last fit."""
        old = self.posterior
        assert self._hyper is not None
        raw_inputs, raw_targets = inputs_and_targets(self.task, transitions, self._device)
        inputs = self._inputs(raw_inputs)
        targets = self._targets(inputs, raw_targets)
        points = len(old) + len(inputs)
        if posterior_kind(self._hyper, points, targets.shape[1], self.settings.sparse_above) is type(old):
            self._set_posterior(old.extend(inputs, targets))
        else:
            everything = torch.cat([old.inputs, inputs]), torch.cat([old.targets, targets])
            self._set_posterior(self._condition(*everything, self._hyper))

    def _replace_posterior(self, inputs: Tensor, targets: Tensor, hyper: AnyHyper) -> tuple[Posterior, str]:
        """Condition a new posterior; return it, and why it has the last hyper-parameters if these fail.

        The last posterior is dropped first, since memory may not hold two. If everything fails it is made again.
        """
        if self._posterior is None or self._hyper is None:
            return self._condition(inputs, targets, hyper), ""
        last = self._posterior.inputs, self._posterior.targets, self._hyper
        self._drop_posterior()
        try:
            try:
                return self._condition(inputs, targets, hyper), ""
            except UserError as error:
                return self._condition(inputs, targets, self._hyper), str(error)
        except BaseException:
            self._set_posterior(self._condition(*last))
            raise

    def _condition(self, inputs: Tensor, targets: Tensor, hyper: AnyHyper) -> Posterior:
        """Condition a posterior on normalised inputs [n, ni] and targets [n, D]."""
        settings = self.settings
        posterior = condition(inputs, targets, hyper, sparse_above=settings.sparse_above, inducing=settings.inducing)
        if not bool(posterior.loo_scores().isfinite().all()):
            raise UserError(f"the model of {self.task.name} on {len(inputs)} points has values that are not finite")
        return posterior

    def _set_posterior(self, posterior: Posterior) -> None:
        self._posterior = posterior
        self._rollout_posterior = posterior.cast(self.dtype)
        like = posterior.inputs.new_empty(0, dtype=self.dtype)
        self._rollout_inputs, self._rollout_targets = self._inputs.to(like), self._targets.to(like)
        self._spread = self._rollout_targets.scale * self._factor.to(like)
        self._splits: dict[tuple[int, int], list[tuple[Posterior, Posterior]]] = {}
        first = len(self.task.predicted)
        costs = self._targets.restored(posterior.inputs, posterior.targets)
        errors = posterior.loo_errors() * self._targets.scale
        self.plausible = Plausible.of(costs[:, first:].to(like), errors[:, first:].to(like))

    def _drop_posterior(self) -> None:
        """Forget the posterior and everything derived from it."""
        self._posterior = None
        del self._rollout_posterior
        self._splits = {}

    # Predicting -------------------------------------------------------------------------------------------------------

    def predict(self, queries: Tensor, *, loo: bool = False, blur: float = 0.0) -> Prediction:
        """Predict the change of state at raw model inputs [B, ni].

        With `loo`, the same pass also gives ζ_LOO; `blur` is `LeaveOneOut.noise`.
        """
        normalised = self.normalised(queries)
        mean, variance, zeta = self._rollout_posterior.predict(normalised, loo=loo, blur=blur)
        return Prediction(self.denormalised(normalised, mean), variance * self._spread.square(), zeta)

    def normalised(self, queries: Tensor) -> Tensor:
        """Return raw model inputs [B, ni] as the posterior sees them."""
        _ = self.posterior  # raises an error if there are no data yet
        return self._rollout_inputs(queries.to(self.dtype))

    def denormalised(self, queries: Tensor, changes: Tensor) -> Tensor:
        """Return normalised changes of state [B, D] at normalised model inputs [B, ni] in the units of the state."""
        return self._rollout_targets.restored(queries, changes)

    def surprise(self, transitions: Transitions) -> float:
        """Return how far unseen transitions lie from their predictions.

        It is the root mean square of their z-scores: 1 is calibrated, above 1 is overconfident.
        """
        inputs, targets = inputs_and_targets(self.task, transitions, self._device)
        mean, variance, _ = self.predict(inputs)
        scores = (targets - mean.double()).square() / (variance + self.noise).double()
        return math.sqrt(float(scores.mean()))

    def bipartitions(self, count: int, seed: int) -> list[tuple[Posterior, Posterior]]:
        """Return the posteriors of both halves of the data for `count` random splits, cached until the data change."""
        if len(self) < 2:
            raise UserError(
                f"the model of {self.task.name} has {len(self)} points; splitting the data needs at least 2"
            )
        if (count, seed) not in self._splits:
            assert self._hyper is not None
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

    # Saving -----------------------------------------------------------------------------------------------------------

    def state_dict(self) -> State:
        """Return what the fit found: hyper-parameters, normalisation, calibration and report; empty before a fit.

        The Cholesky factor is left out: it follows from these and the data, and with thousands of points it takes
        gigabytes. A fingerprint shows later whether it was rebuilt to the same bits.
        """
        if self._hyper is None or self.report is None:
            return {}
        return {
            "hyper": {name: value.clone() for name, value in vars(self._hyper).items()},
            "inputs": dict(vars(self._inputs)),
            "targets": dict(vars(self._targets.rest)),
            "slope": self._targets.slope.clone(),
            "factor": self._factor.clone(),
            "share": self._share,
            "points": len(self),
            "report": to_plain(self.report),
            "fingerprint": self._fingerprint(),
        }

    def load_state_dict(self, state: State, transitions: Transitions) -> bool:
        """Restore the model that gave this state, which was fitted to the first of these transitions.

        Return whether it is the same to the last bit: on another machine, or with another number of threads, the factor
        differs in its last digits.
        """
        if not state:
            return True
        points = int(state["points"])
        if not 0 < points <= len(transitions):
            raise UserError(
                f"the model was fitted to {points} transitions, but there are {len(transitions)}; give at least those"
            )
        first = Transitions(**{name: value[:points] for name, value in vars(transitions).items()})
        raw_inputs, raw_targets = inputs_and_targets(self.task, first, self._device)
        kind = CorrelatedHyper if self.settings.outputs == "correlated" else Hyper
        self._hyper = kind(**state["hyper"]).to(raw_inputs)
        self._inputs = Normaliser(**state["inputs"]).to(raw_inputs)
        inputs, rest = self._inputs(raw_inputs), Normaliser(**state["targets"])
        slope = state.get("slope", raw_inputs.new_zeros(inputs.shape[1], raw_targets.shape[1]))
        self._targets = Trend(rest, slope).to(raw_inputs)
        self._factor = state["factor"].to(raw_inputs)
        self._share = state.get("share")
        self._set_posterior(self._condition(inputs, self._targets(inputs, raw_targets), self._hyper))
        self.report = from_plain(FitReport, state["report"], "report of the fit")
        return bool(self._fingerprint() == state["fingerprint"])

    def _fingerprint(self) -> str:
        """Return a checksum of results to which every entry of the factor contributes."""
        posterior, digest = self.posterior, hashlib.sha256()
        for value in (posterior.loo_scores(), posterior.predict(posterior.inputs[:8], loo=True).zeta):
            assert value is not None
            digest.update(value.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()
