"""TensorBoard log of a run's events."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, final

from samba_rl.data.files import disk_error
from samba_rl.errors import UserError
from samba_rl.events import Event, ImprovementReport, LatentReport, Notice, TrialReport


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
        self._curves = Curves()
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
        if isinstance(event, Notice):
            self._writer.add_text("notices", event.text, self._curves.controls)
            return
        place, scalars = self._curves.of(event)
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, place.step)

    def close(self) -> None:
        """Flush and close the files."""
        if self._writer is not None:
            self._writer.close()


class Place(NamedTuple):
    """Where the numbers of an event stand in the curves."""

    axis: str
    """What is counted: real_samples or control_iterations."""
    step: int
    """Its number."""


@final
class Curves:
    """The numbers of events by name, for programs that draw curves."""

    def __init__(self) -> None:
        self.controls = 0
        """Number of control iterations so far."""

    def of(self, event: TrialReport | ImprovementReport | LatentReport) -> tuple[Place, dict[str, float]]:
        """Return where the numbers of an event stand, and those that are known; call it with every event in order."""
        if isinstance(event, TrialReport):
            place, scalars = Place("real_samples", event.real_samples), _of_trial(event)
        else:
            self.controls += 1
            place = Place("control_iterations", self.controls)
            scalars = _of_improvement(event) if isinstance(event, ImprovementReport) else _of_latent(event)
        return place, {name: value for name, value in scalars if not math.isnan(value)}


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
