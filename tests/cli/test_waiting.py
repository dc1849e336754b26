"""new, ask, tell and status, as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from samba_rl.cli import main
from tests.cli.commands import error_of

MINE = """
from samba_rl import RigTask

def cost(x, u):
    return (x[..., 0] - 1) ** 2

def safety(x, u):
    return ((x[..., 0] - 1) / 0.2).clamp(0, 1)

def task():
    return RigTask(["position", "velocity"], ["force"], low=-4, high=4, cost=cost, safety=safety, horizon=10, dt=0.1,
                   name="cart")
"""
FLAGS = ["--preset", "smoke", "--real-samples", "20", "--first.samples", "10", "--constraint.limit", "1.5"]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MINE)


def trial(name: str, actions: list[float]) -> str:
    """Write the log of a cart that is pushed."""
    position, velocity, lines = 0.0, 0.0, ["time,position,velocity,force"]
    for step, action in enumerate(actions):
        lines.append(f"{0.1 * step:.3f},{position!r},{velocity!r},{action!r}")
        velocity += 0.1 * (action - 2 * position)
        position += 0.1 * velocity
    Path(name).write_text("\n".join([*lines, f"{0.1 * len(actions):.3f},{position!r},{velocity!r},"]) + "\n")
    return name


def words(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_from_a_new_run_to_its_policy(capsys: pytest.CaptureFixture[str]) -> None:
    own = ["--task", "mine.py:task"]
    assert main(["new", "run", *own, *FLAGS]) == 0
    assert "samba-rl ask run --task mine.py:task" in words(capsys)
    assert main(["status", "run"]) == 0
    assert "The policy of trial 0 can be asked for. samba-rl ask run --task mine.py:task" in words(capsys)
    assert main(["ask", "run", *own, "-o", "next.policy"]) == 0
    said = words(capsys)
    assert "Trial 0: 1 episode of 10 steps of 0.1 s" in said and "columns time, position, velocity, force" in said
    actions = [action for (action,) in json.loads(Path("next.policy").read_text())["sequence"]]
    assert len(actions) == 10 and main(["tell", "run", trial("0.csv", actions), *own]) == 0
    assert "taken in as trial 0 (1 episode, 10 steps)" in words(capsys)
    assert main(["tell", "run", "0.csv", *own]) == 0 and "has it already" in words(capsys)
    assert main(["runs", "run"]) == 0 and "waiting" in words(capsys)
    assert main(["ask", "run", *own, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["trial"], answer["told"], answer["file"]) == (1, 0, "run/next.policy")
    assert answer["forecast"]["limits"][0]["limit"] == 1.5 and answer["picture"] == "run/forecast-1.png"
    assert Path("run/forecast-1.png").read_bytes().startswith(b"\x89PNG") and not Path("run/forecast-0.png").exists()
    assert main(["ask", "run", *own]) == 0
    said = words(capsys)
    assert "Run the policy in run/next.policy, with its noise" in said
    assert "What the model expects is drawn in run/forecast-1.png" in said
    record = json.loads(Path("run/next.policy").read_text())
    assert record["format"] == "samba-rl policy" and record["action"]["high"] == [4.0]
    assert main(["status", "run"]) == 0
    assert "Trial 1 is due: 1 episode of 1. samba-rl tell run trial.csv --task mine.py:task" in words(capsys)
    assert main(["runs", "."]) == 0 and "waiting 10/20" in words(capsys)
    assert main(["tell", "run", trial("1.csv", [0.5] * 10), *own]) == 0
    assert main(["status", "run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["real_samples"] == 20
    assert main(["ask", "run", *own, "-o", "final.policy", "--no-pictures"]) in (0, 4)
    said = words(capsys)
    assert "the final policy is in final.policy" in said and "samba-rl eval" not in said
    assert json.loads(Path("final.policy").read_text())["provenance"]["trial"] is None
    assert main(["status", "run"]) == 0 and "is finished" in words(capsys)


def test_what_only_the_rig_can_run_is_refused_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Not only once a number of episodes is given."""
    own = ["--task", "mine.py:task"]
    assert main(["new", "run", *own, *FLAGS]) == 0
    assert main(["tell", "run", trial("0.csv", [0.5] * 10), "--unasked", *own]) == 0
    capsys.readouterr()
    assert main(["ask", "run", *own, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    # The data that were not asked for made a model, but the actions of a first trial are fixed.
    assert answer["trial"] == 0 and answer["forecast"] is None
    for number in (1, 2):
        assert main(["tell", "run", trial(f"{number}.csv", [0.1 * number] * 10), *own]) == 0
        assert main(["ask", "run", *own, "--no-pictures"]) in (0, 4)
    for command in (["render", "run", "film.gif"], ["eval", "run"], ["certify", "run"]):
        for many in ([], ["--episodes", "1"]):
            error = error_of([*command, *own, *many], capsys)
            assert "cart runs outside of this program, which cannot run an episode" in error
            assert "--episodes" not in error
    assert "cart runs outside" in error_of(["rollout", "mine.py:task"], capsys)


def test_several_experts_are_asked_for_and_told(capsys: pytest.CaptureFixture[str]) -> None:
    own = ["--task", "mine.py:task"]
    assert main(["new", "run", *own, *FLAGS, "--policy.experts", "2", "--policy.apart", "0"]) == 0
    assert main(["ask", "run", *own]) == 0
    actions = [action for (action,) in json.loads(Path("run/next.policy").read_text())["sequence"]]
    assert main(["tell", "run", trial("0.csv", actions), *own]) == 0
    capsys.readouterr()
    assert main(["ask", "run", *own]) == 0
    said = words(capsys)
    assert "Run the policy in run/next.policy, with its noise and the expert that it draws at the start" in said
    assert Path("run/forecast-1.png").exists()
    record = json.loads(Path("run/next.policy").read_text())
    assert record["version"] == 2 and len(record["gate"][-1]["bias"]) == 2
    assert main(["tell", "run", trial("1.csv", [0.5] * 10), *own]) == 0
    assert main(["ask", "run", *own, "-o", "final.policy", "--no-pictures"]) in (0, 4)
    assert main(["export", "run", *own, "policy.json", "--check", "policy.json"]) == 0
    exported, final = (json.loads(Path(name).read_text()) for name in ("policy.json", "final.policy"))
    assert exported["gate"] == final["gate"] and exported["layers"] == final["layers"]


def test_mistakes_are_explained_and_nothing_is_taken_in(capsys: pytest.CaptureFixture[str]) -> None:
    own = ["--task", "mine.py:task"]
    assert "samba-rl new RUN --task SYSTEM" in error_of(["new", "run"], capsys)
    assert "samba-rl new RUN --task SYSTEM" in error_of(["new", *own], capsys)
    assert "--real-sample" in error_of(["new", "run", *own, "--real-sampels", "3"], capsys)
    assert not Path("run").exists()
    assert main(["new", "run", *own, *FLAGS]) == 0
    going_on = "samba-rl ask run --task mine.py:task"
    assert f"already holds a run; continue it with: {going_on}" in error_of(["new", "run", *own, *FLAGS], capsys)
    assert f"did not finish, or was copied only in part. Continue it with: {going_on}" in error_of(
        ["eval", "run", *own], capsys
    )
    assert "cannot be written" in error_of(["ask", "run", *own, "-o", "no/such/folder"], capsys)
    for name in ("real.journal", "config.json", "next.json", "metrics.jsonl", "policy-20.npz"):
        assert f"run/{name} is a file of the run itself" in error_of(["ask", "run", *own, "-o", f"run/{name}"], capsys)
    assert len(Path("run/metrics.jsonl").read_text()) == 0  # nothing was learned before that was noticed
    assert "--task mine.py:task" in error_of(["ask", "run"], capsys)
    good, bad = trial("good.csv", [0.1] * 10), trial("bad.csv", [5.0] * 10)
    error = error_of(["tell", "run", good, bad, *own], capsys)
    assert "'bad.csv', line 2, column 'force': 5 is outside of -4..4" in error
    assert "no file was given" in error_of(["tell", "run", *own], capsys)
    Path("run/next.json").write_text("{")
    for command in (["status", "run"], ["ask", "run", *own], ["tell", "run", good, *own]):
        assert "next.json is damaged" in error_of(command, capsys)
    Path("run/next.json").unlink()
    assert "there.csv" in error_of(["tell", "run", "there.csv", *own], capsys)
    assert main(["status", "run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["other_samples"] == 0
    assert f"waits for trials that are told to it; go on with: {going_on}" in error_of(["resume", "run", *own], capsys)
    assert main(["new", "--help"]) == 0


def test_ask_writes_through_no_link_in_a_folder_from_a_stranger() -> None:
    own = ["--task", "mine.py:task"]
    assert main(["new", "run", *own, *FLAGS]) == 0
    Path("elsewhere").write_text("mine")
    Path("run/next.policy").symlink_to(Path("elsewhere").absolute())
    assert main(["ask", "run", *own, "--no-pictures"]) == 0
    assert Path("elsewhere").read_text() == "mine" and not Path("run/next.policy").is_symlink()
    Path("mine.policy").symlink_to("elsewhere")
    assert main(["ask", "run", *own, "-o", "mine.policy"]) == 0  # a link of one's own is followed
    assert json.loads(Path("elsewhere").read_text())["format"] == "samba-rl actions"


def test_a_dry_run_checks_everything_and_does_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    rig = ["--rig", "python run.py {policy} {trial}", "--dry-run"]
    assert main(["train", "mine.py:task", *FLAGS, *rig]) == 0
    said = words(capsys)
    assert "1 episode of trial 0, with the actions of a first trial: python run.py runs/cart-samba-0/trials" in said
    assert "11 rows 0.1 s apart, with the columns time, position, velocity, force" in said and '"sequence": [[' in said
    Path("pilot.csv").write_text(Path(trial("0.csv", [0.5] * 10)).read_text().replace("position", "place"))
    data = ["train", "mine.py:task", *FLAGS, "--first.samples", "0", "--data", "pilot.csv"]
    assert main([*data, "--columns", "position=place", *rig]) == 0
    said = words(capsys)
    assert "pilot.csv: 1 episode" in said and "with a policy, once the data before the run are learned from" in said
    for arguments, why in (
        ([*data, *rig], "has no column for the state 'position'"),
        ([*data, "--columns", "position=plac", *rig], "has no column 'plac' (for position); did you mean 'place'?"),
        ([*data, "--columns", "place=position", *rig], "columns: cart has no 'place'"),
        (["train", "mine.py:task", *FLAGS, "--rig", "no-such {policy} {trial}", "--dry-run"], "no program 'no-such'"),
        (["train", "mine.py:task", "--preset", "smoke", "--learner", "planet", *rig], "a planner is none"),
        (["train", "mine.py:task", *FLAGS, "--dry-run"], "--dry-run shows the command of --rig"),
    ):
        assert why in error_of(arguments, capsys)
    assert sorted(path.name for path in Path().iterdir() if path.is_dir()) in ([], ["__pycache__"])
