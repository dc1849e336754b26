"""One cell's work in another process or on another machine; cells, progress and results travel as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from samba_rl.benchmark.cells import Cell, CellResult
from samba_rl.benchmark.grid import Failed, Finished, Message, Progressed
from samba_rl.benchmark.running import run_cell
from samba_rl.data.plain import from_plain, to_plain
from samba_rl.events import Event, TrialReport


def encode_cell(cell: Cell) -> str:
    """Return a cell as the JSON that `work` expects."""
    return json.dumps(to_plain(cell))


def encode_progress(share: float) -> str:
    """Return the share of a cell's real samples that has been used, as JSON for `decode`."""
    return json.dumps(["share", share])


def work(cell: str, folder: Path, device: str, steps: int, progress: Callable[[float], None]) -> str:
    """Run a cell on one thread and return its result, or the error that it raised, as JSON for `decode`.

    Args:
        cell: The cell, from `encode_cell`.
        folder: The folder of its run; a run that was interrupted there is resumed.
        device: The device for models and policies.
        steps: Real steps of the final evaluation.
        progress: Called after each real trial with the share of the real samples that has been used.
    """
    import torch

    torch.set_num_threads(1)
    what: Cell = from_plain(Cell, json.loads(cell), "the cell")
    try:
        budget = what.settings(what.system()).real_samples

        def log(event: Event) -> None:
            if isinstance(event, TrialReport):
                progress(min(1.0, event.real_samples / budget))

        result = run_cell(what, folder, device=device, steps=steps, log=log, workers=0)
    except Exception as error:
        return json.dumps(["failed", f"{type(error).__name__}: {' '.join(str(error).split())}"])
    return json.dumps(["done", to_plain(result)])


def decode(cell: Cell, text: str | bytes) -> Message:
    """Return what the worker of a cell reported."""
    kind, value = json.loads(text)
    if kind == "share":
        return Progressed(cell, float(value))
    if kind == "done":
        result: CellResult = from_plain(CellResult, value, cell.name)
        return Finished(cell, result)
    return Failed(cell, str(value))
