"""Train SAMBA on Safe Pendulum, evaluate the policy, and save figures of the run.

Usage:
    python examples/train_and_look.py                     # about three minutes on two cores
    python examples/train_and_look.py runs/quick smoke    # seconds: checks that everything works, learns little
"""

from __future__ import annotations

import sys
from pathlib import Path

import samba_rl
from samba_rl.events import Event, Notice, TrialReport
from samba_rl.report.run import run_pictures


def show(event: Event) -> None:
    """Print real trials and notices; the events in between report on each improvement of the policy."""
    if isinstance(event, TrialReport):
        print(f"{event.real_samples:5d} real steps: return {event.return_mean:7.1f}, unsafe steps {event.violations}")
    elif isinstance(event, Notice):
        print(f"notice: {event.text}")


def main(out: str = "runs/pendulum", preset: str = "default") -> None:
    """Write the run to the folder `out`; if it is interrupted, `samba_rl.resume(out)` continues it."""
    run = samba_rl.train("safe-pendulum", "samba", preset=preset, seed=0, out=out, log=show)

    result = run.evaluate(steps=10_000, deterministic=True)
    print(f"mean return {result.return_mean:.1f} over {result.episodes} episodes")
    for limit in result.constraints:
        print(f"{limit.words}: {limit.value:.2f}, limit {limit.limit:.2f}")
    print(f"safety cost while learning: {run.summary['learning_TC']:.1f}")

    for picture in run_pictures(run, Path(out)):
        print(f"wrote {picture}")


if __name__ == "__main__":
    main(*sys.argv[1:])
