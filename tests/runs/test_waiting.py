"""A run that waits for the world ends as one that runs its trials itself, whatever happens in between."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from samba_rl import Receipt, RigTask, WaitingRun, new_run
from samba_rl.data.journal import Journal
from samba_rl.errors import Stopped, UserError
from samba_rl.events import Notice
from samba_rl.improve.experts import MixturePolicy
from samba_rl.improve.policies import GaussianPolicy
from samba_rl.runs import load_run, resume, train
from samba_rl.runs.status import status
from samba_rl.runs.verify import repair, verify
from samba_rl.types import Traces
from tests.runs.systems import cost, counting_rig, edge, same_policy
from tests.threads import one_thread

SMOKE: dict[str, Any] = {
    "preset": "smoke",
    "real_samples": 40,
    "first": {"samples": 20, "how": "held"},
    "episodes": 2,
    "seed": 3,
}


def rig(**changes: object) -> RigTask:
    about = {"cost": cost, "safety": edge, "horizon": 10, "dt": 1.0, "low": -1, "high": 1, **changes}
    return RigTask(["x"], ["u"], **about)  # type: ignore[arg-type]


def measured(policy: object, seed: int, start: float = -2.0) -> tuple[Tensor, Tensor]:
    """One episode of a point on a line that moves as far as the action says."""
    generator, states, actions = Generator().manual_seed(seed), [torch.tensor([[start + 0.1 * seed]])], []
    for _ in range(10):
        actions.append(policy(states[-1].double(), generator).clamp(-1, 1))  # type: ignore[operator]
        states.append(states[-1] + actions[-1])
    return torch.cat(states), torch.cat(actions)


def test_it_ends_as_a_run_that_makes_the_same_trials_itself(tmp_path: Path) -> None:
    with one_thread():
        own = train(counting_rig(), out=tmp_path / "own", **SMOKE)
        journal = Journal.read(tmp_path / "own" / "real.journal")
        new_run(tmp_path / "told", counting_rig(), **SMOKE)
        number = 0
        # Every call opens the run again, as a process of its own does.
        while (request := WaitingRun(tmp_path / "told", counting_rig()).ask()) is not None:
            record = journal.find(request.trial, request.told)
            assert record is not None and isinstance(record.steps, Traces)
            x, u = record.steps.x[0], record.steps.u[0]
            if request.forecast is None:
                again = request.policy(x[:1], Generator())
                assert torch.equal(again, u[:1])  # the actions that the run itself took
            receipt = WaitingRun(tmp_path / "told", counting_rig()).tell(x, u)
            assert receipt == Receipt("the arrays", 1, 10, request.trial)
            number += 1
        told = WaitingRun(tmp_path / "told", counting_rig()).result()
    assert number == 4 and same_policy(told, own)
    assert told.summary["real_samples"] == 40 and verify(tmp_path / "told").damaged == ()
    assert (tmp_path / "told" / "real.csv").read_bytes() == (tmp_path / "own" / "real.csv").read_bytes()


def test_a_record_that_telling_found_torn_is_reported_by_the_next_call_that_learns(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with one_thread():
        new_run(folder, rig(), **{**SMOKE, "episodes": 1, "first": {"samples": 10}})
        request = WaitingRun(folder, rig()).ask()
        assert request is not None
        episode = measured(request.policy, 1)
        WaitingRun(folder, rig()).tell(*episode)
        journal = folder / "real.journal"
        journal.write_bytes(journal.read_bytes()[:-5])  # the power failed before the flush
        WaitingRun(folder, rig()).tell(*episode)
        events: list[object] = []
        assert WaitingRun(folder, rig()).ask(log=events.append) is not None
        assert WaitingRun(folder, rig()).ask(log=events.append) is not None
    said = [str(event.text) for event in events if isinstance(event, Notice) and "was damaged" in event.text]
    assert said == [f"the last record of {journal} was damaged; it was moved to real.journal.torn"]
    assert (folder / "metrics.jsonl").read_text().count("moved to real.journal.torn") == 1


def test_asking_again_gives_the_same_policy_until_the_trial_is_told(tmp_path: Path) -> None:
    with one_thread():
        run = new_run(tmp_path / "run", rig(), **{**SMOKE, "episodes": 1, "first": {"samples": 10}})
        first = run.ask()
        assert first is not None and first.forecast is None and first.record["format"] == "samba-rl actions"
        run.tell(*measured(first.policy, 0))
        one = run.ask()
        again = WaitingRun(tmp_path / "run", rig()).ask()
    assert one is not None and again is not None and (one.trial, again.trial) == (1, 1)
    assert isinstance(one.policy, GaussianPolicy) and isinstance(again.policy, GaussianPolicy)
    ours, theirs = one.policy.state_dict(), again.policy.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert one.forecast == again.forecast and one.forecast is not None
    assert one.forecast.return_low < one.forecast.return_mean < one.forecast.return_high
    assert one.forecast.start == pytest.approx([-2.0])
    start = torch.tensor([one.forecast.start], dtype=torch.float64)
    assert one.forecast.first_action == pytest.approx(one.policy.mean_action(start)[0].clamp(-1, 1).tolist())


def test_a_request_that_was_altered_is_refused_and_made_again(tmp_path: Path) -> None:
    """A rig would act on it."""
    with one_thread():
        run = new_run(tmp_path / "run", rig(), **{**SMOKE, "episodes": 1, "first": {"samples": 10}})
        first = run.ask()
        assert first is not None
        run.tell(*measured(first.policy, 0))
        due = run.ask()
        assert due is not None and verify(run.folder).damaged == ()
        path = run.folder / "next.json"
        number = repr(due.record["layers"][0]["bias"][0])
        path.write_text(path.read_text().replace(number, number.replace(".", ".9"), 1))
        for call in (run.ask, run.pending, lambda: run.tell(*measured(due.policy, 1)), lambda: status(run.folder)):
            with pytest.raises(UserError, match=r"next.json is damaged \(it is not as it was written\); remove it"):
                call()
        (found,) = verify(run.folder).damaged
        assert found.file == "next.json" and "--repair sets it aside" in found.remedy
        assert repair(run.folder, rig()).damaged == () and not path.exists()
        again = run.ask()
    assert again is not None and again.record == due.record


def test_a_policy_follows_from_its_record_by_the_documented_formula(tmp_path: Path) -> None:
    with one_thread():
        run = new_run(tmp_path / "run", rig(), **{**SMOKE, "episodes": 1, "first": {"samples": 10}})
        first = run.ask()
        assert first is not None
        run.tell(*measured(first.policy, 0))
        request = run.ask()
    assert request is not None and isinstance(request.policy, GaussianPolicy)
    record = json.loads(json.dumps(request.record))
    for value in (-3.0, -0.3, 1.7):
        h = [(value - record["observation"]["centre"][0]) / record["observation"]["scale"][0]]
        for number, layer in enumerate(record["layers"]):
            rows = zip(layer["weight"], layer["bias"], strict=True)
            h = [sum(w * v for w, v in zip(row, h, strict=True)) + b for row, b in rows]
            h = [math.tanh(v) for v in h] if number < len(record["layers"]) - 1 else h
        squash, (low,), (high,) = (record["action"][name] for name in ("squash", "low", "high"))
        mean = (low + high) / 2 + (high - low) / 2 * squash * math.tanh(h[0] / squash)
        due = request.policy.mean_action(torch.tensor([[value]], dtype=torch.float64))
        assert mean == pytest.approx(due.item(), abs=1e-6)
    assert record["std"] == request.policy.std.tolist()


def test_a_policy_of_several_experts_waits_for_the_world_too(tmp_path: Path) -> None:
    several = {**SMOKE, "policy": {"experts": 2, "apart": 0, "gate_hidden": [3]}}
    with one_thread():
        own = train(counting_rig(), out=tmp_path / "own", **several)
        journal = Journal.read(tmp_path / "own" / "real.journal")
        run = new_run(tmp_path / "told", counting_rig(), **several)
        while (request := WaitingRun(run.folder, counting_rig()).ask()) is not None:
            record = journal.find(request.trial, request.told)
            assert record is not None and isinstance(record.steps, Traces)
            if request.forecast is not None:
                policy, forecast = request.policy, request.forecast
                assert isinstance(policy, MixturePolicy) and request.record["version"] == 2
                start = torch.tensor([forecast.start], dtype=torch.float64)
                assert forecast.first_action == pytest.approx(policy.act(start)[0].tolist(), abs=1e-6)
                # Reading the request back, and the file, gives the same policy.
                again = WaitingRun(run.folder, counting_rig()).pending()
                assert again is not None and isinstance(again.policy, MixturePolicy)
                ours, theirs = policy.state_dict(), again.policy.state_dict()
                assert all(torch.equal(value, theirs[name]) for name, value in ours.items())
            run.tell(record.steps.x[0], record.steps.u[0])
        told = run.result()
    assert same_policy(told, own) and isinstance(told.policy, MixturePolicy) and not told.policy.gate.apart


def test_what_is_told_twice_is_noticed(tmp_path: Path) -> None:
    with one_thread():
        run = new_run(tmp_path / "run", rig(), **SMOKE)
        request = run.ask()
        assert request is not None and (request.told, request.episodes) == (0, 2)
        x, u = measured(request.policy, 0)
        assert run.tell(x, u).trial == 0 and run.tell(x, u).known
        second = run.ask()
        assert second is not None and second.told == 1
        path = tmp_path / "both.csv"
        lines = ["episode,x,u"]
        for episode, states in enumerate((x, x + 0.5)):
            cells = zip(states[:, 0].double().tolist(), [*u[:, 0].tolist(), ""], strict=True)
            lines += [f"{episode},{state!r},{action}" for state, action in cells]
        path.write_text("\n".join(lines) + "\n")
        with pytest.raises(UserError, match=r"1 of its 2 episodes are in the run already .episode 0 is in trial 0"):
            run.tell_file(path)
        assert len(Journal.read(run.folder / "real.journal")) == 1
        assert not run.tell(x + 0.5, u).known


def test_trials_that_were_not_asked_for_are_data(tmp_path: Path) -> None:
    pilot = [measured(lambda o, g: 2 * torch.rand(1, 1, generator=g) - 1, seed) for seed in range(6)]
    with one_thread():
        run = new_run(tmp_path / "run", rig(), **{**SMOKE, "real_samples": 20, "first": {"samples": 0}, "episodes": 1})
        with pytest.raises(UserError, match=r"knows nothing of rig yet.*samba-rl tell"):
            run.ask()
        assert status(run.folder).state == "ask"
        assert run.tell(*pilot[0]).trial is None and run.tell(*pilot[1]).trial is None
        assert run.tell(*pilot[0]).known
        request = run.ask()
        assert request is not None and (request.trial, request.forecast is not None) == (0, True)
        # A trial is due: what follows is one of its own, unless it is said not to be.
        assert run.tell(*pilot[2], unasked=True).trial is None
        assert (status(run.folder).state, status(run.folder).other_samples) == ("tell", 30)
        assert run.tell(*pilot[3]).trial == 0
        assert run.tell(*pilot[4]).trial is None
        request = run.ask()
        assert request is not None and request.trial == 1
        assert run.tell(*pilot[5]).trial == 1
        assert run.ask() is None
    ended = load_run(run.folder, rig())
    assert ended.summary["real_samples"] == 20 and ended.summary["earlier_samples"] == 40
    # In the order in which the run learned from them, also when it is loaded.
    starts = ended.data.transitions.x[ended.data.transitions.step == 0][:, 0]
    due = torch.stack([pilot[k][0][0, 0] for k in (0, 1, 3, 2, 4, 5)]).double()
    assert torch.equal(starts, due)
    assert status(run.folder).state == "finished"
    with pytest.raises(UserError, match=r"is finished"):
        run.tell(*measured(request.policy, 9))


def test_data_are_learned_from_although_the_note_of_the_next_trial_was_removed(tmp_path: Path) -> None:
    pilot = [measured(lambda o, g: 2 * torch.rand(1, 1, generator=g) - 1, seed) for seed in range(4)]
    with one_thread():
        run = new_run(tmp_path / "run", rig(), **{**SMOKE, "first": {"samples": 0}, "episodes": 1})
        run.tell(*pilot[0])
        assert run.ask() is not None
        (run.folder / "next.json").unlink()
        assert run.tell(*pilot[1]).trial is None  # not asked for, as far as anyone knows
        request = run.ask()
        assert request is not None and request.trial == 0
        run.tell(*pilot[2])
        assert run.ask() is not None
    rows = (run.folder / "real.csv").read_text().splitlines()[1:]
    assert len(rows) == 30


def test_what_is_told_after_the_last_improvement_has_begun_is_kept_but_not_learned_from(tmp_path: Path) -> None:
    with one_thread():
        run = new_run(tmp_path / "run", rig(), **{**SMOKE, "real_samples": 10, "first": {"samples": 10}, "episodes": 1})
        request = run.ask()
        assert request is not None
        run.tell(*measured(request.policy, 0))
        with pytest.raises(Stopped):
            run.ask(stop=lambda: True)
        assert run.tell(*measured(lambda o, g: 0 * o + 0.1, 1)).trial is None
        assert run.ask() is None
        ended = load_run(run.folder, rig())
        assert len(ended.data) == len(ended.model) == 10
    assert verify(run.folder).damaged == () and status(run.folder).other_samples == 10
    (run.folder / "real.csv").write_text("")
    assert repair(run.folder, rig()).damaged == ()


def test_a_short_episode_counts_and_is_marked(tmp_path: Path) -> None:
    with one_thread():
        run = new_run(tmp_path / "run", rig(), **{**SMOKE, "episodes": 1, "first": {"samples": 10}})
        request = run.ask()
        assert request is not None
        x, u = measured(request.policy, 0)
        run.tell(x[:5], u[:4])
        assert run.ask() is not None
    record = Journal.read(run.folder / "real.journal").find(0, 0)
    assert record is not None and [fault.step for fault in record.faults] == [4]
    assert "stopped at step 4" in (run.folder / "metrics.jsonl").read_text()
    assert status(run.folder).real_samples == 4


def test_what_does_not_fit_the_trial_is_refused_whole(tmp_path: Path) -> None:
    with one_thread():
        run = new_run(tmp_path / "run", rig(), **{**SMOKE, "episodes": 1, "first": {"samples": 10}})
        request = run.ask()
        assert request is not None
        x, u = measured(request.policy, 0)
        longer = torch.cat([x, x[-1:]]), torch.cat([u, 0 * u[-1:]])
        with pytest.raises(UserError, match=r"an episode of 11 steps, but those of rig have 10.*--unasked"):
            run.tell(*longer)
        assert len(Journal.read(run.folder / "real.journal")) == 0
        assert run.tell(*longer, unasked=True).trial is None
        bad = rig(cost=lambda x, u: x[..., 0] / 0 * 0)
        with pytest.raises(UserError, match=r"'cost' is nan.*Nothing was taken in"):
            WaitingRun(run.folder, bad).tell(x, u)
        assert len(Journal.read(run.folder / "real.journal")) == 1


def test_asking_can_be_stopped_and_goes_on_to_the_same_policy(tmp_path: Path) -> None:
    states = []
    with one_thread():
        for name, stops in (("whole", False), ("stopped", True)):
            run = new_run(tmp_path / name, rig(), **{**SMOKE, "episodes": 1, "first": {"samples": 10}})
            request = run.ask()
            assert request is not None
            run.tell(*measured(request.policy, 0))
            if stops:
                for _ in range(2):
                    with pytest.raises(Stopped):
                        run.ask(stop=lambda: True)
            request = run.ask()
            assert request is not None and isinstance(request.policy, GaussianPolicy)
            states.append(request.policy.state_dict())
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def test_it_is_not_mistaken_for_a_run_of_the_other_kind(tmp_path: Path) -> None:
    new_run(tmp_path / "told", rig(), **SMOKE)
    with pytest.raises(UserError, match=r"waits for trials.*samba-rl ask"):
        resume(tmp_path / "told", rig())
    with pytest.raises(UserError, match=r"already holds a run"):
        new_run(tmp_path / "told", rig(), **SMOKE)
    with pytest.raises(UserError, match=r"needs a policy that a file can hold, and a planner is none"):
        new_run(tmp_path / "planner", rig(), "planet")
    with pytest.raises(UserError, match=r"first.stop = 0.5: .*let the rig stop by itself"):
        new_run(tmp_path / "planner", rig(), first={"stop": 0.5})
    assert not (tmp_path / "planner").exists()
    with one_thread(), pytest.raises(Stopped):
        train("safe-pendulum", preset="smoke", out=tmp_path / "own", stop=lambda: True)
    with pytest.raises(UserError, match=r"runs its trials itself"):
        WaitingRun(tmp_path / "own")
    with pytest.raises(UserError, match=r"runs its trials itself"):
        status(tmp_path / "own")
