"""Progress of a run in the terminal."""

import io
import math
from dataclasses import replace

from rich.console import Console

from samba_rl.agents.settings import ModelBasedSettings
from samba_rl.cli.progress import Progress
from samba_rl.events import ImprovementReport, Notice, TrialReport
from samba_rl.learners import LEARNERS
from samba_rl.presets import make_settings
from samba_rl.runs.session import About
from tests.line import Line

TRIAL = TrialReport(
    iteration=0,
    real_samples=20,
    episodes=2,
    return_mean=-12.5,
    safety_cost=0.5,
    violations=3,
    learning_TC=1.0,
    learning_TV=3,
    predicted_return=math.nan,
    predicted_safety=math.nan,
    surprise=math.nan,
    z_std=(0.9,),
    coverage95=(0.95,),
    seconds=1.0,
)
IMPROVEMENT = ImprovementReport(
    iteration=0,
    control=1,
    controls=10,
    model_return=-11.0,
    model_safety=0.4,
    model_zeta=0.1,
    values=(0.8,),
    targets=(0.675,),
    multipliers=(1.25,),
    lambda_pi=0.6,
    std=0.5,
    clipped=0.0,
    kl=0.01,
    critic_loss=(1.0, 1.0, 1.0),
    seconds=2.0,
)


def progress(terminal: bool) -> tuple[Progress, io.StringIO]:
    usual = make_settings("line")
    assert isinstance(usual, ModelBasedSettings)
    settings = replace(
        usual,
        real_samples=50,
        episodes=1,
        first=replace(usual.first, samples=20),
        imagination=replace(usual.imagination, iterations=10, last_iterations=20),
    )
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=100, height=40, highlight=False)
    about = About("samba", LEARNERS["samba"], "default", 0, settings, "cpu")
    return Progress(console, Line(), about, "Line: samba, seed 0"), out


def test_a_line_for_each_trial_where_there_is_no_terminal() -> None:
    shown, out = progress(terminal=False)
    with shown:
        shown(TRIAL)
        shown(Notice("look [here]"))
        for control in range(1, 11):
            shown(replace(IMPROVEMENT, control=control, seconds=1.0 + control))
        shown(replace(TRIAL, iteration=1, real_samples=30, predicted_return=-11.0, surprise=1.1, seconds=12.0))
    first, note, second = out.getvalue().splitlines()
    assert first.startswith("trial 0  20/50 real samples  return -12.50 (model –)  TV 3  TC 1.00")
    assert note == "Note: look [here]"
    assert "(model -11.00)" in second and "CVaR 0.8 (target 0.675, limit 0.75)" in second
    assert "λ_π 0.60  λ_CVaR 1.25" in second and "surprise 1.10, z 0.90" in second
    # Ten iterations took eleven seconds; two trials of ten and the last twenty are to come.
    assert second.endswith("12 s, about 44 s left")


def test_a_live_table_in_a_terminal() -> None:
    shown, out = progress(terminal=True)
    with shown:
        shown(TRIAL)
        shown(IMPROVEMENT)
        shown(replace(IMPROVEMENT, control=10))
    text = out.getvalue()
    for words in (
        "Line: samba, seed 0",
        "first real trials",
        "improving the policy on the model, 1 of 10",
        "real trial, and fitting the model",
        "20 of 50",
        "CVaR 0.9 of the edge cost of a trajectory",
        "0.8 (target 0.675, limit 0.75), λ = 1.25",
        "3, 1.00 so far",
        "about 3 to come",
    ):
        assert words in text
    shown(replace(TRIAL, iteration=3, real_samples=50))
    shown(replace(IMPROVEMENT, iteration=3, control=20, controls=20))
    assert shown._phase == "choosing the policy"
