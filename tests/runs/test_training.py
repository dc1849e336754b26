"""`train`: learning, settings, earlier data, and mistakes that are found before anything real happens."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import samba_rl
from samba_rl.agents.settings import ModelBasedSettings
from samba_rl.agents.words import to_words
from samba_rl.cli import main
from samba_rl.data import DataSet, Schema
from samba_rl.errors import UserError
from samba_rl.events import Event, TrialReport
from samba_rl.improve.constraints import Chance, Expectation
from samba_rl.improve.limits import ConstraintSettings, FurtherConstraint
from samba_rl.improve.objectives import Cost, Information
from samba_rl.improve.policies import UniformPolicy
from samba_rl.improve.updates.proximal import ProximalSettings
from samba_rl.improve.updates.rules import Proximal
from samba_rl.learners import LEARNERS, GPModel, LatentModel, Learner
from samba_rl.models.zeta import LeaveOneOut
from samba_rl.presets import make_settings
from samba_rl.runs import Run, load_run, train
from samba_rl.runs.evaluation import evaluate
from samba_rl.runs.folder import Default
from samba_rl.runs.listing import overview
from samba_rl.runs.summary import name_of
from samba_rl.tasks.pendulum import SafePendulum
from samba_rl.tasks.rollout import rollout
from tests.line import Line, quick_settings
from tests.runs.systems import same_policy

OWN = Learner(GPModel(), (Cost(), Information(LeaveOneOut())), Expectation, Proximal())
LEARNERS_AND_OWN = [*LEARNERS, OWN]


# Learning -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("learner", LEARNERS_AND_OWN, ids=[*LEARNERS, "own"])
def test_each_learner_solves_a_trivial_system_in_seconds(learner: str | Learner) -> None:
    task = Line()
    uniform = evaluate(task, UniformPolicy((-1.0,), (1.0,)), steps=1000).return_mean
    run = train(task, learner, settings=quick_settings(learner))
    best = -2.0  # about what full speed and then rest costs
    assert run.evaluate(1000, seed=0).return_mean > 3 * best > 0.2 * uniform
    assert run.evaluate(1000, seed=0, deterministic=True).TV == 0
    assert run.learner == (learner if isinstance(learner, str) else "model-expectation-proximal-loo")
    assert run.summary["real_samples"] == run.settings.real_samples
    assert len(run.trials) in (5, 9, 41) and bool(run.improvements) != isinstance(run.row.source, LatentModel)


def test_a_limit_keeps_a_learner_from_what_the_cost_alone_would_have() -> None:
    task = Line(goal=1.0)
    careful = train(task, "samba", settings=quick_settings("samba")).evaluate(1000, seed=0)
    careless = train(task, "ppilco", settings=quick_settings("ppilco")).evaluate(1000, seed=0)
    assert careful.limit == 0.75 and careless.limit is None
    assert careful.cvar < 3 < 5 < careless.cvar
    assert careful.return_mean < careless.return_mean


def test_the_seed_decides() -> None:
    runs = [train("safe-pendulum", preset="smoke", seed=seed, feasibility_iterations=0) for seed in (0, 0, 1)]
    assert same_policy(runs[0], runs[1]) and not same_policy(runs[0], runs[2])
    assert [t.return_mean for t in runs[0].trials] == [t.return_mean for t in runs[1].trials]
    first, same, other = (run.evaluate(300, seed=0) for run in runs)
    assert first == same != other


def test_settings_can_be_changed_in_part() -> None:
    row = replace(LEARNERS["samba"].with_zeta(None), constraint=Chance)
    usual = make_settings("", preset="smoke")
    assert isinstance(usual, ModelBasedSettings)
    run = train(
        Line(), row, preset="smoke", real_samples=70, constraint={"limit": 0.5},
        imagination=replace(usual.imagination, trajectories=30),
        more_constraints=(FurtherConstraint(kind="expectation", limit=2.0),),
    )  # fmt: skip
    assert isinstance(run.settings, ModelBasedSettings) and run.row == row
    assert run.settings.constraint == ConstraintSettings(limit=0.5)
    assert [type(constraint) for constraint in run.constraints] == [Chance, Expectation]
    assert run.settings.imagination.trajectories == 30 and run.settings.imagination.iterations == 2
    assert [c["limit"] for c in run.summary["constraints"]] == [0.5, 2.0] and len(run.constraints) == 2
    assert run.summary["lambda_pi"] == 1.0 and run.summary["real_samples"] == 70


def test_a_row_of_ones_own_has_the_name_that_it_was_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = replace(LEARNERS["samba"], constraint=Chance)
    run = train(Line(), row, name="cautious", preset="smoke", real_samples=70, out=tmp_path / "runs" / "mine")
    assert run.learner == run.summary["learner"] == "cautious" and run.row == row
    config = json.loads((tmp_path / "runs" / "mine" / "config.json").read_text())
    assert config["learner"] == "cautious" and config["row"] == to_words(row)
    assert overview(tmp_path / "runs" / "mine").learner == "cautious"
    assert main(["runs", str(tmp_path / "runs"), "--json"]) == 0
    assert [one["learner"] for one in json.loads(capsys.readouterr().out)] == ["cautious"]
    loaded = load_run(tmp_path / "runs" / "mine", Line())
    assert loaded.learner == "cautious" and loaded.row == row and "cautious on line" in repr(loaded)


def test_names_of_rows() -> None:
    changed = replace(LEARNERS["samba"], constraint=Chance)
    assert [name_of(learner) for learner in ("ppo", LEARNERS["ppo"], changed)] == [
        "ppo",
        "ppo",
        "model-chance-proximal-information",
    ]


def test_events_are_heard_and_kept(pendulum: Run) -> None:
    heard: list[Event] = []
    run = train("safe-pendulum", preset="smoke", seed=3, log=heard.append)
    assert [e for e in heard if isinstance(e, TrialReport)] == list(run.trials)
    assert len(heard) == len(run.trials) + len(run.improvements) + len(run.notices)
    assert same_policy(run, pendulum) and run.folder is None
    assert len(run.model) == len(run.data) == run.summary["real_samples"]
    assert "samba on safe-pendulum, seed 3" in repr(run)


def test_the_summary_says_what_the_run_came_to(pendulum: Run) -> None:
    summary = pendulum.summary
    assert (summary["task"], summary["learner"], summary["preset"], summary["seed"]) == (
        "safe-pendulum", "samba", "smoke", 3,
    )  # fmt: skip
    assert summary["real_samples"] == pendulum.trials[-1].real_samples == len(pendulum.data)
    assert summary["earlier_samples"] == 0 and summary["episodes"] == pendulum.data.episodes
    assert summary["learning_TC"] == pytest.approx(float(pendulum.data.transitions.safety.sum()))
    assert summary["learning_TV"] == int(pendulum.data.transitions.violation.sum())
    returns = [t.return_mean for t in pendulum.trials for _ in range(t.episodes)]
    assert summary["return_last_trials"] == pytest.approx(sum(returns) / len(returns))
    (limit,) = summary["constraints"]
    assert limit["limit"] == 0.75 and limit["feasible"] in (True, False) and limit["least"] is not None
    assert summary["notices"] == [notice.text for notice in pendulum.notices]
    assert summary["versions"]["samba_rl"] == samba_rl.__version__ and summary["versions"]["torch"]
    assert summary["threads"] == 1 and summary["device"] == "cpu"
    assert sum(summary["seconds_by_phase"].values()) == pytest.approx(summary["seconds"], rel=0.1)


# Earlier data ---------------------------------------------------------------------------------------------------------


def some_data(task: Line, episodes: int = 3) -> DataSet:
    traces = rollout(task.world(), UniformPolicy((-1.0,), (1.0,)), episodes, generator=torch.Generator().manual_seed(5))
    return DataSet.empty(Schema(("x",), ("u",), ("edge",))).append(traces)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_earlier_data_are_taken_in_and_do_not_count(suffix: str, tmp_path: Path) -> None:
    task, path = Line(), tmp_path / f"earlier.{suffix}"
    data = some_data(task)
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
        data.to_parquet(path)
    else:
        data.to_csv(path)
    run = train(task, preset="smoke", data=path, first={"samples": 0}, real_samples=20)
    assert run.summary["real_samples"] == 20 and run.summary["earlier_samples"] == 30 and len(run.data) == 50
    assert torch.equal(run.data.transitions.x[:30], data.transitions.x)
    assert run.settings.first.data == str(path)
    again = train(task, preset="smoke", data=data, first={"samples": 0}, real_samples=20)
    assert same_policy(run, again)


def test_columns_in_another_order_are_put_right() -> None:
    task = SafePendulum()
    policy = UniformPolicy((-2.0,), (2.0,))
    steps = rollout(task.world(), policy, 2, generator=torch.Generator().manual_seed(0)).transitions()
    names = tuple(q.name for q in task.states)
    straight = DataSet.empty(Schema(names, ("torque",), ("hazard",))).append(steps)
    turned = replace(steps, x=steps.x.flip(1), x_next=steps.x_next.flip(1))
    crossed = DataSet.empty(Schema(names[::-1], ("torque",), ("hazard",))).append(turned)
    runs = [
        train(task, "ppilco", preset="smoke", data=data, first={"samples": 0}, real_samples=30)
        for data in (straight, crossed)
    ]
    assert same_policy(*runs)


# Mistakes -------------------------------------------------------------------------------------------------------------


def renamed(data: DataSet) -> DataSet:
    return DataSet.empty(Schema(("y",), ("u",), ("edge",))).append(data.transitions)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"data": "x.txt"}, "cannot read earlier data from 'x.txt'; give .csv or .parquet files"),
        ({"data": "none.csv"}, "'none.csv' cannot be read as CSV"),
        ({"data": renamed(some_data(Line()))}, "given data set does not fit line: its states are y; expected x"),
        ({"data": DataSet.empty(Schema(("x",), ("u",), ("edge",)))}, "has no transitions"),
        ({"first": {"samples": 0}}, "there is nothing to start from"),
        ({"real_samples": 9, "first": {"samples": 0}}, "too small for line: its episodes have 10 steps; give at least"),
        ({"real_samples": 15, "first": {"samples": 11}}, "first.samples = 11 means 20; give at least 30"),
        ({"real_sample": 9}, "no argument or setting 'real_sample'; did you mean 'real_samples'"),
        ({"real_samples": "many"}, "settings.real_samples is 'many'; it must be a whole number"),
        ({"real_samples": 3, "first": {"samples": 5}}, r"^real_samples = 3: must be at least first\.samples = 5, and"),
        ({"multiplier": {"slack": math.inf}}, r"^multiplier\.slack = inf: must be at least 0 and at most 100$"),
        ({"multiplier": {"slack": math.nan}}, r"^multiplier\.slack = nan: must be a number$"),
        ({"update": ProximalSettings(kl_target=math.nan)}, r"^update\.kl_target = nan: must be a number$"),
        ({"more_constraints": [{"limit": math.nan}]}, r"^more_constraints\.0\.limit = nan: must be a number$"),
        ({"constraint": {"limit": 10**400}}, r"settings\.constraint\.limit has too many digits"),
        ({"episodes": 10**5000}, r"^episodes = about 10\^5000: must be at least 1 and at most 1e9$"),
        ({"settings": "smoke"}, r"settings is 'smoke'; give what make_settings"),
        ({"seed": "1"}, "seed = '1'; it must be a whole number"),
        ({"learner": "sppilco", "weights": {"spread": False}}, r"^weights\.spread has no effect: the learner seeks no"),
        ({"zeta": "entropy"}, r"'zeta' is a choice of the learner, not a setting: give a row, such as LEARNERS\["),
        ({"rule": "trust-region"}, "'rule' is a choice of the learner, not a setting: give a row"),
        ({"traces": "real"}, "'traces' is a choice of the learner, not a setting: give a row"),
        ({"constraint": {"kind": "chance"}}, "'constraint.kind' is a choice of the learner, not a setting: give a row"),
        ({"latent": {"batch": 3}}, "no argument or setting 'latent'"),
        ({"settings": quick_settings("ppo")}, "ModelFreeSettings are not for a learner on a GP model; make_settings"),
        ({"constraint": {"of": "hazard"}}, "no safety cost is called 'hazard'"),
        ({"constraint": ConstraintSettings}, "settings.constraint is"),
        ({"preset": "smok"}, "no preset is called 'smok'; did you mean 'smoke'?"),
        ({"learner": "sanba"}, "no learner is called 'sanba'; did you mean 'samba'?"),
        ({"settings": quick_settings(), "learner": "sanba"}, "no learner is called 'sanba'"),
        ({"task": "lime"}, "no system is called 'lime'"),
        ({"seed": -1}, "seed = -1"),
        ({"device": "gpu"}, "device = 'gpu' is unknown; give cpu or cuda"),
        ({"device": "meta"}, "device = 'meta' is not supported"),
        ({"device": "cuda:99"}, "device = 'cuda:99', but PyTorch sees"),
        ({"out": "/dev/null/x"}, "/dev/null/x cannot be written: Not a directory"),
    ],
)
def test_mistakes_are_named_before_anything_real_happens(arguments: dict[str, Any], message: str) -> None:
    trials: list[Event] = []
    with pytest.raises(UserError, match=message):
        train(**{"task": Line(), "preset": "smoke", "log": trials.append, **arguments})
    assert not trials


def test_a_failure_before_the_first_trial_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Line, workers: int | None = None) -> None:
        raise RuntimeError("no rig")

    monkeypatch.setattr(Line, "world", fail)
    with pytest.raises(RuntimeError, match="no rig"):
        train(Line(), preset="smoke", out=tmp_path / "deep" / "down")
    assert not list(tmp_path.iterdir())


def test_without_a_folder_a_run_gets_one_and_with_none_it_gets_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    quick: dict[str, Any] = {"preset": "smoke", "seed": 4, "real_samples": 20, "first": {"samples": 10}}
    runs = [train(Line(), out=Default.FOLDER, **quick) for _ in range(2)]
    assert [run.folder for run in runs] == [Path("runs/line-samba-4"), Path("runs/line-samba-4-2")]
    assert "in runs/line-samba-4>" in repr(runs[0]) and same_policy(load_run("runs/line-samba-4", Line()), runs[1])
    assert train(Line(), out=None, **quick).folder is None
    assert sorted(path.name for path in Path("runs").iterdir()) == ["line-samba-4", "line-samba-4-2"]


def test_the_default_is_a_folder_for_users() -> None:
    """The tests themselves change it, so another process says what it is."""
    code = "import inspect, samba_rl; print(inspect.signature(samba_rl.train).parameters['out'].default.value)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "runs/SYSTEM-LEARNER-SEED"
