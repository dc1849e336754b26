"""Cells on a Ray cluster: a task for each, wherever there is a free core."""

from __future__ import annotations

import json
import socket
import tempfile
from pathlib import Path
from typing import Any, final

from samba_rl.benchmark.cells import Cell, CellResult, run_cell
from samba_rl.benchmark.grid import Failed, Finished, Message, Progressed
from samba_rl.data.plain import from_plain, to_plain
from samba_rl.errors import UserError
from samba_rl.events import Event, TrialReport

KNOCK_SECONDS = 5.0


@final
class RayBackend:
    """A task of one core for each cell; with a GPU beside it if cells are computed there."""

    def __init__(self, address: str, device: str = "cpu", steps: int = 10_000) -> None:
        """`address` is that of a cluster, or "auto" for the one that this machine belongs to."""
        try:
            import ray
            from ray.util.queue import Queue
        except ImportError as error:
            raise UserError("Ray is not installed; install it with: pip install 'samba-rl[ray]'") from error
        self._ray: Any = ray
        if not ray.is_initialized():
            try:
                _knock(address)
                ray.init(address=address, log_to_driver=False)
            except (OSError, RuntimeError, ValueError) as error:
                why = " ".join(str(error).split())
                raise UserError(
                    f"no Ray cluster answers at '{address}' ({why}); start one: ray start --head"
                ) from error
        self._device, self._steps = device, steps
        self._resources = {"num_cpus": 1, "num_gpus": 0 if device == "cpu" else 1}
        self._heard: Any = Queue(actor_options={"num_cpus": 0})
        self._task: Any = ray.remote(work)
        self._running: dict[Any, Cell] = {}

    @property
    def slots(self) -> int:
        """How many cells run at a time: the cluster's cores, or its GPUs; it may grow."""
        resources = self._ray.cluster_resources()
        return max(1, int(resources.get("CPU" if self._device == "cpu" else "GPU", 1)))

    def start(self, cell: Cell) -> None:
        """Begin with a cell."""
        task = self._task.options(**self._resources, max_retries=0, name=cell.name)
        self._running[task.remote(json.dumps(to_plain(cell)), self._device, self._steps, self._heard)] = cell

    def poll(self, timeout: float) -> list[Message]:
        """What has happened; waits at most `timeout` seconds for something."""
        done, _ = self._ray.wait(list(self._running), num_returns=len(self._running), timeout=timeout)
        by_name = {cell.name: cell for cell in self._running.values()}
        messages: list[Message] = []
        for _ in range(self._heard.qsize()):
            name, share = self._heard.get()
            if name in by_name:
                messages.append(Progressed(by_name[name], float(share)))
        for reference in done:
            cell = self._running.pop(reference)
            try:
                kind, value = json.loads(self._ray.get(reference))
            except self._ray.exceptions.RayError as error:
                # The worker was killed, or its machine is gone.
                messages.append(Failed(cell, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"))
                continue
            if kind == "done":
                result: CellResult = from_plain(CellResult, value, cell.name)
                messages.append(Finished(cell, result))
            else:
                messages.append(Failed(cell, str(value)))
        return messages

    def stop(self) -> None:
        """End everything that runs; the cluster stays."""
        for reference in self._running:
            self._ray.cancel(reference, force=True)
        self._running = {}
        self._heard.shutdown(force=True)


def _knock(address: str) -> None:
    """See whether anybody is there; Ray itself would wait for minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=KNOCK_SECONDS).close()


def work(cell: str, device: str, steps: int, heard: Any) -> str:
    """What a worker does: a cell in a folder of its own, which is gone with it."""
    import torch

    torch.set_num_threads(1)
    what: Cell = from_plain(Cell, json.loads(cell), "the cell")
    try:
        budget = what.settings().real_samples

        def log(event: Event) -> None:
            if isinstance(event, TrialReport):
                heard.put((what.name, min(1.0, event.real_samples / budget)))

        with tempfile.TemporaryDirectory() as folder:
            result = run_cell(what, Path(folder) / "run", device=device, steps=steps, log=log, workers=0)
    except Exception as error:
        return json.dumps(["failed", f"{type(error).__name__}: {' '.join(str(error).split())}"])
    return json.dumps(["done", to_plain(result)])
