"""A rig that a command drives: for each episode a file with the policy goes in, and a CSV file comes out."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import final

from torch import Generator

from samba_rl.data.files import TEXT_LIMIT, read_own, reason
from samba_rl.data.journal import Record, random_state
from samba_rl.errors import UserError
from samba_rl.runs.episodes import Episode, cut_short, traces_of
from samba_rl.runs.folder import TRIALS
from samba_rl.runs.lock import LOCK, InUse, held, lock_for_others
from samba_rl.runs.policy_file import noise_seed, policy_record, write_record
from samba_rl.runs.trial_log import read_log
from samba_rl.runs.trials import no_steps
from samba_rl.tasks.task import Task
from samba_rl.types import Fault, Policy

POLICY, TRIAL = "{policy}", "{trial}"
"""Places in the command that are replaced by the name of the policy's file and of the file to write."""
GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL for a command that takes too long."""
LEAST_LINES = 3
"""Number of lines of the file of an episode with one step: the header, and the states before and after it."""
LAST_WORDS = 200
"""Number of characters of a command's complaint that are quoted."""


@final
class CommandRig:
    """Runs a command for each episode, and reads what it measured.

    The command may end with another exit code than 0, be stopped at its time limit, or die: what it has written counts.
    """

    def __init__(self, command: str, task: Task, folder: Path, *, seed: int = 0, timeout: float | None = None) -> None:
        """Check the command; it may run for `timeout` seconds (None: as long as it likes)."""
        self._words = parsed_command(command)
        self._task, self._folder, self._seed, self._timeout = task, folder / TRIALS, seed, timeout

    def __call__(self, policy: Policy, trial: int, part: int, generator: Generator) -> Record:
        """Run one episode of a policy and return what was measured.

        Where a program was killed after the rig had moved, what the rig has written is taken instead.
        """
        self._folder.mkdir(exist_ok=True)
        if self._folder.is_symlink():
            raise UserError(f"{self._folder} is a symbolic link; the files of a run must be its own. Remove it")
        policy_file, trial_file = (self._folder / f"{trial:04d}-{part}.{kind}" for kind in ("policy", "csv"))
        if os.path.lexists(policy_file) and held(self._folder):
            raise InUse(
                f"{self._task.name}: the command that a killed program started for '{trial_file}' still runs; wait "
                f"until it has ended, or end it (fuser {self._folder / LOCK} names its processes), then resume the run"
            )
        if os.path.lexists(trial_file):
            # Whether the command had come to its end is not known.
            episode = self._read(trial_file, "the program was stopped")
            faults = () if episode is None else cut_short(self._task, [episode])
        else:
            about = {"trial": trial, "episode": part, "seed": noise_seed(self._seed, trial, part)}
            write_record(policy_file, policy_record(self._task, policy, part, about), own=True)
            words = filled(self._words, policy_file, trial_file)
            # Where this program is killed, the command and the rig run on; the file says so to the one that resumes.
            problem = _run(words, self._timeout, lock_for_others(self._folder))
            episode = self._read(trial_file, problem)
            steps = 0 if episode is None else len(episode.u)
            text = f"{self._task.name}: the episode was stopped at step {steps}: {problem}"
            faults = (Fault(0, steps, text),) if problem else cut_short(self._task, [episode] if episode else [])
        traces = no_steps(self._task, 1) if episode is None else traces_of(self._task, [episode], self._task.horizon)
        return Record(trial, part, traces, faults, random_state(generator))

    def _read(self, file: Path, problem: str) -> Episode | None:
        """Return the episode in a file; None if there was a problem before the first step."""
        there = os.path.lexists(file)
        try:
            if not there and not problem:
                raise UserError(f"the command wrote no '{file}'; correct the command")
            # Never through a link: the folder may come from a stranger.
            if not there or (len(read_own(file, TEXT_LIMIT).splitlines()) < LEAST_LINES and problem):
                return None
            (episode,) = read_log(file, self._task, torn=bool(problem)).episodes
            if len(episode.u) <= self._task.horizon:
                return episode
            why = f"'{file}' has {len(episode.u)} steps; the episode should have {self._task.horizon}"
        except OSError as error:
            why = f"'{file}' cannot be read: {reason(error)}"
        except UserError as error:
            why = str(error)
        except ValueError:
            why = f"'{file}' has several episodes instead of one"
        raise UserError(f"{why}. Correct the file, or remove it to run the episode again; then resume the run")


def parsed_command(command: str) -> list[str]:
    """Return the words of a command; raise a `UserError` unless it says where both files go."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UserError(f"--rig {command!r} cannot be read: {error}") from error
    for place in (POLICY, TRIAL):
        if not any(place in word for word in words):
            raise UserError(f"--rig {command!r} does not say where {place} goes; write './run_trial {POLICY} {TRIAL}'")
    return words


def filled(words: Sequence[str], policy: Path, trial: Path) -> list[str]:
    """Return the words of a command with the names of both files."""
    return [word.replace(POLICY, str(policy)).replace(TRIAL, str(trial)) for word in words]


def _run(words: Sequence[str], timeout: float | None, file: int) -> str:
    """Run a command, without a shell, with an open file; return what went wrong in one line, empty if nothing did."""
    try:
        # A session of its own, so that Ctrl-C lets the episode end, and a time limit ends all of its processes.
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
            pass_fds=(file,),
        )  # fmt: skip
    except OSError as error:
        raise UserError(f"the command {shlex.join(words)} cannot be run: {error}; correct --rig") from error
    finally:
        os.close(file)
    late = False
    try:
        try:
            said = process.communicate(timeout=timeout)[1]
        except subprocess.TimeoutExpired:
            late = True
            said = _ended(process)
    except BaseException:
        _ended(process)
        raise
    if late:
        return f"the command took more than {timeout:g} s and was ended"
    if process.returncode == 0:
        return ""
    last = said.decode(errors="replace").strip().splitlines()
    complaint = f" ({last[-1][-LAST_WORDS:]})" if last else ""
    if process.returncode < 0:
        return f"the command was killed by signal {-process.returncode}{complaint}"
    return f"the command ended with exit code {process.returncode}{complaint}"


def _ended(process: subprocess.Popen[bytes]) -> bytes:
    """End a command and all processes of its session: first politely, so that it can stop the rig."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        try:
            return process.communicate(timeout=GRACE)[1]
        except subprocess.TimeoutExpired:
            continue
    return b""
