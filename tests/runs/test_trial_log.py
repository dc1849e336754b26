"""A log of a trial is read exactly, and whatever is wrong with one is explained with its line and column."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import torch

from samba_rl import Quantity, RigTask
from samba_rl.errors import UserError
from samba_rl.runs.episodes import check_arrays, cut_short, traces_of
from samba_rl.runs.trial_log import read_log
from samba_rl.tasks.gym.task import GymTask
from tests.runs.systems import CountingRig

SOUND = """time,position,velocity,force,battery
0.0,0.0,1.5,2,11.9
0.1,0.25,1.0,-4.000001,11.8
0.2,0.5,0.5,,11.8
"""


def rig() -> RigTask:
    return RigTask(
        [Quantity("position", "m", -2.0, 2.0), "velocity"], ["force"], low=-4, high=4, horizon=3, dt=0.1,
        cost=lambda x, u: x[..., 0] + u[..., 0], safety=lambda x, u: x[..., 0].clamp(0, 1),
    )  # fmt: skip


def written(folder: Path, text: str) -> Path:
    path = folder / "trial.csv"
    path.write_text(text)
    return path


def test_rows_become_steps(tmp_path: Path) -> None:
    log = read_log(written(tmp_path, SOUND), rig())
    assert log.unused == ("battery",)
    (episode,) = log.episodes
    assert episode.x.tolist() == [[0.0, 1.5], [0.25, 1.0], [0.5, 0.5]]
    assert episode.u.tolist() == [[2.0], [-4.0]] and not episode.terminated  # a rounded action is inside again
    traces = traces_of(rig(), log.episodes, 3)
    assert traces.active.tolist() == [[True, True, False]]
    assert traces.cost.tolist() == [[2.25, -3.5, 0.0]] and traces.safety[0, :, 0].tolist() == [0.25, 0.5, 0.0]
    assert traces.x[0, -1].tolist() == [0.5, 0.5]
    (fault,) = cut_short(rig(), log.episodes)
    assert fault.stopped and (fault.episode, fault.step) == (0, 2)


def test_several_episodes_in_one_file(tmp_path: Path) -> None:
    text = "episode,terminated,x:position,velocity,u:force\n7,,0,0,1\n7,true,1,0,\n9,false,0,0,2\n9,0,1,0,3\n9,0,1,1,\n"
    log = read_log(written(tmp_path, text), rig())
    assert [len(one.u) for one in log.episodes] == [1, 2] and [one.terminated for one in log.episodes] == [True, False]
    assert [fault.episode for fault in cut_short(rig(), log.episodes)] == [1]
    traces = traces_of(rig(), log.episodes)
    assert traces.active.tolist() == [[True, False], [True, True]] and traces.terminated.tolist() == [True, False]


def changed(*edits: tuple[str, str]) -> str:
    text = SOUND
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (changed(("velocity", "velocitty")), r"line 1: there is no column 'velocity'; did you mean 'velocitty'"),
        (changed(("battery", "force")), "line 1: there are two columns 'force'"),
        (changed(("0.25,", "nan,")), "line 3, column 'position': nan is not a finite number"),
        (changed(("0.25,", ",")), "line 3, column 'position': the cell is empty"),
        (changed(("0.25,", "1_0,")), "line 3, column 'position': '1_0' is not a number"),
        (changed(("0.25,", "2.5,")), r"line 3, column 'position': 2.5 is outside of -2..2, the range of 'position'"),
        (changed((",2,", ",5,")), r"line 2, column 'force': 5 is outside of -4..4"),
        (changed((",2,", ",,")), "line 2, column 'force': the cell is empty; only the last row"),
        (changed(("0.2,", "0.5,")), "line 4, column 'time': 0.4 s after the row before it instead of 0.1 s"),
        (changed(("0.1,", "0.02,"), ("0.2,", "0.04,")), r"column 'time': the rows are 0.02 s apart; .* every 0.1 s"),
        (changed((",11.9\n", "\n")), "line 2 has 4 cells; the header has 5"),
        ("time,position,velocity,force\n0,0,0,1\n", "line 2: this episode has one row"),
        ("position,velocity,force\n", "has no rows"),
        ("", "is empty; its first line names the columns"),
        (
            "position,velocity,force,terminated\n0,0,1,true\n0,0,1,\n",
            "line 2, column 'terminated': the episode has ended here, but goes on",
        ),
        (
            "position,velocity,force,terminated\n0,0,1,perhaps\n0,0,1,\n",
            "line 2, column 'terminated': 'perhaps' is not",
        ),
        ('position,velocity,force\n"0,0,1\n', "cannot be read as CSV"),
    ],
)
def test_what_is_wrong_is_explained(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UserError, match=f"trial.csv'.*{words}"):
        read_log(written(tmp_path, text), rig())


def test_semicolons_and_decimal_commas_are_read(tmp_path: Path) -> None:
    due = read_log(written(tmp_path, SOUND), rig())
    found = read_log(written(tmp_path, SOUND.replace(",", ";").replace(".", ",")), rig())
    assert torch.equal(found.episodes[0].x, due.episodes[0].x) and torch.equal(found.episodes[0].u, due.episodes[0].u)


def test_files_that_are_none_are_named_without_numbers_of_errors(tmp_path: Path) -> None:
    huge = written(tmp_path, SOUND)
    os.truncate(huge, 2**41)
    for path, words in (
        (tmp_path / "none.csv", "No such file or directory"),
        (tmp_path, "it is not a regular file"),
        (Path("a\0b"), "no file can have such a name"),
        (Path("\ud800"), "no file can have such a name"),
        (huge, "it has 2,199,023,255,552 bytes; at most 536,870,912 are read"),
    ):
        with pytest.raises(UserError, match=rf"cannot be read as CSV: {words}"):
            read_log(path, rig())


def test_a_torn_last_line_is_left_out_if_the_program_was_stopped(tmp_path: Path) -> None:
    path = written(tmp_path, SOUND + "0.3,0.7")
    with pytest.raises(UserError, match="line 5 has 2 cells"):
        read_log(path, rig())
    assert len(read_log(path, rig(), torn=True).episodes[0].u) == 2


def test_measured_costs_are_read_from_the_file(tmp_path: Path) -> None:
    task = GymTask(CountingRig(), horizon=2)
    text = "observation 0,action 0,cost,safety\n0,1,3,0.5\n1,-1,4,0\n0,,,\n"
    traces = traces_of(task, read_log(written(tmp_path, text), task).episodes, 2)
    assert traces.cost.tolist() == [[3, 4]] and traces.safety.tolist() == [[[0.5], [0]]]
    assert traces.violation.tolist() == [[[True], [False]]]
    with pytest.raises(UserError, match=re.escape("there is no column 'cost'")):
        read_log(written(tmp_path, "observation 0,action 0\n0,1\n0,\n"), task)


def test_arrays_are_checked_likewise() -> None:
    x, u = torch.zeros(3, 2), torch.zeros(2, 1)
    assert len(check_arrays(rig(), x, u, terminated=False).episodes[0].u) == 2
    bad = x.clone()
    bad[1, 0] = torch.nan
    for states, actions, words in (
        (x[:2], u, r"give \[T \+ 1, 2\] and \[T, 1\]"),
        (bad, u, "state 1: 'position' is nan"),
        (x, u + 5, "action 0: 'force' is 5"),
    ):
        with pytest.raises(UserError, match=words):
            check_arrays(rig(), states, actions, terminated=False)
