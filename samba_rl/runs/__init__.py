"""Runs: training with everything around it, the folder that a run is kept in, and getting it back."""

from samba_rl.runs.run import Run, load_run, train

__all__ = ["Run", "load_run", "train"]
