"""Runs: training a learner on a system, the folder that records it, and loading or resuming it from there."""

from samba_rl.runs.loading import earlier_events, load_run, run_in
from samba_rl.runs.run import Run
from samba_rl.runs.training import resume, train

__all__ = ["Run", "earlier_events", "load_run", "resume", "run_in", "train"]
