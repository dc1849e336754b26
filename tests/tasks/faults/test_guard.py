"""`GuardedWorld` keeps what was measured when a system misbehaves, and lets the other episodes go on."""

import re
import signal
import threading
import time
from collections.abc import Iterator

import pytest
import torch

from samba_rl import SafePendulum, UniformPolicy, UserError, rollout
from samba_rl.tasks.faults.guard import GuardedWorld, SystemFault
from samba_rl.types import Fault
from tests.tasks.faults.systems import (
    FAULTS,
    RELEASE,
    TROUBLES,
    Loose,
    Moody,
    Notes,
    all_finite,
    rig_task,
    same_up_to,
    script,
    seeded,
    task_of,
)

RANDOM = UniformPolicy((-2.0,), (2.0,))


@pytest.fixture(autouse=True)
def _release() -> Iterator[None]:
    RELEASE.clear()
    yield
    RELEASE.set()


@pytest.mark.parametrize("timeout", [None, 5.0])
@pytest.mark.parametrize("trouble", FAULTS)
def test_an_episode_of_a_rig_is_kept_up_to_the_step_that_failed(trouble: str, timeout: float | None) -> None:
    undisturbed = rollout(rig_task(Moody(calm=True)).world(), script(1), 1, generator=seeded())
    rig = Moody()
    world = GuardedWorld(rig_task(rig).world(), timeout=timeout)
    traces = rollout(world, script(1, {0: (3, trouble)}), 1, generator=seeded())
    text = f"Moody: step 3 failed: {FAULTS[trouble]}"
    assert world.faults == [Fault(episode=0, step=3, text=text)]
    assert same_up_to(traces, undisturbed, 0, 3) and all_finite(traces)
    assert torch.equal(traces.x[0, 3:], traces.x[0, 3].expand(4, 2)) and not bool(traces.terminated.any())
    # A system that has failed is not used again before the next reset.
    assert int(rig.x[1]) == 4
    assert len(rig.threads) == 1 and (threading.get_ident() in rig.threads) == (timeout is None)
    again = rollout(world, script(1), 1, generator=seeded())
    assert world.faults == [] and not world.hung and torch.equal(again.x, undisturbed.x)
    world.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_each_episode_fails_in_its_own_way_and_the_others_go_on(workers: int) -> None:
    kinds = list(FAULTS)
    troubles = {2 * i + 1: (i % 5, kind) for i, kind in enumerate(kinds)}
    n = 2 * len(kinds) + 1
    calm = task_of(calm=True).world(0)
    undisturbed = rollout(calm, script(n, troubles), n, generator=seeded())
    world = GuardedWorld(task_of().world(workers))
    traces = rollout(world, script(n, troubles), n, generator=seeded())
    expected = {
        episode: (step, f"Moody: step {step} failed: {FAULTS[kind]}") for episode, (step, kind) in troubles.items()
    }
    assert {fault.episode: (fault.step, fault.text) for fault in world.faults} == expected
    assert [fault.step for fault in world.faults] == sorted(step for step, _ in troubles.values())
    assert len(world.faults) == len(kinds) and all_finite(traces)
    for episode in range(n):
        assert same_up_to(traces, undisturbed, episode, troubles[episode][0] if episode in troubles else 6)
    # The next rollout runs as if nothing had happened.
    again = rollout(world, script(n), n, generator=seeded(1))
    assert torch.equal(again.x, rollout(calm, script(n), n, generator=seeded(1)).x) and world.faults == []
    world.close()


def test_a_process_that_hangs_or_dies_is_ended_and_replaced() -> None:
    calm = task_of(calm=True).world(0)
    undisturbed = rollout(calm, script(4), 4, generator=seeded())
    world = GuardedWorld(task_of().world(2), timeout=1.0)
    # Episodes 1 and 3 share a process. The first was answered before the other hung, but fails at the next step.
    traces = rollout(world, script(4, {3: (2, "hang")}), 4, generator=seeded())
    text = "Moody: step {} failed: no answer within 1 s"
    assert world.faults == [Fault(3, 2, text.format(2)), Fault(1, 3, text.format(3))]
    assert [int(steps) for steps in traces.active.sum(1)] == [6, 3, 6, 2] and all_finite(traces)
    assert torch.equal(traces.x[[0, 2]], undisturbed.x[[0, 2]])

    traces = rollout(world, script(4, {0: (1, "death")}), 4, generator=seeded())
    assert sorted((fault.episode, fault.step) for fault in world.faults) == [(0, 1), (2, 1)]
    assert re.match(r"Moody: step 1 failed: a simulation process died \(exit code -9, SIGKILL\)", world.faults[0].text)
    assert torch.equal(traces.x[[1, 3]], undisturbed.x[[1, 3]])

    # With a timeout, a single episode runs in a process too.
    traces = rollout(world, script(1, {0: (5, "hang")}), 1, generator=seeded())
    assert world.faults == [Fault(0, 5, text.format(5))] and not world.hung
    assert traces.steps == 5
    assert torch.equal(rollout(world, script(4), 4, generator=seeded()).x, undisturbed.x)
    assert world.faults == []
    world.close()


@pytest.mark.parametrize("timeout", [None, 5.0])
@pytest.mark.parametrize(
    ("trouble", "text", "others"),
    [
        ("state", f"{SafePendulum().states[1].name} is inf", True),
        ("cost", "cost is -inf", True),
        ("safety", "hazard is nan", True),
        ("both", "θ is nan", True),
        ("own", "the system reports a failure", True),
        ("shape", "costs of shape [3, 1]; expected [3]", False),
        ("no tensor", "terminated is a bool; expected a tensor of shape [3]", False),
        ("no step", "AttributeError: 'NoneType' object has no attribute 'x'", False),
        ("exception", "ZeroDivisionError: division by zero", False),
    ],
)
def test_any_world_is_guarded(trouble: str, text: str, others: bool, timeout: float | None) -> None:
    undisturbed = rollout(Loose(), RANDOM, 3, generator=seeded())
    loose = Loose(trouble)
    world = GuardedWorld(loose, timeout=timeout)
    traces = rollout(world, RANDOM, 3, generator=seeded())
    failed = [1] if others else [0, 1, 2]
    assert world.faults == [Fault(row, 2, f"safe-pendulum: step 2 failed: {text}") for row in failed]
    assert all_finite(traces) and loose.gradients == {False}
    for row in range(3):
        assert same_up_to(traces, undisturbed, row, 2 if row in failed else 6)
    assert not bool(traces.violation[failed][:, 2:].any())
    world.close()


@pytest.mark.parametrize(
    ("trouble", "text"),
    [
        ("reset shape", "reset failed: states of shape [3, 1]; expected [3, 2]"),
        ("reset nan", "reset failed: θ is nan in episode 1"),
        ("reset exception", "reset failed: ValueError"),
        ("reset hang", "reset failed: no answer within 0.5 s"),
    ],
)
def test_a_failing_reset_is_a_fault_of_the_system(trouble: str, text: str) -> None:
    loose = Loose(trouble)
    world = GuardedWorld(loose, timeout=0.5)
    world.faults = [Fault(0, 0, "an earlier one")]
    with pytest.raises(SystemFault) as caught:
        world.reset(3, seeded())
    assert str(caught.value) == f"safe-pendulum: {text}" and world.faults == []
    assert world.hung == (trouble == "reset hang")
    loose.trouble = ""
    if not world.hung:
        assert world.reset(3, seeded()).shape == (3, 2)


@pytest.mark.parametrize(
    ("trouble", "text"),
    [
        ("nan", "Moody: reset failed: .*: the observation holds NaN or infinity: observation 1 is nan"),
        ("shape", r"Moody: reset failed: reset returned a state of shape \[3\]; expected \[2\]"),
        ("exception", "Moody: reset failed: RuntimeError: motor fault at 80 °C"),
    ],
)
def test_a_failing_reset_of_a_rig_is_a_fault_of_the_system(trouble: str, text: str) -> None:
    rig = Moody()
    world = GuardedWorld(rig_task(rig).world())
    rig.at_reset = trouble
    with pytest.raises(SystemFault, match=text):
        world.reset(1, seeded())
    rig.at_reset = ""
    assert rollout(world, script(1), 1, generator=seeded()).steps == 6


@pytest.mark.parametrize("kind", ["rig", "factory", "world"])
def test_a_system_that_hangs_in_this_process_is_never_used_again(kind: str) -> None:
    began = time.monotonic()
    if kind == "world":
        world = GuardedWorld(Loose("hang"), timeout=0.5)
        traces = rollout(world, RANDOM, 3, generator=seeded())
        rows = [(0, 2), (1, 2), (2, 2)]
    elif kind == "rig":
        world = GuardedWorld(rig_task(Moody()).world(), timeout=0.5)
        traces = rollout(world, script(1, {0: (2, "hang")}), 1, generator=seeded())
        rows = [(0, 2)]
    else:
        world = GuardedWorld(task_of().world(0), timeout=0.5)
        traces = rollout(world, script(3, {1: (2, "hang")}), 3, generator=seeded())
        # The first episode was answered; it fails at the next step.
        rows = [(1, 2), (2, 2), (0, 3)]
    assert world.hung and all_finite(traces) and traces.steps == sum(step for _, step in rows)
    assert [(fault.episode, fault.step) for fault in world.faults] == rows
    assert all(fault.text.endswith(f"step {fault.step} failed: no answer within 0.5 s") for fault in world.faults)
    with pytest.raises(SystemFault, match=r"has not answered since 20.*; restart the program once the system works"):
        world.reset(1, seeded())
    with pytest.raises(SystemFault, match="has not answered since"):
        world.render(traces.x[0, 0], None, 0, 16)
    assert world.state_dict() == {}
    world.close()
    assert time.monotonic() - began < 3
    RELEASE.set()
    # Even if the call returns, what it did in the meantime is unknown.
    time.sleep(0.05)
    assert world.hung


@pytest.mark.parametrize("timeout", [None, 5.0])
def test_an_interrupt_is_passed_on(timeout: float | None) -> None:
    rig = Moody()
    world = GuardedWorld(rig_task(rig).world(), timeout=timeout)
    with pytest.raises(KeyboardInterrupt):
        rollout(world, script(1, {0: (1, "interrupt")}), 1, generator=seeded())
    rig.at_reset = "interrupt"
    with pytest.raises(KeyboardInterrupt):
        world.reset(1, seeded())
    world.close()


@pytest.mark.parametrize("workers", [0, 1])
def test_ctrl_c_works_while_waiting_for_an_answer(workers: int) -> None:
    world = GuardedWorld(task_of().world(workers), timeout=5.0)
    x = world.reset(1, seeded())
    slow = torch.full((1, 1), 0.5 + (TROUBLES.index("slow") + 1) / 64, dtype=torch.float64)
    timer = threading.Timer(0.2, lambda: signal.raise_signal(signal.SIGINT))
    began = time.monotonic()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        world.step(x, slow)
    assert time.monotonic() - began < 1
    timer.join()
    # The late answer is not mistaken for the next one.
    assert torch.equal(world.reset(1, seeded()), x) and world.faults == []
    step = world.step(x, slow * 0)
    assert step.x[:, 1].tolist() == [1] and step.failed is None
    world.close()


def test_a_recorder_sees_every_step_that_took_place() -> None:
    notes = Notes()
    world = GuardedWorld(task_of().world(0), recorder=notes)
    traces = rollout(world, script(2, {0: (2, "nan"), 1: (4, "exception")}), 2, generator=seeded())
    assert len(notes.starts) == 1 and torch.equal(notes.starts[0], traces.x[:, 0])
    assert len(notes.steps) == 4
    for t, (x, u, step) in enumerate(notes.steps):
        assert torch.equal(x, traces.x[:, t]) and torch.equal(u, traces.u[:, t])
        assert torch.equal(step.x, traces.x[:, t + 1]) and torch.equal(step.charges.cost, traces.cost[:, t])
        assert step.failed is not None and step.failed.tolist() == [t >= 2, False]
    world.close()


def test_restarted_episodes_count_their_steps_from_zero() -> None:
    world = GuardedWorld(task_of().world(0))
    x = world.reset(3, seeded())
    bad = torch.tensor([[0.0], [0.5 + 1 / 64], [0.0]], dtype=torch.float64)
    x = world.step(x, bad).x
    # The failed episode is left alone until it is reset.
    x = world.step(x, bad).x
    assert x[:, 1].tolist() == [2, 0, 2] and [(fault.episode, fault.step) for fault in world.faults] == [(1, 0)]
    x[1] = world.reset(1, seeded(), slots=torch.tensor([1]))[0]
    x = world.step(x, bad * 0).x
    assert x[:, 1].tolist() == [3, 1, 3]
    step = world.step(x, bad)
    assert step.failed is not None and step.failed.tolist() == [False, True, False]
    assert [(fault.episode, fault.step) for fault in world.faults] == [(1, 0), (1, 1)]


def test_equations_are_guarded_without_a_thread() -> None:
    task = SafePendulum()
    before = threading.active_count()
    world = GuardedWorld(task.world(), timeout=1e-9)
    traces = rollout(world, RANDOM, 20, generator=seeded())
    plain = rollout(task.world(), RANDOM, 20, generator=seeded())
    assert threading.active_count() == before and world.task is task and not world.hung
    assert torch.equal(traces.x, plain.x) and torch.equal(traces.cost, plain.cost)
    assert world.render(traces.x[0, 0], None, 0, 32).shape == (32, 32, 3)
    assert world.state_dict() == {}
    world.load_state_dict({})
    with pytest.raises(UserError, match=r"safe-pendulum: keeps no state across resets, but was given \['0/wear'\]"):
        world.load_state_dict({"0/wear": torch.ones(())})
    world.close()


def test_a_mistake_of_the_caller_is_still_an_error() -> None:
    with pytest.raises(UserError, match="safe-pendulum: timeout = 0; give a positive number of seconds"):
        GuardedWorld(SafePendulum().world(), timeout=0)
    with pytest.raises(OSError, match="cannot close"):
        GuardedWorld(Loose("close"), timeout=1.0).close()
