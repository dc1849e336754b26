"""Power cuts and failing disks at every change that a run makes to its folder, for each family of learners."""

from __future__ import annotations

import errno
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from samba_rl.data.files import DiskError
from samba_rl.data.journal import Journal
from samba_rl.errors import UserError
from samba_rl.runs import load_run, resume, train
from samba_rl.runs.waiting import WaitingRun, new_run
from samba_rl.tasks.task import Task
from tests.line import Line
from tests.runs.disk import ERRORS, Cut, Disk, Mode
from tests.runs.interrupted import same
from tests.runs.test_killed import assert_same, metrics
from tests.runs.test_waiting import measured, rig
from tests.threads import one_thread

QUICK: dict[str, Any] = {
    "preset": "smoke", "seed": 1, "real_samples": 40, "episodes": 1, "first": {"samples": 20}, "checkpoint_every": 0.0,
}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "samba": {"imagination": {"iterations": 1, "last_iterations": 1, "trajectories": 10, "judged": 20, "starts": 0}},
    "ppo": {},
    "planet": {"latent": {"updates": 2, "first_updates": 4}},
}
"""One learner of each family, with little to do."""
TOLD = "told"
"""A run of SAMBA that waits for trials: asked for each policy, and told what was measured."""
WAYS = (*FAMILIES, TOLD)
MODES: tuple[Mode, ...] = ("lost", "kept", "torn")
SAMPLE = dict.fromkeys(WAYS, 4) | {TOLD: 1}
"""Moments of each kind in the default tests; the slow ones take all."""


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    with one_thread():
        yield


def system(learner: str) -> Task:
    return rig() if learner == TOLD else Line()


def start(folder: Path, learner: str) -> None:
    if learner == TOLD:
        settings = {name: value for name, value in QUICK.items() if name != "checkpoint_every"}
        new_run(folder, rig(), **{**settings, "real_samples": 20, "first": {"samples": 10}}, **FAMILIES["samba"])
        ask_and_tell(folder)
    else:
        train(Line(), learner, out=folder, **QUICK, **FAMILIES[learner])


def ask_and_tell(folder: Path) -> None:
    """Make the trials that a run asks for, the same ones every time, until it is finished."""
    while (request := WaitingRun(folder, rig()).ask()) is not None:
        WaitingRun(folder, rig()).tell(*measured(request.policy, 3 * request.trial + request.told))


def go_on(folder: Path, learner: str) -> None:
    """Resume a run, or begin it if it has not begun."""
    if not (folder / "config.json").exists():
        start(folder, learner)
    elif learner == TOLD:
        ask_and_tell(folder)
    else:
        resume(folder, Line(), checkpoint_every=0.0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Disk, Path]]:
    """A recorded run of each family."""
    found = {}
    with one_thread():
        for learner in WAYS:
            home = tmp_path_factory.mktemp(learner)
            disk = Disk(home)
            with disk.recording():
                start(home / "run", learner)
            found[learner] = disk, home / "run"
    return found


def check_after(folder: Path, acknowledged: tuple[int, str], learner: str, reference: Path) -> str:
    """Check that nothing acknowledged is lost and that the run ends as it would have; return how it went on."""
    count, digest = acknowledged
    if count:
        journal = Journal.read(folder / "real.journal")
        assert len(journal) >= count and journal.digest_of(count) == digest
    how = "resumed" if (folder / "config.json").exists() else "begun"
    assert how == "resumed" or not count
    go_on(folder, learner)
    if (folder / "real.journal.torn").exists():
        # A record whose flush had not ended, so nobody relied on it. It is kept aside, which is said.
        rows = [row for row in metrics(folder) if "real.journal was damaged" not in row.get("text", "")]
        assert len(rows) == len(metrics(folder)) - 1 and rows == metrics(reference)
        assert same(load_run(folder, system(learner)), load_run(reference, system(learner)))
        return "said"
    assert_same(folder, reference, system(learner))
    return how


def cuts(disk: Disk, sample: int | None) -> list[tuple[int, Mode]]:
    """Return moments of power cuts with what becomes of changes that were not flushed: all, or some of each mode."""
    moments = range(len(disk.changes) + 1)
    chosen = random.Random(0).sample
    return [(n, mode) for mode in MODES for n in (moments if sample is None else chosen(moments, sample))]


def power_cuts(disk: Disk, reference: Path, learner: str, home: Path, sample: int | None) -> Counter[str]:
    """Cut the power, go on, and count how it went on."""
    seen: Counter[str] = Counter()
    for number, mode in cuts(disk, sample):
        folder = home / f"{number}-{mode}"
        acknowledged = disk.after(number, mode, 0, folder)
        try:
            seen[check_after(folder / "run", acknowledged, learner, reference)] += 1
        except BaseException as error:
            raise AssertionError(f"after change {number}, unflushed changes {mode}: {error}") from error
        shutil.rmtree(folder)
    return seen


@pytest.mark.parametrize("learner", WAYS)
def test_a_power_cut_loses_nothing(learner: str, whole: dict[str, tuple[Disk, Path]], tmp_path: Path) -> None:
    disk, reference = whole[learner]
    assert sum(power_cuts(disk, reference, learner, tmp_path, SAMPLE[learner]).values()) == 3 * SAMPLE[learner]


@pytest.mark.slow
@pytest.mark.parametrize("learner", WAYS)
def test_a_power_cut_after_any_change_loses_nothing(
    learner: str, whole: dict[str, tuple[Disk, Path]], tmp_path: Path
) -> None:
    disk, reference = whole[learner]
    seen = power_cuts(disk, reference, learner, tmp_path, None)
    assert sum(seen.values()) == 3 * (len(disk.changes) + 1) and seen["begun"] > 3


def killed_then_cut(learner: str, call: int, reference: Path, home: Path) -> None:
    """Kill a run in a call, let a resumed one begin, and cut the power: what it has read was not flushed by anybody."""
    (home / "disk").mkdir(parents=True)
    disk, draw = Disk(home / "disk"), random.Random(call)
    with disk.recording():
        disk.fail(call, None)
        with pytest.raises(Cut):
            start(home / "disk" / "run", learner)
    first = len(disk.changes)
    with disk.recording():
        disk.fail(disk.calls + draw.randint(1, 25), None)
        with suppress(Cut):
            go_on(home / "disk" / "run", learner)
    for mode in MODES:
        for number in (draw.randint(first, len(disk.changes)), len(disk.changes)):
            folder = home / f"{mode}-{number}"
            check_after(folder / "run", disk.after(number, mode, call, folder), learner, reference)
            shutil.rmtree(folder)


@pytest.mark.parametrize("learner", WAYS)
def test_a_power_cut_after_a_kill_loses_nothing(
    learner: str, whole: dict[str, tuple[Disk, Path]], tmp_path: Path
) -> None:
    disk, reference = whole[learner]
    call = random.Random(learner).randint(20, disk.calls)
    killed_then_cut(learner, call, reference, tmp_path)


def test_a_record_that_a_killed_program_had_not_flushed_is_flushed_before_it_counts(
    whole: dict[str, tuple[Disk, Path]], tmp_path: Path
) -> None:
    names, append = whole["ppo"][0].names, ["pwrite", "pwrite", "flush"]
    second = [n for n in range(len(names)) if names[n : n + 3] == append][1]
    home = tmp_path / "disk"
    home.mkdir()
    disk = Disk(home)
    with disk.recording():
        disk.fail(second + 3, None)  # the record is written, and not flushed
        with pytest.raises(Cut):
            start(home / "run", "ppo")
    first = len(disk.changes)
    with disk.recording():
        go_on(home / "run", "ppo")
    # Until the next record is flushed, which would flush this one as well.
    until = next(n for n in range(first, len(disk.changes)) if disk.changes[n].kind == "ack")
    saved = [n for n in range(first, until) if disk.changes[n].kind == "rename"]
    assert saved  # a checkpoint that knows the record
    for number in (*saved, until):
        folder = tmp_path / str(number)
        check_after(folder / "run", disk.after(number + 1, "lost", 0, folder), "ppo", whole["ppo"][1])


@pytest.mark.slow
@pytest.mark.parametrize("learner", WAYS)
def test_a_power_cut_after_a_kill_at_any_call_loses_nothing(
    learner: str, whole: dict[str, tuple[Disk, Path]], tmp_path: Path
) -> None:
    disk, reference = whole[learner]
    for call in range(1, disk.calls + 1, 3):
        killed_then_cut(learner, call, reference, tmp_path / str(call))


def failing(learner: str, call: int, code: int, reference: Path, home: Path, *, on: bool) -> str:
    """Let a call fail in a run; return what happened. Nothing is lost, and the run ends as it would have."""
    home.mkdir(parents=True, exist_ok=True)
    disk, folder = Disk(home), home / "run"
    with disk.recording():
        disk.fail(call, code, on=on)
        outcome, said = "ignored", str(folder)
        try:
            start(folder, learner)
        except DiskError as error:
            outcome, said = "raised", str(error)
    assert str(folder) in said and "\n" not in said
    acknowledged = next(
        ((one.count, one.digest) for one in reversed(disk.changes) if one.kind == "ack"), (0, "")
    )  # fmt: skip
    assert disk.failed
    # A failed flush may have lost what was written, so it must not be ignored.
    assert outcome == "raised" or "flush" not in disk.failed, disk.failed
    if outcome == "ignored":
        assert_same(folder, reference, system(learner))
    elif folder.exists() and any(folder.iterdir()):
        check_after(folder, acknowledged, learner, reference)
    else:
        # A run that has measured nothing is removed.
        assert acknowledged == (0, "")
    return outcome


@pytest.mark.parametrize("learner", WAYS)
def test_a_call_that_fails_is_neither_ignored_nor_harmful(
    learner: str, whole: dict[str, tuple[Disk, Path]], tmp_path: Path
) -> None:
    disk, reference = whole[learner]
    draw = random.Random(learner)
    for number in range(SAMPLE[learner]):
        call, code = draw.randint(1, disk.calls), ERRORS[number % 2]
        failing(learner, call, code, reference, tmp_path / str(number), on=number % 4 < 2)


@pytest.mark.slow
@pytest.mark.parametrize("learner", WAYS)
def test_any_call_that_fails_is_neither_ignored_nor_harmful(
    learner: str, whole: dict[str, tuple[Disk, Path]], tmp_path: Path
) -> None:
    disk, reference = whole[learner]
    for call in range(1, disk.calls + 1):
        code, on = ERRORS[call % 2], call % 4 < 2
        try:
            failing(learner, call, code, reference, tmp_path / str(call), on=on)
        except (AssertionError, UserError, OSError) as error:
            raise AssertionError(f"call {call} failed with {errno.errorcode[code]}, on={on}: {error}") from error


# The disk itself ------------------------------------------------------------------------------------------------------


def test_what_was_flushed_is_there_and_what_was_not_may_be_lost(tmp_path: Path) -> None:
    """Counts by hand what each cut may leave of a file that is written, flushed, and named."""
    import os

    (tmp_path / "disk").mkdir()
    disk, path = Disk(tmp_path / "disk"), tmp_path / "disk" / "a"
    with disk.recording():
        file = os.open(path, os.O_WRONLY | os.O_CREAT)
        os.write(file, b"one")
        os.fsync(file)
        os.write(file, b"two")
        os.close(file)
        folder = os.open(tmp_path / "disk", os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        os.replace(path, path.with_name("b"))
    assert [change.kind for change in disk.changes] == ["name", "write", "flush", "write", "flush", "rename"]
    left = {}
    for mode in MODES[:2]:
        for count in range(7):
            target = tmp_path / f"{mode}{count}"
            disk.after(count, mode, 0, target)
            left[mode, count] = {each.name: each.read_bytes() for each in target.iterdir()}
    assert [left["lost", count] for count in range(7)] == [{}, {}, {}, {}, {}, {"a": b"one"}, {"a": b"one"}]
    assert [left["kept", count] for count in range(7)] == [
        {}, {"a": b""}, {"a": b"one"}, {"a": b"one"}, {"a": b"onetwo"}, {"a": b"onetwo"}, {"b": b"onetwo"},
    ]  # fmt: skip
