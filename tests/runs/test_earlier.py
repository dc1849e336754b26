"""Earlier data from files of other programs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from samba_rl import DataSet, GymTask, Schema, UniformPolicy, UserError, rollout
from samba_rl.presets import make_settings
from samba_rl.runs.earlier import LogReader, Source, earlier_data, mapping_of
from samba_rl.runs.earlier_report import report_on
from samba_rl.tasks.task import Task
from tests.line import Line
from tests.tasks.own_envs import Drift


def drift(**changes: Any) -> GymTask:
    functions = {
        "cost": lambda x, u: x[..., 0].square() + u[..., 0],
        "safety": lambda x, u: (x[..., 0] - 1).clamp(0, 1),
    }
    names: dict[str, Any] = {"states": ["place [m]", "push"], "actions": ["force"]}
    return GymTask(Drift, horizon=5, dt=0.5, name="drift", **{**functions, **names, **changes})


def read(task: Task, *files: Path, **more: Any) -> tuple[DataSet, tuple[Source, ...]]:
    return LogReader(task, **more).read([str(file) for file in files])


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


PLAIN = "place,push,force\n0.5,0,0.1\n1.5,0.25,0.2\n3,0.5,\n"


def test_a_log_without_costs_gets_them_from_the_task(tmp_path: Path) -> None:
    data, (source,) = read(drift(), written(tmp_path / "a.csv", PLAIN))
    steps = data.transitions
    assert steps.x.tolist() == [[0.5, 0], [1.5, 0.25]] and steps.x_next.tolist() == [[1.5, 0.25], [3, 0.5]]
    assert steps.u.tolist() == [[0.1], [0.2]]
    # By default a step is charged for the state that it reaches.
    assert steps.cost.tolist() == pytest.approx([2.25 + 0.1, 9 + 0.2])
    assert steps.safety.tolist() == [[0.5], [1]] and steps.violation.tolist() == [[True], [True]]
    assert source.computed == ("cost", "safety:safety", "violation:safety") and (source.episodes, source.steps) == (
        1,
        2,
    )
    departing, _ = read(drift(cost_of="departure"), tmp_path / "a.csv")
    assert departing.transitions.cost.tolist() == pytest.approx([0.25 + 0.1, 2.25 + 0.2])


def test_actions_beyond_the_bounds_are_kept_and_charged_as_clipped(tmp_path: Path) -> None:
    data, _ = read(drift(), written(tmp_path / "a.csv", "place,push,force\n0,0,9\n1,0,0\n"))
    assert data.transitions.u.tolist() == [[9]] and data.transitions.cost.tolist() == [1.5]
    report = report_on(drift(), data, (), make_settings("", "ppo"))
    assert report.outside == 1 and "outside the bounds" in report.lines()[1] and report.held_out is None


def test_costs_of_the_file_are_taken_as_they_are(tmp_path: Path) -> None:
    text = (
        "x:place,push,u:force,cost,safety:safety,violation:safety\n0,0,0,7,0.25,true\n1,0,0,8,0.5,false\n2,0,0,9,0,0\n"
    )
    data, (source,) = read(drift(cost=None, safety=None), written(tmp_path / "a.csv", text))
    assert data.transitions.cost.tolist() == [7, 8] and data.transitions.safety.tolist() == [[0.25], [0.5]]
    assert data.transitions.violation.tolist() == [[True], [False]] and source.computed == ()


def test_columns_are_mapped_and_rates_resampled(tmp_path: Path) -> None:
    rows = "\n".join(f"{0.25 * i},{i},{2 * i},{i % 2},warm" for i in range(5)).replace("warm", "20")
    path = written(tmp_path / "a.csv", f"t,position,v,volts,temperature\n{rows}\n")
    columns = {"time": "t", "place": "position", "push": "v", "force": "volts"}
    data, (source,) = read(drift(), path, columns=columns)
    assert data.transitions.x.tolist() == [[0, 0], [2, 4]] and data.transitions.u.tolist() == [[0.5], [0.5]]
    assert source.rate == "sampled every 0.25 s, resampled to 0.5 s" and source.unused == ("temperature",)
    del columns["time"]
    same, _ = read(drift(), path, columns=columns, dt=0.25)
    assert torch.equal(same.transitions.x, data.transitions.x)


def test_several_files_are_numbered_on(tmp_path: Path) -> None:
    first = written(tmp_path / "a.csv", "episode,place,push,force\n3,0,0,0\n3,1,0,0\n9,5,0,0\n9,6,0,0\n")
    data, sources = read(drift(), first, written(tmp_path / "b.csv", PLAIN))
    assert data.transitions.episode.tolist() == [0, 1, 2, 2] and [one.episodes for one in sources] == [2, 1]


def test_a_table_of_a_run_is_read_to_the_last_bit(tmp_path: Path) -> None:
    task = Line()
    traces = rollout(task.world(), UniformPolicy((-1.0,), (1.0,)), 3, generator=torch.Generator().manual_seed(0))
    data = DataSet.empty(Schema(("x",), ("u",), ("edge",))).append(traces)
    data.to_csv(tmp_path / "a.csv")
    back, (source,) = read(task, tmp_path / "a.csv")
    assert torch.equal(back.transitions.x, data.transitions.x) and torch.equal(
        back.transitions.cost, data.transitions.cost
    )
    assert source.computed == source.dropped == source.unused == ()


def test_minari(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    (tmp_path / "minari").mkdir()
    task = Line()
    traces = rollout(task.world(), UniformPolicy((-1.0,), (1.0,)), 3, generator=torch.Generator().manual_seed(0))
    DataSet.empty(Schema(("x",), ("u",), ("edge",))).append(traces).to_minari("line/pilot-v0")
    data, (source,) = LogReader(task).read(["line/pilot-v0"])
    assert torch.equal(data.transitions.x, traces.transitions().x) and source.episodes == 3


@pytest.mark.parametrize(
    ("text", "more", "message"),
    [
        ("place,push\n0,0\n", {}, r"no column for the action 'force' \(called u:force or force\); it has place, push"),
        (PLAIN, {"columns": {"speed": "push"}}, r"columns: drift has no 'speed'; .*\(place, push, force\), time"),
        (PLAIN, {"columns": {"place": "plaice"}}, r"has no column 'plaice' \(for place\); did you mean 'place'"),
        ("place,push,force,next:place\n0,0,0,1\n", {}, "has next:… for some states, but not for push"),
        ("place,push,force\n0,0,0\n", {}, r"has no transitions; omit it \(1 line \(2\): nothing follows after a gap\)"),
        ("place,push,force,terminated\n0,0,0,1\n1,0,0,0\n2,0,0,0\n", {}, r"a\.csv': episode 0 is terminated at step 0"),
        ("place,push,force\n0,0,x\n", {}, r"a\.csv', line 2, column 'force': 'x' is not a number"),
    ],
)
def test_what_does_not_fit_is_explained(text: str, more: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        read(drift(), written(tmp_path / "a.csv", text), **more)


def test_a_measured_cost_needs_a_column(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"its cost is measured.*Or give the file a column: .*a\.csv' has place, push"):
        read(drift(cost=None), written(tmp_path / "a.csv", PLAIN))


@pytest.mark.parametrize("columns", ["angle", "=theta", "angle=", "a=b,c"])
def test_mappings_that_are_none(columns: str) -> None:
    with pytest.raises(UserError, match="is not of the form NAME=COLUMN"):
        mapping_of(columns)
    assert mapping_of("angle = theta,time=t") == {"angle": "theta", "time": "t"}


# The report -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def pilot() -> Callable[[int], DataSet]:
    def of(episodes: int) -> DataSet:
        generator = torch.Generator().manual_seed(0)
        traces = rollout(Line().world(), UniformPolicy((-1.0,), (1.0,)), episodes, generator=generator)
        return DataSet.empty(Schema(("x",), ("u",), ("edge",))).append(traces)

    return of


def test_the_report_says_what_was_used_and_how_a_model_does(pilot: Callable[[int], DataSet]) -> None:
    data = pilot(6)
    report = report_on(Line(), data, (), make_settings("line", "samba", "smoke"))
    steps = data.transitions
    assert (report.episodes, report.steps, report.outside) == (6, 60, 0)
    ranges = {one.name: (one.low, one.high) for one in report.ranges}
    assert ranges["u"] == (float(steps.u.min()), float(steps.u.max()))
    assert ranges["x"][1] == float(torch.maximum(steps.x, steps.x_next).max())
    held = report.held_out
    # The fifth episode of six, and the last.
    assert held is not None and (held.learned, held.tried, held.by) == (40, 20, "whole episodes")
    # The line is linear: a model learns it from 40 steps.
    assert held.states[0].relative < 0.05 and held.states[0].coverage95 > 0.8
    assert "whole episodes" in report.lines()[-1] and "6 earlier episodes with 60 steps" in report.lines()[0]


def test_a_bad_model_is_seen(pilot: Callable[[int], DataSet]) -> None:
    steps = pilot(6).transitions
    noise = torch.randn(len(steps.x), 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    # States that have nothing to do with what came before: each step is an episode of its own.
    torn = {**vars(steps), "x_next": noise, "episode": torch.arange(60), "step": torch.zeros(60, dtype=torch.int64)}
    data = DataSet.empty(Schema(("x",), ("u",), ("edge",))).append(type(steps)(**torn))
    held = report_on(Line(), data, (), make_settings("line", "samba", "smoke")).held_out
    assert held is not None and held.states[0].error > 0.5


def test_one_episode_is_split_and_too_little_is_not_judged(pilot: Callable[[int], DataSet]) -> None:
    settings = make_settings("line", "samba", "smoke")
    assert report_on(Line(), pilot(1), (), settings).held_out is None
    world = Line().world()
    traces = rollout(world, UniformPolicy((-1.0,), (1.0,)), 1, 60, generator=torch.Generator().manual_seed(0))
    long = DataSet.empty(Schema(("x",), ("u",), ("edge",))).append(traces)
    held = report_on(Line(), long, (), settings).held_out
    assert held is not None and (held.learned, held.tried) == (48, 12) and "only episode" in held.by


def test_the_report_leaves_random_numbers_alone(pilot: Callable[[int], DataSet]) -> None:
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    report_on(Line(), pilot(6), (), make_settings("line", "samba", "smoke"))
    assert torch.equal(torch.rand(3), expected)


def test_a_mapping_without_files_is_a_mistake() -> None:
    from dataclasses import replace

    settings = make_settings("line")
    with pytest.raises(UserError, match="belong to earlier data"):
        earlier_data(Line(), None, replace(settings, first=replace(settings.first, columns="a=b")))
