"""Settings of the Gaussian-process model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from samba_rl.models.likelihood import FitSettings
from samba_rl.ranges import Count, In


@dataclass(frozen=True)
class GPSettings:
    """Settings of the Gaussian-process model."""

    fit: FitSettings = field(default_factory=FitSettings)
    outputs: Literal["independent", "correlated"] = "independent"
    """One GP for each state dimension (independent), or a linear model of coregionalisation over all (correlated)."""
    mean: Literal["constant", "linear"] = "constant"
    """Mean of the changes of state before there are data: a constant, or a linear function of state and action, fitted
    to the data. linear suits systems that are nearly linear, with exceptions such as contacts."""
    sparse_above: Annotated[int, In("[0, 1e9]")] = 3000
    """Number of points above which an inducing-point model replaces the exact one (independent outputs only)."""
    inducing: Count = 500
    """Largest number of inducing points of each output."""
    latent: Annotated[int, In("[1, 100]")] = 2
    """Number of latent functions that a model with correlated outputs mixes."""
    precision: Literal["float64", "float32"] = "float64"
    """Precision of predictions. float32 is about twice as fast on a CPU, but accurate only where the noise is not tiny;
    the fit report states the error."""
    calibration: Literal["none", "conformal"] = "conformal"
    """Widen the predicted standard deviation of each output until 95 % intervals hold for left-out steps and episodes
    (conformal), or leave it as the likelihood has it (none)."""
    noise: Literal["process", "split"] = "process"
    """Let all noise move imagined states (process), or only that which the residuals do not show to be measurement
    noise, whereas the policy sees both (split; an exact model only)."""
