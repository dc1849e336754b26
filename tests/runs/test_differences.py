"""What sets a run apart from its preset."""

from dataclasses import replace
from typing import Any

from samba_rl.agents.settings import PolicyGradientSettings
from samba_rl.improve.limits import FurtherConstraint
from samba_rl.learners import LEARNERS, Learner
from samba_rl.models.zeta import Entropy
from samba_rl.presets import find_row, make_settings
from samba_rl.runs.differences import differences
from samba_rl.runs.session import About
from samba_rl.runs.summary import config_of
from tests.line import Line


def config(row: Learner = LEARNERS["samba"], learner: str = "samba", **changes: Any) -> dict[str, Any]:
    settings = make_settings("line", row)
    assert isinstance(settings, PolicyGradientSettings)
    return config_of(Line(), About(learner, row, "default", 0, replace(settings, **changes), "cpu"), None)


def test_a_run_with_the_presets_numbers_has_none() -> None:
    for learner in LEARNERS:
        row = find_row(learner, "paper")
        about = About(learner, row, "paper", 0, make_settings("line", row, "paper"), "cpu")
        assert differences(config_of(Line(), about, None)) == ()


def test_settings_limits_and_choices_are_named_as_their_flags() -> None:
    further = (FurtherConstraint(kind="chance", limit=0.1),)
    found = differences(config(real_samples=300, more_constraints=further))
    assert found[0] == "real_samples 300" and "more_constraints.0.kind chance" in found
    assert differences(config(LEARNERS["samba"].with_zeta(Entropy()))) == ("zeta entropy",)
    assert differences(config(LEARNERS["samba"].with_zeta(None))) == ("zeta none",)
    # A row of one's own has no standard to compare its choices with.
    assert differences(config(LEARNERS["samba"].with_zeta(Entropy()), "mine")) == ()


def test_what_cannot_be_compared_has_none() -> None:
    for damage in ({"row": 3}, {"preset": "mine"}, {"row": None}):
        assert differences({**config(), **damage}) == ()
    assert differences({**config(), "settings": 3}) == (" 3",)
