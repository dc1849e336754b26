"""The interactive figures of a page: the numbers behind them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

from samba_rl.report.interactive import ZERO, curves, run_curve, tail, trade_off
from samba_rl.report.page import Page, to_html
from tests.report.results import DOUBLE, PENDULUM, evaluation, result

RESULTS = [result(learner, seed) for learner in ("samba", "ppo") for seed in (0, 1)]


def named(data: Any, name: str) -> list[dict[str, Any]]:
    return [trace for trace in data if trace.get("name") == name]


def test_curves_have_a_figure_for_each_system_with_three_panels() -> None:
    one, other = curves([*RESULTS, result("ppo", 0, DOUBLE)])
    assert (one.name, other.name) == (f"curves-{PENDULUM}", f"curves-{DOUBLE}")
    returns, costs, steps = named(one.data, "SAMBA")
    assert returns["x"] == [30, 60] and returns["y"] == [-169.5, -139.5]
    assert costs["y"] == [3, 6] and steps["y"] == [1, 2]
    assert [trace["yaxis"] for trace in (returns, costs, steps)] == ["y", "y2", "y3"]
    assert [trace["showlegend"] for trace in (returns, costs, steps)] == [True, False, False]
    assert returns["text"][0] == (
        "<b>SAMBA</b><br>30 real samples<br>return of an episode -169.5<br>seeds -170 to -169 (2)"
    )
    low, high = [t for t in one.data if t["legendgroup"] == "SAMBA" and t["yaxis"] == "y" and "name" not in t]
    assert (low["y"], high["y"]) == ([-170, -140], [-169, -139])
    # A single seed has no range.
    assert len(other.data) == 3 and "seeds" not in other.data[0]["text"][0]


def test_zero_is_drawn_on_a_logarithmic_axis() -> None:
    safe = replace(RESULTS[0], curve=tuple(replace(p, learning_TC=0.0) for p in RESULTS[0].curve))
    (plot,) = curves([safe])
    (_, costs, _) = named(plot.data, "SAMBA")
    assert costs["y"] == [ZERO] * 2 and "learning" not in costs["text"][0] and "so far 0" in costs["text"][0]
    axis = plot.layout["yaxis2"]
    assert axis["type"] == "log" and axis["ticktext"][0] == "0" and axis["tickvals"][0] == ZERO


def test_trade_off_shows_medians_seeds_and_the_front() -> None:
    found = [
        result("samba", 0, cost=1, value=-150), result("samba", 1, cost=2, value=-140),
        result("samba", 2, cost=9, value=-145), result("ppo", 0, cost=6, value=-130),
        result("sppo", 0, cost=3, value=-190),
    ]  # fmt: skip
    (plot,) = trade_off(found)
    (front,) = named(plot.data, "Pareto front")
    assert (front["x"], front["y"]) == ([2, 6], [-145, -130])
    (samba,) = named(plot.data, "SAMBA")
    assert (samba["x"], samba["y"]) == ([2], [-145]) and "median of 3" in samba["text"][0]
    (seeds,) = [trace for trace in plot.data if trace.get("legendgroup") == "SAMBA" and "name" not in trace]
    assert seeds["x"] == [1, 2, 9] and seeds["text"][1].startswith("<b>SAMBA</b>, seed 1<br>return -140")


def test_tail_shows_predicted_and_measured_values_of_an_episode() -> None:
    (plot,) = tail(RESULTS)
    assert [trace["name"] for trace in plot.data] == [
        "predicted by the model",
        "measured on the real system",
        "target",
    ]
    assert plot.layout["yaxis"]["title"]["text"] == "CVaR 0.9 of an episode [cost]"
    assert plot.data[0]["y"] == [2.5, 1.5] and plot.data[1]["y"] == [1, 1]
    per_step = [replace(each, with_noise=evaluation(1, -1, per_step=True)) for each in RESULTS[:2]]
    assert tail(per_step)[0].data[0]["y"] == [75, 45]


def test_names_are_escaped_and_gaps_are_null() -> None:
    cell = replace(RESULTS[0].cell, learner="<b>$x</script>")
    odd = replace(RESULTS[0], cell=cell, curve=tuple(replace(p, return_mean=math.nan) for p in RESULTS[0].curve))
    plots = curves([odd])
    assert plots[0].data[0]["name"] == "&lt;b&gt;$x&lt;/script&gt;"
    page = Page("t", "l", (), (), (), plots, (), (), (), "", (), (), "0")
    text = to_html(page)
    found = text.split(f'data-for="curves-{PENDULUM}">')[1].split("</script>")[0]
    assert json.loads(found)["data"][0]["y"] == [None, None]
    assert "<b>$x" not in text


def test_a_run_s_curve_shows_its_trials_and_the_limit() -> None:
    runs = [(f"seed {seed}", RESULTS[seed].curve) for seed in (0, 1)]
    plot = run_curve("run-0", "Learning curve", runs, ("limit 0.75 on its CVaR 0.9", 0.75))
    assert [trace["y"] for trace in plot.data] == [[-170, -140], [1, 1], [-169, -139], [1, 1]]
    assert [trace["showlegend"] for trace in plot.data] == [True, False, True, False]
    assert plot.layout["shapes"][0]["y0"] == 0.75 and "CVaR 0.9" in plot.layout["annotations"][0]["text"]
    alone = run_curve("run-0", "Learning curve", runs[:1])
    assert "shapes" not in alone.layout and not any(trace["showlegend"] for trace in alone.data)
