"""Replayed sequences against the episodes that they were drawn from."""

from __future__ import annotations

from dataclasses import replace

import torch
from hypothesis import given, settings, strategies as st

from samba_rl.planet.replay import Replay
from samba_rl.types import Transitions


def steps(lengths: list[int], first: int = 0) -> Transitions:
    """Episodes in which every number says where it belongs: x = 100 episode + step, u = x + 0.5, cost = x + 0.25."""
    episode = torch.cat([torch.full((n,), first + i) for i, n in enumerate(lengths)])
    step = torch.cat([torch.arange(n) for n in lengths])
    x = (100 * episode + step).double()[:, None]
    no = torch.zeros(len(x), 1, dtype=torch.bool)
    return Transitions(x, x + 0.5, x + 1, x[:, 0] + 0.25, x + 0.75, no, no[:, 0], episode, step)


def joined(one: Transitions, other: Transitions) -> Transitions:
    return Transitions(**{name: torch.cat([value, getattr(other, name)]) for name, value in vars(one).items()})


def replay_of(*parts: Transitions) -> Replay:
    replay = Replay(lambda x: x.float(), lambda u: u.float(), torch.device("cpu"))
    so_far = parts[0]
    replay.extend(so_far)
    for part in parts[1:]:
        so_far = joined(so_far, part)
        replay.extend(so_far)
    return replay


@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    more=st.lists(st.integers(1, 9), max_size=3),
    length=st.integers(1, 12),
    seed=st.integers(0, 1000),
)
@settings(max_examples=60, deadline=None)
def test_what_is_drawn_is_part_of_one_episode(lengths: list[int], more: list[int], length: int, seed: int) -> None:
    parts = [steps(lengths)] + ([steps(more, len(lengths))] if more else [])
    drawn = replay_of(*parts).draw(20, length, torch.Generator().manual_seed(seed))
    lengths = [*lengths, *more]
    assert drawn.active.shape[1] == min(length, max(lengths)) and bool(drawn.active[:, 0].all())
    for i in range(20):
        count = int(drawn.active[i].sum())
        assert bool(drawn.active[i, :count].all())
        seen = drawn.observation[i, : count + 1, 0]
        begin = float(seen[0])
        assert torch.equal(seen, begin + torch.arange(count + 1))
        assert torch.equal(drawn.action[i, :count, 0], seen[:-1] + 0.5)
        assert torch.equal(drawn.outcome[i, :count], torch.stack([seen[:-1] + 0.25, seen[:-1] + 0.75], -1))
        episode, step = divmod(int(begin), 100)
        # To the episode's end, or as long as was asked for.
        assert count == min(drawn.active.shape[1], lengths[episode] - step)
        assert count == drawn.active.shape[1] or step == 0


def test_every_place_is_drawn_alike() -> None:
    drawn = replay_of(steps([6, 2])).draw(4000, 3, torch.Generator().manual_seed(0))
    begins = drawn.observation[:, 0, 0].tolist()
    shares = {place: begins.count(place) / 4000 for place in set(begins)}
    assert set(shares) == {0.0, 1.0, 2.0, 3.0, 100.0}
    assert abs(shares[100.0] - 0.5) < 0.04 and all(abs(shares[place] - 0.125) < 0.03 for place in (0.0, 1.0, 2.0, 3.0))


def test_a_missing_step_ends_a_run() -> None:
    whole = steps([5])
    torn = replace(whole, **{name: value[[0, 1, 3, 4]] for name, value in vars(whole).items()})
    replay = replay_of(torn)
    assert replay.runs == 2 and len(replay) == 4
    drawn = replay.draw(200, 5, torch.Generator().manual_seed(0))
    assert set(drawn.observation[:, 0, 0].tolist()) == {0.0, 3.0}
    assert set(drawn.observation[:, 2, 0].tolist()) == {2.0, 5.0}


def test_taking_in_nothing_new_changes_nothing() -> None:
    replay = replay_of(steps([4]))
    replay.extend(steps([4]))
    assert len(replay) == 4 and replay.runs == 1
