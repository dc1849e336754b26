import dataclasses
import subprocess
import sys
import tempfile

import pytest
import torch
from hypothesis import given, settings
from torch import Generator

from samba_rl import SafePendulum, UniformPolicy, UserError, rollout
from samba_rl.data import DataSet, Schema
from samba_rl.types import Traces
from tests.data.examples import SCHEMA, Change, alter, data_sets, full, joined, needs, same, steps

# Growth ---------------------------------------------------------------------------------------------------------------


def test_an_empty_data_set_has_the_right_shapes() -> None:
    data = DataSet.empty(SCHEMA)
    assert len(data) == data.episodes == 0
    assert data.transitions.x.shape == (0, 2) and data.transitions.safety.shape == (0, 2)
    assert data.transitions.violation.dtype == torch.bool and data.transitions.episode.dtype == torch.int64


def test_appending_leaves_the_old_data_set_unchanged_and_can_branch() -> None:
    first = full({4: 3})
    before = dataclasses.replace(first.transitions, x=first.transitions.x.clone())
    second, other = first.append(steps({1: 2}, seed=1)), first.append(steps({1: 5}, seed=2))
    assert same(first.transitions, before) and first.episodes == 1
    assert second.episodes == other.episodes == 2 and len(second) == 5 and len(other) == 8
    assert same(second.transitions, full({4: 3}).append(steps({1: 2}, seed=1)).transitions)
    assert second.transitions.episode.tolist() == [4, 4, 4, 1, 1]
    assert torch.equal(other.transitions.x[3:], steps({1: 5}, seed=2).x)


def test_appended_steps_are_copied() -> None:
    given_steps = steps({0: 3})
    data = DataSet.empty(SCHEMA).append(given_steps)
    given_steps.x.zero_()
    assert same(data.transitions, steps({0: 3}))


def test_many_appends_equal_one_and_rarely_copy_rows() -> None:
    data = DataSet.empty(SCHEMA)
    history = [(data := data.append(steps({i: 30}, seed=i))).transitions for i in range(200)]
    whole = joined([steps({i: 30}, seed=i) for i in range(200)])
    assert data.episodes == 200 and same(data.transitions, DataSet.empty(SCHEMA).append(whole).transitions)
    # All earlier transitions are still alive, and together they hold few blocks of memory: 30, 60, 120, … rows.
    blocks = {old.x.untyped_storage().data_ptr(): old.x.untyped_storage() for old in history}
    assert len(blocks) <= 9 and sum(block.nbytes() for block in blocks.values()) <= 4 * 200 * 30 * 2 * 8


def test_the_numbers_of_traces_continue() -> None:
    x = torch.randn(3, 5, 2, generator=Generator().manual_seed(0))
    active = torch.tensor([[True] * 4, [True, True, False, False], [True] * 4])
    traces = Traces(
        x=x,
        observation=x[:, :-1],
        u=torch.ones(3, 4, 1),
        cost=torch.ones(3, 4),
        safety=torch.zeros(3, 4, 2),
        violation=torch.zeros(3, 4, 2, dtype=torch.bool),
        active=active,
        terminated=torch.tensor([False, True, False]),
        wanted=torch.ones(3, 4, 1),
    )
    data = full({7: 2, 3: 1}).append(traces).append(traces)
    assert data.episodes == 8 and len(data) == 3 + 2 * 10
    assert data.transitions.episode.tolist() == [7, 7, 3] + [
        k for i in (8, 11) for k in [i] * 4 + [i + 1] * 2 + [i + 2] * 4
    ]
    assert data.transitions.step[3:13].tolist() == [0, 1, 2, 3, 0, 1, 0, 1, 2, 3]
    assert data.transitions.terminated.nonzero()[:, 0].tolist() == [8, 18]
    assert torch.equal(data.transitions.x[3:7], x[0, :4].double())
    below_zero = DataSet.empty(SCHEMA).append(steps({-9: 1, -4: 2, -7: 1})).append(traces)
    assert set(below_zero.transitions.episode.tolist()) == {-9, -7, -4, -3, -2, -1}
    assert set(DataSet.empty(SCHEMA).append(traces).transitions.episode.tolist()) == {0, 1, 2}
    broken = dataclasses.replace(traces, active=torch.tensor([[True, False, True, True]] * 3))
    with pytest.raises(UserError, match="episode 0 has step 2 in place of step 1; give all steps in order"):
        DataSet.empty(SCHEMA).append(broken)


def test_narrow_types_are_widened_exactly() -> None:
    wide = steps({0: 4})
    narrow = dataclasses.replace(
        wide, x=wide.x.float(), x_next=wide.x_next.float(), u=wide.u.half().requires_grad_(), step=wide.step.int()
    )
    narrow = dataclasses.replace(narrow, cost=torch.tensor([1, -2, 2**53, 0]))
    kept = DataSet.empty(SCHEMA).append(narrow).transitions
    assert kept.x.dtype == kept.u.dtype == torch.float64 and not kept.u.requires_grad
    assert torch.equal(kept.x, wide.x.float().double()) and torch.equal(kept.u, wide.u.half().double())
    assert kept.cost.tolist() == [1, -2, 2**53, 0] and kept.step.dtype == torch.int64


def test_it_grows_in_and_out_of_inference_mode() -> None:
    with torch.inference_mode():
        data = full({0: 3}).append(steps({1: 1}))
    assert data.append(steps({2: 1})).append(steps({3: 1})).episodes == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: dataclasses.replace(t, x=t.x[:, :1]), r"x of 6 steps has shape \[6, 1\]; .*'θ̇'.* needs \[6, 2\]"),
        (lambda t: dataclasses.replace(t, u=t.u[:, 0]), r"u of 6 steps has shape \[6\]; .* needs \[6, 1\]"),
        (lambda t: dataclasses.replace(t, safety=t.safety[:, :1]), r"safety .* needs \[6, 2\]"),
        (lambda t: dataclasses.replace(t, cost=t.cost[:5]), r"cost of 6 steps has shape \[5\]; .* needs \[6\]"),
        (lambda t: dataclasses.replace(t, violation=t.safety), "violation is of type torch.float64, which torch.bool"),
        (lambda t: dataclasses.replace(t, episode=t.cost), "episode is of type torch.float64, which torch.int64"),
        (lambda t: dataclasses.replace(t, u=t.u.to(torch.complex128)), "u is of type torch.complex128"),
        (lambda t: dataclasses.replace(t, cost=t.step + 2**53), "cost is of type torch.int64, which torch.float64"),
        (alter("x", (0, 1), torch.nan), "episode 5, step 0: 'x:θ̇' is nan; it must be finite"),
        (alter("u", (5, 0), torch.inf), "episode 9, step 1: 'u:torque' is inf"),
        (alter("x_next", (3, 0), -torch.inf), "episode 5, step 3: 'next:θ' is -inf"),
        (alter("cost", 2, torch.nan), "episode 5, step 2: 'cost' is nan"),
        (alter("safety", (1, 1), torch.nan), "episode 5, step 1: 'safety:wall, left' is nan"),
        (alter("step", 0, 1), "episode 5 has step 1 in place of step 0"),
        (alter("step", 2, 3), "episode 5 has step 3 in place of step 2"),
        (alter("episode", 1, 9), "episode 5 is split into 2 pieces"),
        (alter("episode", slice(4, 6), 2), "episode 2 is already in the data set; number new ones from 3"),
        (alter("x", (2, 1), 0.25), "episode 5, step 2 starts at 'θ̇' = 0.25, but step 1 ended at -?[0-9]"),
        (alter("terminated", 1, True), r"episode 5 is terminated at step 1 of 0\.\.3; only its last step may be"),
    ],
)
def test_steps_that_do_not_fit_are_rejected_as_a_whole(change: Change, message: str) -> None:
    data = full({2: 3}, seed=1)
    with pytest.raises(UserError, match=message):
        data.append(change(steps({5: 4, 9: 2}, ends=(5,))))
    assert len(data) == 3 and same(data.transitions, steps({2: 3}, seed=1))
    assert data.append(steps({5: 4, 9: 2}, ends=(5,))).episodes == 3


def test_states_must_match_to_the_sign_of_zero() -> None:
    jump = alter("x", (1, 0), -0.0)(alter("x_next", (0, 0), 0.0)(steps({0: 2})))
    with pytest.raises(UserError, match=r"step 1 starts at 'θ' = -0\.0, but step 0 ended at 0\.0"):
        DataSet.empty(SCHEMA).append(jump)


# Written and read -----------------------------------------------------------------------------------------------------


def through(kind: str, data: DataSet) -> DataSet:
    """Write a data set and read it again."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINARI_DATASETS_PATH", folder)
        name = "test/odd-v0" if kind == "minari" else f"{folder}/data.{kind}"
        getattr(data, f"to_{kind}")(name)
        back: DataSet = getattr(DataSet, f"from_{kind}")(name)
        return back


@pytest.mark.parametrize("kind", ["csv", "parquet", "minari"])
def test_round_trips_are_exact(kind: str) -> None:
    needs(kind)

    @settings(max_examples=25 if kind == "minari" else 60, deadline=None)
    @given(data_sets())
    def exact(data: DataSet) -> None:
        back = through(kind, data)
        assert back.schema == data.schema and back.episodes == data.episodes
        assert same(back.transitions, data.transitions)

    exact()


@pytest.mark.parametrize("kind", ["csv", "parquet", "minari"])
def test_a_rollout_of_the_pendulum_round_trips(kind: str) -> None:
    needs(kind)
    task = SafePendulum()
    schema = Schema(tuple(q.name for q in task.states), tuple(q.name for q in task.actions), task.constraints)
    traces = rollout(task.world(), UniformPolicy((-2.0,), (2.0,)), 3, generator=Generator().manual_seed(0))
    data = DataSet.empty(schema).append(traces)
    back = through(kind, data)
    assert len(data) == traces.steps and back.schema == schema and same(back.transitions, data.transitions)
    assert torch.equal(back.transitions.x, traces.transitions().x)
    # A data set that was read can grow.
    assert back.append(traces).episodes == 6


def test_importing_it_loads_no_optional_package() -> None:
    code = "import sys, samba_rl.data; print(*{'pyarrow', 'minari', 'h5py'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == ""
