"""Settings in TOML files."""

import math
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from samba_rl import UserError
from samba_rl.agents.settings import ModelBasedSettings, PolicyGradientSettings
from samba_rl.cli import main
from samba_rl.cli.options import Options
from samba_rl.cli.print_config import config_of
from samba_rl.cli.settings_file import help_of, read_settings_file, toml_of, toml_value
from samba_rl.cli.train import parsed_train
from samba_rl.improve.limits import FurtherConstraint
from samba_rl.learners import LEARNERS
from samba_rl.presets import make_settings
from tests.cli.commands import error_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def options_of(*arguments: str) -> Options:
    _, options = parsed_train(list(arguments)).args  # type: ignore[attr-defined]
    assert isinstance(options, Options)
    return options


def written(folder: Path, text: str) -> str:
    path = folder / "run.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@dataclass(frozen=True)
class Inner:
    depth: int = 2
    """How deep it is."""


@dataclass(frozen=True)
class Outer(Inner):
    wide: tuple[float, ...] = (1.0, math.inf)
    """How wide,
    in metres."""
    plain: str | None = None
    inner: Inner = field(default_factory=Inner)


def test_values_are_written_as_toml_reads_them() -> None:
    for value in (True, 3, 2.5, math.inf, 'a "b" \\ θ\n', [1, 2], []):
        assert tomllib.loads(f"x = {toml_value(value)}")["x"] == value
    assert toml_value(None) == '"none"' and toml_value(1e-05) == "1e-05"


def test_groups_become_tables_with_the_help_of_each_value() -> None:
    assert help_of(Outer) == {"depth": "How deep it is.", "wide": "How wide, in metres."}
    text = toml_of("# Head", Outer())
    assert text == (
        '# Head\n\n# How deep it is.\ndepth = 2\n\n# How wide, in metres.\nwide = [1.0, inf]\n\nplain = "none"\n'
        "\n[inner]\n\n# How deep it is.\ndepth = 2\n"
    )


@pytest.mark.parametrize("learner", LEARNERS)
def test_what_is_printed_is_read_as_the_same(learner: str, tmp_path: Path) -> None:
    arguments = ["safe-pendulum", "--learner", learner, "--preset", "paper", "--seed", "7", "--real-samples", "3333"]
    options = options_of(*arguments)
    text = config_of(parsed_train(arguments).args[0], options)  # type: ignore[attr-defined]
    again = options_of("--config", written(tmp_path, text))
    assert replace(again, config=None) == options
    assert text.count("\n# ") > 40 and "# Budget of real steps, the first trials included.\nreal_samples = 3333" in text


def test_flags_come_before_the_file_and_the_file_before_the_preset(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        'system = "safe-pendulum"\nlearner = "sppilco"\nseed = 4\nreal-samples = 300\nout = "runs/x"\n'
        '[constraint]\nkind = "chance"\nlimit = 0.2\n[multiplier]\nslack = "none"\n',
    )
    options = options_of("--config", file, "--constraint.limit", "0.4", "--seed=5")
    expected = make_settings("safe-pendulum", "sppilco")
    assert isinstance(expected, ModelBasedSettings)
    assert options.settings == replace(
        expected,
        real_samples=300,
        constraint=replace(expected.constraint, limit=0.4),
        multiplier=replace(expected.multiplier, slack=None),
    )
    assert (options.task, options.learner, options.seed, options.out) == ("safe-pendulum", "sppilco", 5, Path("runs/x"))
    assert options.kind == "chance" and options.row.constraint is not None and options.row.constraint.label == "chance"
    # Another system and another preset than in the file.
    other = options_of("safe-fetch-reach", f"--config={file}", "--preset", "smoke")
    assert other.task == "safe-fetch-reach" and other.settings.real_samples == 300
    assert other.settings.first == make_settings("safe-fetch-reach", "sppilco", "smoke").first


def test_further_limits_are_tables_in_a_list(tmp_path: Path) -> None:
    file = written(
        tmp_path, 'system = "safe-pendulum"\n[[more_constraints]]\nkind = "chance"\nlimit = 0.1\n[[more_constraints]]\n'
        "alpha = 0.5\n"
    )  # fmt: skip
    settings = options_of("--config", file, "--more-constraints.2.limit", "3").settings
    assert isinstance(settings, PolicyGradientSettings)
    assert settings.more_constraints == (
        FurtherConstraint(kind="chance", limit=0.1), FurtherConstraint(alpha=0.5), FurtherConstraint(limit=3.0),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[constraint]\n\nlimt = 1",
            "run.toml, line 3: there is no setting 'constraint.limt'; did you mean 'constrain",
        ),
        ("constraint.limt = 1", "run.toml, line 1: there is no setting 'constraint.limt'"),
        ("# x\nseeds = 3", "run.toml, line 2: there is no setting 'seeds'; did you mean 'seed'"),
        ("[[more_constraints]]\nlimits = 1", "run.toml, line 2: there is no setting 'more_constraints.0.limits'"),
        ("seed = 'x'", "run.toml, line 1: seed is 'x'; it must be a whole number"),
        ("learner = 3", "run.toml, line 1: learner is 3; it must be text"),
        ("zeta = 'lo'", "run.toml, line 1: zeta is 'lo'; it must be one of none, information, loo"),
        ("[constraint]\nlimit = 'low'", "run.toml, line 2: constraint.limit is 'low'; it must be a number"),
        ("[constraint]\nlimit = -1", "run.toml: constraint.limit = -1.0: must be at least 0"),
        ("[planner]\nhorizon = 3", "there is no setting 'planner.horizon'"),
        ("seed = 1\nseed = 2", "run.toml is not a TOML file"),
        ("constraint = 3", "run.toml, line 1: there is no setting 'constraint'"),
    ],
)
def test_mistakes_are_named_with_their_line(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in error_of(["train", "safe-pendulum", "--config", written(tmp_path, text)], capsys)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path, message in ((tmp_path / "none.toml", "cannot be read: No such file"), (tmp_path, "not a regular file")):
        with pytest.raises(UserError, match=message):
            read_settings_file(path)
    (tmp_path / "latin.toml").write_bytes(b"x = '\xe9'")
    with pytest.raises(UserError, match="is not a TOML file"):
        read_settings_file(tmp_path / "latin.toml")


def test_print_config_prints_and_does_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "safe-pendulum", "--print-config", "--constraint.limit", "1.5"]) == 0
    found = tomllib.loads(capsys.readouterr().out)
    assert found["constraint"]["limit"] == 1.5 and found["constraint"]["kind"] == "cvar"
    assert not list(tmp_path.iterdir())
