"""The grid: its cells, and the loop that runs them whatever happens to any of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from samba_rl.agents.settings import PolicyGradientSettings
from samba_rl.benchmark.cells import Cell, read_results, write_result
from samba_rl.benchmark.grid import Failed, Finished, Grid, GridRun, Message, Progressed
from samba_rl.errors import UserError
from samba_rl.learners import LEARNERS
from samba_rl.presets import make_settings
from samba_rl.tasks import TASKS
from tests.benchmark.results import PENDULUM, a_result

# Cells of a grid ------------------------------------------------------------------------------------------------------


def test_the_paper_s_grid_has_every_learner_on_every_system() -> None:
    cells = Grid().cells()
    assert len(cells) == 10 * 3 * 3 == len({cell.name for cell in cells})
    assert {(cell.task, cell.learner) for cell in cells} == {(task, learner) for task in TASKS for learner in LEARNERS}
    assert [cell.seed for cell in cells[:30]] == [100] * 30  # every learner and system has its first seed early


def test_only_learners_with_a_limit_run_once_for_each_limit() -> None:
    cells = Grid(("ppo", "sppo", "samba"), (PENDULUM,), 1, limits=(0.25, 0.75)).cells()
    assert [(cell.learner, cell.limit) for cell in cells] == [
        ("ppo", None), ("sppo", 0.25), ("sppo", 0.75), ("samba", 0.25), ("samba", 0.75),
    ]  # fmt: skip
    settings = Cell(PENDULUM, "samba", 0, "paper", limit=0.25).settings()
    usual = make_settings(PENDULUM, "samba", "paper")
    assert isinstance(settings, PolicyGradientSettings) and isinstance(usual, PolicyGradientSettings)
    assert (settings.constraint.limit, settings.constraint.per) == (0.25, "trajectory")
    assert usual.constraint.per == "step"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Grid(learners=("sambo",)), "no learner is called 'sambo'; did you mean 'samba'?"),
        (lambda: Grid(tasks=("pendulum",)), "no system is called 'pendulum'; did you mean 'safe-pendulum'"),
        (lambda: Grid(preset="papper"), "no preset is called 'papper'"),
        (lambda: Grid(seeds=0), "seeds = 0; at least 1 is needed"),
        (lambda: Grid(budget_scale=0.0), "budget_scale = 0.0; it must be positive"),
    ],
)
def test_impossible_grids_are_refused(make: Callable[[], Grid], message: str) -> None:
    with pytest.raises(UserError) as error:
        make()
    assert str(error.value).startswith(message)


# The loop -------------------------------------------------------------------------------------------------------------


class Played:
    """A backend that plays a prescribed outcome for each attempt at a cell."""

    def __init__(self, slots: int, plays: dict[str, list[str]]) -> None:
        self._slots, self._plays = slots, plays
        self.running: list[Cell] = []
        self.most, self.stopped, self.started = 0, 0, [""][:0]

    @property
    def slots(self) -> int:
        return self._slots

    def start(self, cell: Cell) -> None:
        self.started.append(cell.learner)
        self.running.append(cell)
        self.most = max(self.most, len(self.running))

    def poll(self, timeout: float) -> list[Message]:
        cell = self.running.pop(0)
        play = self._plays.get(cell.learner, ["fine"])
        what = play.pop(0) if play else "fine"
        if what == "interrupt":
            raise KeyboardInterrupt
        if what == "fine":
            return [Progressed(cell, 0.5), Finished(cell, a_result(cell))]
        return [Failed(cell, what)]

    def stop(self) -> None:
        self.stopped += 1


def a_run(results: Path, *learners: str) -> GridRun:
    return GridRun(Grid(learners or ("samba", "ppo", "sppo"), (PENDULUM,), 1).cells(), results)


def test_all_cells_are_run_and_kept(tmp_path: Path) -> None:
    run, backend = a_run(tmp_path), Played(2, {})
    assert run.run(backend) == [] and backend.most == 2 and backend.stopped == 1
    assert {result.cell.learner for result in read_results(tmp_path)} == {"samba", "ppo", "sppo"}
    again, idle = a_run(tmp_path, "samba", "ppo", "sppo", "cpo"), Played(2, {})
    assert again.run(idle) == [] and idle.started == ["cpo"]


def test_a_failing_cell_is_tried_twice_and_does_not_stop_others(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    backend = Played(1, {"samba": ["it broke", "again"], "ppo": ["it broke"]})
    failed = run.run(backend)
    assert [(state.cell.learner, state.why, state.attempts) for state in failed] == [("samba", "again", 2)]
    assert sorted(backend.started) == ["ppo", "ppo", "samba", "samba", "sppo"]
    assert {result.cell.learner for result in read_results(tmp_path)} == {"ppo", "sppo"}
    once_more = Played(1, {})
    assert a_run(tmp_path).run(once_more) == [] and once_more.started == ["samba"]


def test_an_interrupt_stops_the_backend_and_keeps_finished_cells(tmp_path: Path) -> None:
    backend = Played(1, {"ppo": ["interrupt"]})
    with pytest.raises(KeyboardInterrupt):
        a_run(tmp_path).run(backend)
    assert backend.stopped == 1 and [result.cell.learner for result in read_results(tmp_path)] == ["samba"]


def test_the_result_of_another_cell_is_refused(tmp_path: Path) -> None:
    path = write_result(tmp_path, a_result(Cell(PENDULUM, "ppo", 100)))
    path.rename(tmp_path / f"{Cell(PENDULUM, 'samba', 100).name}.json")
    with pytest.raises(UserError, match="holds the result of another cell, safe-pendulum-ppo-default-100; remove it"):
        a_run(tmp_path)


def test_the_time_left_by_hand(tmp_path: Path) -> None:
    now = 0.0
    run = GridRun(Grid(("samba", "ppo"), (PENDULUM,), 2).cells(), tmp_path, lambda: now)
    assert run.seconds_left() is None
    first, second, third, _ = run.states.values()
    first.status, first.seconds = "finished", 100.0  # samba
    second.status, second.began, second.share = "running", 0.0, 0.25  # ppo
    now = 5.0
    # One after the other: the rest of ppo, 15 s; samba as before, 100 s; ppo as extrapolated, 20 s.
    assert run.seconds_left() == pytest.approx(15 + 100 + 20)
    run._slots = 2
    assert run.seconds_left() == pytest.approx((15 + 100 + 20) / 2)
    third.status, third.seconds = "finished", 50.0
    assert run.seconds_left() == pytest.approx((15 + 20) / 2)
