"""Runs cells on a Ray cluster, one Ray task for each cell."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path
from typing import Any, final

from samba_rl.benchmark.cells import Cell
from samba_rl.benchmark.grid import Failed, Message, Progressed
from samba_rl.benchmark.worker import decode, encode_cell, work
from samba_rl.errors import UserError

PER_GPU = 8
"""Number of cells that share a GPU, unless another is given."""
CONNECT_SECONDS = 5.0
"""Seconds to wait for the cluster's port to answer."""


@final
class RayBackend:
    """Runs each cell as a Ray task with one core and, if cells are computed on GPUs, a share of a GPU."""

    def __init__(self, address: str, device: str = "cpu", steps: int = 10_000, per_gpu: int = PER_GPU) -> None:
        """Connect to a cluster.

        Args:
            address: Address of the cluster, or "auto" for the one that this machine belongs to.
            device: The device for models and policies.
            steps: Real steps of the final evaluation.
            per_gpu: Number of cells that share a GPU.
        """
        try:
            import ray
            from ray.util.queue import Queue
        except ImportError as error:
            raise UserError("Ray is not installed; install it with: pip install 'samba-rl[ray]'") from error
        self._ray: Any = ray
        if not ray.is_initialized():
            try:
                _check_port(address)
                ray.init(address=address, log_to_driver=False)
            except (OSError, RuntimeError, ValueError) as error:
                why = " ".join(str(error).split())
                raise UserError(
                    f"no Ray cluster answers at '{address}' ({why}); start one with: ray start --head"
                ) from error
        self._device, self._steps = device, steps
        self._per_gpu = per_gpu
        self._resources = {"num_cpus": 1, "num_gpus": 0 if device == "cpu" else 1 / per_gpu}
        self._progress: Any = Queue(actor_options={"num_cpus": 0})
        self._task: Any = ray.remote(_work_in_temporary_folder)
        self._running: dict[Any, Cell] = {}

    @property
    def slots(self) -> int:
        """Return how many cells run at a time, a number that may grow: one per core, and so many on each GPU."""
        resources = self._ray.cluster_resources()
        cores = int(resources.get("CPU", 1))
        return max(1, cores if self._device == "cpu" else min(cores, int(resources.get("GPU", 1)) * self._per_gpu))

    def start(self, cell: Cell) -> None:
        """Start a cell."""
        task = self._task.options(**self._resources, max_retries=0, name=cell.name)
        reference = task.remote(cell.name, encode_cell(cell), self._device, self._steps, self._progress)
        self._running[reference] = cell

    def poll(self, timeout: float) -> list[Message]:
        """Return the messages that have arrived; wait at most `timeout` seconds for a cell to end."""
        done, _ = self._ray.wait(list(self._running), num_returns=len(self._running), timeout=timeout)
        by_name = {cell.name: cell for cell in self._running.values()}
        messages: list[Message] = []
        for _ in range(self._progress.qsize()):
            name, share = self._progress.get()
            if name in by_name:
                messages.append(Progressed(by_name[name], float(share)))
        for reference in done:
            cell = self._running.pop(reference)
            try:
                messages.append(decode(cell, self._ray.get(reference)))
            except self._ray.exceptions.RayError as error:
                # The worker was killed, or its machine is gone.
                messages.append(Failed(cell, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"))
        return messages

    def stop(self) -> None:
        """Cancel all cells that still run; the cluster stays up."""
        for reference in self._running:
            self._ray.cancel(reference, force=True)
        self._running = {}
        self._progress.shutdown(force=True)


def _check_port(address: str) -> None:
    """Raise an OSError if nothing answers at the address; Ray itself would wait for minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()


def _work_in_temporary_folder(name: str, cell: str, device: str, steps: int, progress: Any) -> str:
    """Run a cell in a temporary folder of the worker's machine and return its outcome as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        return work(cell, Path(folder) / "run", device, steps, lambda share: progress.put((name, share)))
