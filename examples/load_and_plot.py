"""Load a finished run, evaluate its policy and model, and plot its learning curve.

Usage:
    python examples/train_and_look.py               # makes a run in runs/pendulum
    python examples/load_and_plot.py                # loads it; takes seconds
    python examples/load_and_plot.py runs/quick     # loads another run
"""

from __future__ import annotations

import sys
from pathlib import Path

from matplotlib.figure import Figure

import samba_rl


def main(folder: str = "runs/pendulum") -> None:
    """Print what the run in a folder led to and write learning.png beside it."""
    run = samba_rl.load_run(folder)  # a system of your own: load_run(folder, task=...)
    steps = run.data.transitions
    print(f"{run}: {len(steps)} transitions, {int(steps.violation.any(-1).sum())} of them unsafe")

    for deterministic in (False, True):
        result = run.evaluate(steps=3000, deterministic=deterministic)
        noise = "without" if deterministic else "with"
        print(f"{noise} noise: return {result.return_mean:.1f}, CVaR {result.alpha:g} {result.cvar:.2f}")
    prediction = run.model.predict(run.task.model_inputs(steps.x, steps.u))
    error = (prediction.mean - (steps.x_next - steps.x)[:, run.task.predicted]).abs().mean(0)
    print("mean error of the model on its data:", ", ".join(f"{value:.1e}" for value in error.tolist()))

    figure = Figure(figsize=(6.5, 4), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    samples = [trial.real_samples for trial in run.trials]
    above.plot(samples, [trial.return_mean for trial in run.trials], "o-", label="real trial")
    above.plot(samples, [trial.predicted_return for trial in run.trials], "--", label="the model's prediction")
    above.set_ylabel("return")
    above.legend()
    below.plot(samples, [trial.learning_TC for trial in run.trials], "o-")
    below.set(xlabel="real steps", ylabel="safety cost so far")
    figure.savefig(Path(folder) / "learning.png", dpi=160)
    print(f"wrote {Path(folder) / 'learning.png'}")


if __name__ == "__main__":
    main(*sys.argv[1:])
