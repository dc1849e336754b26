"""Curves of a run for Weights & Biases, with the names that TensorBoard gets."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, final

from samba_rl.errors import UserError
from samba_rl.events import Event, Notice
from samba_rl.runs.tensorboard import Curves

if TYPE_CHECKING:
    from samba_rl.runs.session import About


class _Sink(Protocol):
    """What is used of the package wandb's runs."""

    def log(self, values: Mapping[str, float]) -> None:
        """Send numbers by name."""

    def finish(self) -> None:
        """End the run."""


@final
class WandbLog:
    """Sends the scalars of events to a project; call it with every event, then close it."""

    def __init__(self, project: str, folder: Path, about: About, system: str, earlier: Sequence[Event] = ()) -> None:
        """Begin a run in the project; a resumed one continues under the same name, and skips `earlier` events."""
        try:
            wandb = importlib.import_module("wandb")
        except ImportError as error:
            raise UserError("--wandb needs the package 'wandb'; install it with: pip install wandb") from error
        config = {"system": system, "learner": about.learner, "preset": about.preset, "seed": about.seed}
        try:
            self._run: _Sink = wandb.init(
                project=project, name=folder.name, id=folder.name, dir=str(folder.parent), config=config, resume="allow"
            )
        except Exception as error:
            # No network, not logged in: the package has a dozen kinds of errors.
            raise UserError(f"--wandb {project}: Weights & Biases cannot be used: {error}") from error
        self._curves = Curves()
        for event in earlier:
            if not isinstance(event, Notice):
                self._curves.of(event)

    def __call__(self, event: Event) -> None:
        """Send the numbers of an event."""
        if isinstance(event, Notice):
            return
        place, scalars = self._curves.of(event)
        # W&B's own steps must grow; each kind of event has its axis among its numbers instead.
        self._run.log({place.axis: place.step, **scalars})

    def close(self) -> None:
        """Finish sending."""
        self._run.finish()
