"""Cutting logs into episodes and bringing them to a rate."""

from typing import Any

import numpy as np
import pytest

from samba_rl import UserError
from samba_rl.data.episodes import Found, Recording, pieces_of
from samba_rl.data.logs import Log


def found(x: Any, u: Any, dt: float = 1.0, log_dt: float | None = None, **more: Any) -> Found:
    states = np.array(x, dtype=np.float64)[:, None]
    others = {name: np.array(values, dtype=np.float64) for name, values in more.items()}
    if "x_next" in others:
        others["x_next"] = others["x_next"][:, None]
    recording = Recording(states, {"u": np.array(u, dtype=np.float64)}, **others)
    log = Log("a.csv", {}, np.arange(2, len(states) + 2))
    return pieces_of(log, recording, dt, log_dt)


def plain(result: Found) -> list[Any]:
    return [(piece.x[:, 0].tolist(), piece.held["u"].tolist()) for piece in result.pieces]


NAN = float("nan")


def test_the_next_line_is_the_state_reached_and_the_last_needs_no_action() -> None:
    result = found([1, 2, 3], [10, 20, NAN])
    assert plain(result) == [([1, 2, 3], [10, 20])] and result.dropped == {} and result.rate == ""


def test_a_line_for_each_step_has_its_own_end() -> None:
    assert plain(found([1, 2], [10, 20], x_next=[2, 3])) == [([1, 2, 3], [10, 20])]
    # The second step does not start where the first one ended.
    assert plain(found([1, 2], [10, 20], x_next=[5, 3])) == [([1, 5], [10]), ([2, 3], [20])]


def test_episodes_end_where_their_number_changes_or_the_time_begins_anew() -> None:
    pair = [([1, 2], [10]), ([5, 6], [30])]
    assert plain(found([1, 2, 5, 6], [10, 20, 30, 40], episode=[0, 0, 1, 1])) == pair
    assert plain(found([1, 2, 5, 6], [10, 20, 30, 40], time=[0, 1, 0, 1])) == pair


@pytest.mark.parametrize("gap", [{"time": [0, 1, 7, 8]}, {"step": [0, 1, 4, 5]}])
def test_a_gap_is_not_bridged(gap: dict[str, Any]) -> None:
    assert plain(found([1, 2, 5, 6], [10, 20, 30, 40], **gap)) == [([1, 2], [10]), ([5, 6], [30])]


def test_lines_that_lead_nowhere_are_named_with_the_reason() -> None:
    result = found([1, 2, NAN, 4, 5, 6, 9], [10, 20, 30, 40, NAN, 60, 70], episode=[0, 0, 0, 0, 0, 0, 1])
    assert plain(result) == [([1, 2], [10]), ([4, 5], [40])]
    assert result.dropped == {"a value is missing or not finite": [4], "nothing follows after a gap": [7, 8]}


def test_a_faster_log_is_resampled() -> None:
    # Every 0.5 s: states at whole seconds stay, actions are averaged over each second.
    result = found([0, 1, 2, 3, 4], [2, 4, 6, 10, 0], log_dt=0.5)
    assert plain(result) == [([0, 2, 4], [3, 8])] and result.rate == "sampled every 0.5 s, resampled to 1 s"
    # A ramp stays a ramp at any ratio.
    ramp = found(np.arange(31) * 0.3, np.full(31, 2.0), log_dt=0.3)
    assert plain(ramp) == [(pytest.approx(list(range(10))), pytest.approx([2.0] * 9))]


def test_unsteady_times_are_resampled() -> None:
    times = np.array([0.0, 0.9, 2.05, 3.0, 4.1])
    result = found(3 * times, [1, 1, 1, 1, 1], time=times)
    assert plain(result) == [(pytest.approx([0, 3, 6, 9, 12]), pytest.approx([1] * 4))]
    assert "unsteadily, resampled to 1 s" in result.rate


def test_each_piece_is_resampled_with_its_own_times() -> None:
    times = [0, 0.5, 1, 7, 7.5, 8, 20]
    result = found([0, 1, 2, 5, 6, 7, 9], [1, 1, 1, 2, 2, 2, 3], time=times)
    assert plain(result) == [([0, 2], [1]), ([5, 7], [2])]


def test_rates_that_cannot_be_used() -> None:
    with pytest.raises(UserError, match=r"a line every 2 s, but the system takes a step every 1 s.* Give .* dt=2"):
        found([1, 2, 3], [1, 1, 1], log_dt=2.0)
    with pytest.raises(UserError, match="prevent resampling"):
        found([1, 2], [1, 1], log_dt=0.5, x_next=[2, 3])
    with pytest.raises(UserError, match="the time never increases"):
        found([1, 2], [1, 1], time=[3, 3])
    with pytest.raises(UserError, match="it must be positive"):
        found([1, 2], [1, 1], log_dt=0.0)
