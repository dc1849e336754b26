"""Runs: training with everything around it, the folder that a run is kept in, and getting it back."""

from samba_rl.runs.run import Run, earlier_events, load_run, resume, run_in, train

__all__ = ["Run", "earlier_events", "load_run", "resume", "run_in", "train"]
