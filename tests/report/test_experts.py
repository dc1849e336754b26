"""The figure of a policy of several experts."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from samba_rl.improve.experts import MixturePolicy
from samba_rl.report.experts import experts, imagined, summarised, telling
from samba_rl.report.run import run_pictures
from samba_rl.runs import Run, train
from tests.agents.agents import QUICK
from tests.crossing import Crossing
from tests.report.panels import words
from tests.threads import one_thread
from tests.traces import by_hand


@pytest.fixture(scope="module")
def run() -> Run:
    settings = replace(QUICK, policy=replace(QUICK.policy, experts=2, apart=0, gate_hidden=(8,)))
    with one_thread():
        return train(Crossing(), "sppilco", settings=settings)


def test_experts_are_summarised_by_hand() -> None:
    traces = by_hand([[1.0, 2.0], [3.0, 0.0], [5.0, 5.0]], safety=[[0.5, 0.5], [0.0, 0.2], [1.0, 1.0]])
    first, second, idle = summarised(traces, torch.tensor([0, 1, 0]), 3)
    assert first == pytest.approx((2 / 3, -6.5, 1.5)) and second == pytest.approx((1 / 3, -3.0, 0.2))
    assert idle.share == 0 and math.isnan(idle.return_mean)
    assert first.in_words(1) == "expert 1: 67% of the starts, return -6.5, safety 1.5"
    assert idle.in_words(3) == "expert 3: 0% of the starts"


def test_the_start_observation_that_tells_most_is_drawn() -> None:
    starts = torch.rand(400, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    starts[:, 0] = 0.3  # the same for all
    assert telling(starts, (starts[:, 2] > 0.6).long()) == 2
    assert telling(starts, (starts[:, 1] > 0.6).long()) == 1
    assert telling(starts, torch.zeros(400).long()) in (1, 2)


def test_the_figure_says_which_expert_acts_where_and_what_it_costs(run: Run) -> None:
    assert isinstance(run.policy, MixturePolicy)
    traces, chosen = imagined(run, run.policy)
    written = words(experts(run))
    for number, each in enumerate(summarised(traces, chosen, 2)):
        assert each.in_words(number + 1) in written
    assert "goal at the start" in written and "safety cost" in written


def test_it_is_among_the_pictures_of_a_run(run: Run, tmp_path: Path) -> None:
    assert "experts.png" in [path.name for path in run_pictures(run, tmp_path)]
