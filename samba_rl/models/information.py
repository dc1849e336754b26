"""The information that whole trajectories would give about a model, which rewards coverage instead of dwelling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import torch
from torch import Tensor

from samba_rl.errors import UserError
from samba_rl.models.marginals import chunk_rows

if TYPE_CHECKING:
    from samba_rl.models.gp import GPDynamics, Prediction


@final
@dataclass(frozen=True)
class InformationGain:
    """Joint information gain of a trajectory about the model, in nats, split among its steps by the chain rule.

    The whole is ½ log det(I + C / s²), summed over the outputs, with C the posterior covariance of the steps and s² the
    noise of an observation. A step counts only for what the data and the earlier steps of its trajectory leave open:

        ζ_t = ½ log(σ²(x_t | data, x_1 … x_{t-1}) / s² + 1)
    """

    resolution: float = 0.1
    """Least noise s of an observation, in standard deviations of the changes of state in the data. Errors of the model
    much smaller than this are not worth a trial."""

    def __post_init__(self) -> None:
        if not self.resolution > 0:
            raise UserError(f"resolution = {self.resolution}; it must be positive")

    def predict(self, model: GPDynamics, queries: Tensor) -> tuple[Prediction, Tensor]:
        """Return the prediction at queries [B, ni] and the information in nats [B] of each query by itself."""
        prediction = model.predict(queries)
        variance = prediction.variance / (model.target_scale * model.factor).square()
        return prediction, 0.5 * (variance / self._noise(model).to(variance)).log1p().sum(-1)

    def along(self, model: GPDynamics, queries: Tensor) -> Tensor:
        """Return the information [B, T] of each step of trajectories with these queries [B, T, ni]."""
        posterior, noise = model.posterior, self._noise(model)
        normalised = model.normalised(queries.flatten(0, 1)).to(posterior.inputs).view(queries.shape)
        trajectories = max(1, chunk_rows(posterior.targets.numel(), queries) // queries.shape[1])
        gained = []
        for part in torch.split(normalised, trajectories):
            covariance = posterior.covariance(part)
            covariance.diagonal(dim1=-2, dim2=-1).add_(noise[:, None, None])
            # Each squared entry on the diagonal of a factor is a variance given the steps before.
            deviation = torch.linalg.cholesky_ex(covariance).L.diagonal(dim1=-2, dim2=-1)
            gained.append((deviation / noise.sqrt()[:, None, None]).log().clamp(min=0).sum(0))
        return torch.cat(gained)

    def _noise(self, model: GPDynamics) -> Tensor:
        """Return the noise variances of an observation, on normalised targets [D]."""
        return model.posterior.hyper.noise.clamp(min=self.resolution**2)
