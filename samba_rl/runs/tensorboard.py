"""TensorBoard log of a run's events."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, final

from samba_rl.data.files import disk_error
from samba_rl.errors import UserError
from samba_rl.events import Event, ImprovementReport, LatentReport, TrialReport


def available() -> bool:
    """Return whether TensorBoard is installed."""
    return importlib.util.find_spec("tensorboard") is not None


@final
class TensorBoardLog:
    """Writes events as TensorBoard scalars; call it with every event, then close it.

    Trials are plotted against real samples, improvements against the number of control iterations.
    """

    def __init__(self, folder: Path, earlier: Sequence[Event] = ()) -> None:
        """Prepare a log; its folder is made with the first event.

        For a resumed run everything is written again, starting with the `earlier` events, because the existing files
        may contain events that will now happen once more. That waits for the first event.
        """
        if not available():
            raise UserError("TensorBoard is not installed; install it with: pip install 'samba-rl[tensorboard]'")
        self._folder = folder
        self._writer: Any = None
        self._controls = 0
        self._earlier = list(earlier)

    def __call__(self, event: Event) -> None:
        """Write the numbers of an event."""
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            # Not before the first event: until then another process may be writing to the folder.
            try:
                if self._earlier:
                    for file in self._folder.glob("events.out.tfevents.*"):
                        file.unlink()
                self._writer = SummaryWriter(str(self._folder))
            except OSError as error:
                raise disk_error(error.filename or self._folder, error) from error
            earlier, self._earlier = self._earlier, []
            for each in earlier:
                self(each)
        if isinstance(event, TrialReport):
            scalars, step = _of_trial(event), event.real_samples
        elif isinstance(event, ImprovementReport):
            self._controls += 1
            scalars, step = _of_improvement(event), self._controls
        elif isinstance(event, LatentReport):
            self._controls += 1
            scalars, step = _of_latent(event), self._controls
        else:
            self._writer.add_text("notices", event.text, self._controls)
            return
        for name, value in scalars:
            if not math.isnan(value):
                self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush and close the files."""
        if self._writer is not None:
            self._writer.close()


def _of_trial(event: TrialReport) -> Iterator[tuple[str, float]]:
    yield "trial/return", event.return_mean
    yield "trial/safety_cost", event.safety_cost
    yield "trial/violations", event.violations
    yield "trial/learning_TC", event.learning_TC
    yield "trial/learning_TV", event.learning_TV
    yield "trial/seconds", event.seconds
    yield "model/predicted_return", event.predicted_return
    yield "model/predicted_safety", event.predicted_safety
    yield "model/surprise", event.surprise
    for i, (z_std, coverage) in enumerate(zip(event.z_std, event.coverage95, strict=True)):
        yield f"model/z_std/{i}", z_std
        yield f"model/coverage95/{i}", coverage


def _of_latent(event: LatentReport) -> Iterator[tuple[str, float]]:
    yield "latent/loss", event.loss
    yield "latent/observation", event.observation
    yield "latent/cost", event.cost
    yield "latent/safety", event.safety
    yield "latent/kl", event.kl


def _of_improvement(event: ImprovementReport) -> Iterator[tuple[str, float]]:
    yield "model/return", event.model_return
    yield "model/safety", event.model_safety
    yield "model/zeta", event.model_zeta
    for i, (value, target, multiplier) in enumerate(zip(event.values, event.targets, event.multipliers, strict=True)):
        yield f"constraint/{i}/value", value
        yield f"constraint/{i}/target", target
        yield f"constraint/{i}/lambda", multiplier
    yield "policy/lambda_pi", event.lambda_pi
    yield "policy/std", event.std
    yield "policy/clipped", event.clipped
    yield "policy/kl", event.kl
    for i, loss in enumerate(event.critic_loss):
        yield f"policy/critic_loss/{i}", loss
