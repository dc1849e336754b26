"""Flags of settings: ranges in the help, errors that name the setting, and which settings are given."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated

import pytest
import tyro

from samba_rl.cli import main
from samba_rl.cli.flags import given_paths, settings_flags
from samba_rl.errors import UserError
from samba_rl.ranges import In, check
from tests.cli.commands import error_of


@dataclass(frozen=True)
class Group:
    """A group of settings."""

    share: Annotated[float, In("(0, 1]")] = 0.5
    """How much of it."""
    maybe: Annotated[int, In("[1, 9]")] | None = None
    """How many, if any."""
    name: str = ""
    """Name of it."""


@dataclass(frozen=True)
class Everything:
    group: Group = field(default_factory=Group)

    def __post_init__(self) -> None:
        check(self)


def parsed(*arguments: str) -> Everything:
    with settings_flags():
        return tyro.cli(Everything, args=list(arguments))


def test_the_help_of_a_setting_states_its_range(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed("--help")
    words = " ".join(re.sub("[│╭╮╰╯─]", "", capsys.readouterr().out).split())
    assert "How much of it. (in (0, 1]) (default: 0.5)" in words
    assert "How many, if any. (in [1, 9]) (default: None)" in words
    assert "Name of it. (default: '')" in words and "A group of settings." in words


def test_values_are_parsed_and_errors_name_the_setting_alone() -> None:
    assert parsed("--group.share", "1", "--group.maybe", "3") == Everything(Group(1.0, 3))
    with pytest.raises(UserError) as error:
        parsed("--group.share", "nan")
    assert str(error.value) == "group.share = nan: must be above 0 and at most 1"


def test_without_the_rules_the_parser_is_as_before(capsys: pytest.CaptureFixture[str]) -> None:
    parsed()
    with pytest.raises(SystemExit):
        tyro.cli(Group, args=["--help"])
    assert "(in (0, 1])" not in capsys.readouterr().out


def test_the_settings_whose_flags_are_given() -> None:
    arguments = ["safe-pendulum", "--multiplier.slack", "None", "--trust-region.kl=0.1", "--weights.no-spread", "-x"]
    assert list(given_paths(arguments)) == ["multiplier.slack", "trust_region.kl", "weights.spread"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--multiplier.slack", "inf"], "multiplier.slack = inf: must be at least 0 and at most 100"),
        (["--advantage.gamma", "nan"], "advantage.gamma = nan: must be at least 0 and at most 1"),
        (["--policy.hidden", "32", "0"], "policy.hidden.1 = 0: must be at least 1 and at most 10000"),
        (["--more-constraints.0.alpha", "1"], "more_constraints.0.alpha = 1.0: must be at least 0 and below 1"),
        (["--constraint.of", "\ud800"], "constraint.of = '\\ud800': must be text without null characters"),
        (["--seed", str(2**63)], f"seed = {2**63}: must be at least 0 and below {2**63}"),
        (["--workers", "-1"], "workers = -1: must be at least 0 and at most 1000"),
        (
            ["--learner", "ppilco", "--multiplier.slack", "0.1"],
            "multiplier.slack has no effect: the learner has no limit",
        ),
        (
            ["--learner", "sppilco", "--weights.no-spread"],
            "weights.spread has no effect: the learner seeks no information",
        ),
        (["--learner", "ppo", "--data", "none.csv"], "data has no effect: the learner has no model that earlier data"),
        (["--trust-region.kl=1"], "trust_region.kl has no effect: the update 'proximal' has no trust region"),
        (["--zeta", "none", "--weights.least-cost-weight", "1"], "weights.least_cost_weight has no effect"),
        (["--learner", "trpo", "--update.clip", "0.1"], "update.clip has no effect: the update 'trust-region'"),
        (["--learner", "planet", "--model.channels", "4"], "latent.channels has no effect: latent.observation is"),
    ],
)
def test_wrong_and_useless_flags_get_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in error_of(["train", "safe-pendulum", *arguments], capsys)


def test_every_setting_of_a_learner_shows_its_range(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "safe-pendulum", "--help"])
    words = " ".join(re.sub("[│╭╮╰╯─]", "", capsys.readouterr().out).split())
    entries = re.findall(r"--([a-z]+\.[a-z.-]+) (?:\{None\}\|)?(?:FLOAT|INT)\b(.*?)(?= --|$)", words)
    assert len(entries) > 50
    assert [name for name, text in entries if "(in " not in text] == []
