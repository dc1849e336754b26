"""TensorBoard's events, read back."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from samba_rl.errors import UserError
from samba_rl.events import Notice
from samba_rl.runs.tensorboard import TensorBoardLog
from tests.cli.test_progress import IMPROVEMENT, TRIAL

pytest.importorskip("tensorboard")


def test_numbers_are_grouped_and_come_back(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = TensorBoardLog(tmp_path / "events")
    assert not (tmp_path / "events").exists()
    for event in (
        TRIAL,
        IMPROVEMENT,
        replace(IMPROVEMENT, lambda_pi=0.7),
        Notice("look"),
        replace(TRIAL, surprise=1.5),
    ):
        log(event)
    log.close()
    found = EventAccumulator(str(tmp_path / "events"))
    found.Reload()
    names = found.Tags()["scalars"]
    assert {name.split("/")[0] for name in names} == {"trial", "model", "constraint", "policy"}
    assert [(e.step, round(e.value, 6)) for e in found.Scalars("policy/lambda_pi")] == [(1, 0.6), (2, 0.7)]
    assert [(e.step, e.value) for e in found.Scalars("trial/return")] == [(20, -12.5)] * 2
    # What is not known is left out.
    assert [e.value for e in found.Scalars("model/surprise")] == [1.5] and math.isnan(TRIAL.surprise)
    assert [e.value for e in found.Scalars("constraint/0/lambda")] == [1.25] * 2


def test_without_the_package_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'samba-rl\[tensorboard\]'"):
        TensorBoardLog(tmp_path)


def test_events_of_before_stay_until_the_first_new_one(tmp_path: Path) -> None:
    """Until then another process may be writing to the folder, and the run may be refused."""
    owner = tmp_path / "events.out.tfevents.1"
    owner.write_text("live")
    TensorBoardLog(tmp_path, [TRIAL]).close()
    assert owner.read_text() == "live"
    log = TensorBoardLog(tmp_path, [TRIAL])
    log(IMPROVEMENT)
    log.close()
    assert not owner.exists() and len(list(tmp_path.glob("events.out.tfevents.*"))) == 1


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.1").mkdir()
    with pytest.raises(UserError, match=r"events\.out\.tfevents\.1 cannot be written"):
        TensorBoardLog(tmp_path, [TRIAL])(IMPROVEMENT)
