"""Cost of durability: a smoke run with its folder, journal and checkpoints, compared with one that writes nothing.

Both make the same run in the same process and take turns; the overhead is the median over the pairs. The time of each
kind of write is shown as well. The default is one thread: with more, repetitions of the same run differ by more than
the overhead. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    # Before anything that counts the cores is imported.
    os.environ.setdefault(_name, "1")

import torch  # noqa: E402

from samba_rl.data.journal import Journal  # noqa: E402
from samba_rl.runs import train  # noqa: E402
from samba_rl.runs.writer import RunFolder  # noqa: E402

WRITES = {
    "journal": (Journal, "append"),
    "reserving space for the journal": (Journal, "reserve"),
    "metrics": (RunFolder, "__call__"),
    "real.csv": (RunFolder, "write_data"),
    "checkpoints": (RunFolder, "save"),
    "policy and summary": (RunFolder, "finish"),
}


def seconds(task: str, preset: str, samples: int | None, out: Path | None) -> float:
    """Time one run, with or without a folder."""
    begin = time.perf_counter()
    changes: dict[str, Any] = {} if samples is None else {"real_samples": samples}
    train(task, preset=preset, seed=0, out=out, **changes)
    return time.perf_counter() - begin


def watched(spent: dict[str, float]) -> None:
    """Add up the time of each kind of write."""

    def timed(name: str, function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            begin = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                spent[name] += time.perf_counter() - begin

        return call

    for name, (home, method) in WRITES.items():
        spent[name] = 0.0
        setattr(home, method, timed(name, getattr(home, method)))


def interval(values: list[float], draws: int = 2000) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the median."""
    generator = random.Random(0)
    medians = sorted(statistics.median(generator.choices(values, k=len(values))) for _ in range(draws))
    return medians[round(0.025 * draws)], medians[round(0.975 * draws)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", default="safe-pendulum")
    parser.add_argument("--preset", default="smoke")
    parser.add_argument("--samples", type=int, default=None, help="real samples (default: the preset's)")
    parser.add_argument("--turns", type=int, default=60)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--folder", type=Path, default=None, help="where to write (default: a temporary folder)")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    spent: dict[str, float] = {}
    watched(spent)
    plain, durable = [], []
    with tempfile.TemporaryDirectory(dir=arguments.folder) as home:
        for turn in range(arguments.turns + 1):
            out = Path(home) / "run"
            # Alternate the order, because the second run finds the machine warmer.
            folders = (None, out) if turn % 2 else (out, None)
            took = {each: seconds(arguments.task, arguments.preset, arguments.samples, each) for each in folders}
            without, with_it = took[None], took[out]
            shutil.rmtree(out)
            if turn == 0:
                # The first turn warms up.
                spent.update(dict.fromkeys(spent, 0.0))
                continue
            plain.append(without)
            durable.append(with_it)
    ratios = [b / a for a, b in zip(plain, durable, strict=True)]
    writing = {name: total / arguments.turns for name, total in spent.items()}
    print(f"without {statistics.median(plain):.3f} s, with {statistics.median(durable):.3f} s (medians)")
    for name, each in writing.items():
        print(f"  {name}: {1e3 * each:.2f} ms per run")
    result = {
        "task": arguments.task,
        "preset": arguments.preset,
        "seconds_without": statistics.median(plain),
        "seconds_with": statistics.median(durable),
        "overhead": statistics.median(ratios) - 1,
        "overhead_95": [quantile - 1 for quantile in interval(ratios)],
        "seconds_writing": sum(writing.values()),
        "share_writing": sum(writing.values()) / statistics.median(plain),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
