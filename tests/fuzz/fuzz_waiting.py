"""Fuzzing of the files of runs that wait for trials, and of the trials that are told to them.

Whatever is done to the folder of a run: it goes on to the same policy, or refuses with a message. Whatever is in a log:
all of it is taken in as it stands, or nothing, with a message that names the file.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from samba_rl.data.journal import Journal
from samba_rl.errors import UserError
from samba_rl.runs import Run
from samba_rl.runs.folder import JOURNAL
from samba_rl.runs.listing import overview
from samba_rl.runs.status import status
from samba_rl.runs.verify import verify
from samba_rl.runs.waiting import WaitingRun, new_run
from tests.fuzz.cases import Words, Wrong, cases
from tests.fuzz.fuzz_files import DAMAGE, files
from tests.runs.interrupted import same
from tests.runs.test_waiting import measured, rig
from tests.threads import one_thread

HOW: dict[str, Any] = {"preset": "smoke", "seed": 1, "real_samples": 30, "episodes": 1, "first": {"samples": 10}}
CELLS = ("nan", "inf", "-1e400", "1e60", "", "x", '"', "0,5", "1_0", "٣", "\0", "9" * 999)
SEPARATORS = ("\t", ";", " ", "|", "")


class Prepared(NamedTuple):
    """A run that waits."""

    asked: Path
    """Folder of the run while a trial is due."""
    told: Path
    """Folder of the run when that trial is told."""
    due: Run
    """The run when it is finished."""


def fuzz(seconds: float, seed: int) -> list[str]:
    """Damage copies of runs, and tell them damaged logs, for some seconds; return the failures, one line each."""
    with one_thread(), prepared() as runs, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cases(seconds, seed, lambda draw, words: one_case(runs, draw, words), least=3)


@contextlib.contextmanager
def prepared() -> Iterator[Prepared]:
    """Make a run that waits, in two states, and finish a copy of it."""
    with tempfile.TemporaryDirectory() as home:
        asked, told, whole = (Path(home) / name for name in ("asked", "told", "whole"))
        new_run(asked, rig(), **HOW)
        step(asked)
        WaitingRun(asked, rig()).ask()
        shutil.copytree(asked, told)
        step(told)
        shutil.copytree(told, whole)
        yield Prepared(asked, told, finish(whole))


def step(folder: Path) -> bool:
    """Ask for a trial, make it, always the same, and tell it; return whether there was one."""
    request = WaitingRun(folder, rig()).ask()
    if request is not None:
        WaitingRun(folder, rig()).tell(*measured(request.policy, 3 * request.trial))
    return request is not None


def finish(folder: Path) -> Run:
    """Make all trials that a run still asks for."""
    while step(folder):
        pass
    return WaitingRun(folder, rig()).result()


def one_case(runs: Prepared, draw: random.Random, words: Words) -> None:
    """Damage a copy of a run, or tell it a damaged log."""
    with tempfile.TemporaryDirectory() as home:
        copy = Path(home) / "run"
        asked = draw.random() < 0.7
        shutil.copytree(runs.asked if asked else runs.told, copy)
        if draw.random() < 0.5:
            tell_damaged(copy, Path(home) / "trial.csv", draw, words)
            return
        for _ in range(draw.choice([1, 1, 2])):
            path = draw.choice([path for path in files(copy) if not path.is_symlink()])
            words(f"{'asked' if asked else 'told'}: {path.relative_to(copy)}")
            words(draw.choice(DAMAGE)(path, draw))
        overview(copy)
        for read in (verify, status):
            with contextlib.suppress(UserError):
                read(copy)
        if not same(finish(copy), runs.due):
            raise Wrong("it went on to another end")


def log_of_a_trial() -> list[list[str]]:
    """Return the cells of a sound log."""
    rows = [["time", "x", "u"]]
    position = -2.0
    for number in range(10):
        rows.append([str(float(number)), repr(position), "0.25"])
        position += 0.25
    return [*rows, ["10.0", repr(position), ""]]


def tell_damaged(copy: Path, log: Path, draw: random.Random, words: Words) -> None:
    """Tell a log with something wrong, or merely unusual, in it."""
    rows, what = log_of_a_trial(), draw.choice(["cell", "row", "column", "bytes", "file", "separator"])
    words(f"a log with another {what}")
    if what == "cell":
        row, column = draw.randrange(len(rows)), draw.randrange(3)
        rows[row][column] = draw.choice(CELLS)
        words(f"{rows[row][column][:9]!r} in row {row}, column {column}")
    elif what == "row":
        row = draw.randrange(len(rows))
        rows[row : row + 1] = draw.choice([[], [rows[row], rows[row]], [rows[row][:-1]]])
    elif what == "column":
        more = draw.choice(["", "1", "x"])
        rows = [[more, *row] if more else row[::-1] for row in rows]
    content = "\n".join(",".join(row) for row in rows).encode(errors="surrogateescape")
    if what == "separator":
        content = content.replace(b",", draw.choice(SEPARATORS).encode())
    log.write_bytes(content)
    if what in ("bytes", "file"):
        words(draw.choice(DAMAGE if what == "file" else DAMAGE[:6])(log, draw))
    before = Journal.read(copy / JOURNAL)
    try:
        receipt = WaitingRun(copy, rig()).tell_file(log)
    except UserError as error:
        if str(log) not in str(error):
            raise Wrong(f"the file is not named: {error}") from error
        if Journal.read(copy / JOURNAL).digest != before.digest:
            raise Wrong("it was refused, and something of it was taken in") from error
        raise
    after = Journal.read(copy / JOURNAL)
    if len(after) != len(before) + (not receipt.known) or after.digest_of(len(before)) != before.digest:
        raise Wrong("the journal has not one record more")
    status(copy)
    os.unlink(log)
