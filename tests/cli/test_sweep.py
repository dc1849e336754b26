"""`samba-rl sweep`."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from samba_rl.benchmark.cells import Cell
from samba_rl.cli import main
from samba_rl.cli.settings_file import read_settings_file
from samba_rl.cli.sweep import cells_of
from samba_rl.improve.constraints import KINDS
from samba_rl.runs import load_run
from tests.cli.commands import LINE, ROOT, error_of
from tests.line import Line


def cells(folder: Path, text: str) -> list[Cell]:
    path = folder / "run.toml"
    path.write_text(text)
    return cells_of(read_settings_file(path))


HEAD = 'system = "safe-pendulum"\npreset = "smoke"\n'


def test_every_combination_is_a_cell_with_the_seeds_outermost(tmp_path: Path) -> None:
    found = cells(tmp_path, HEAD + 'learner = ["samba", "ppo"]\nseed = [3, 4]\nreal_samples = [240, 300]\n')
    assert [(one.seed, one.learner, one.settings().real_samples) for one in found] == [
        (seed, learner, samples) for seed in (3, 4) for learner in ("samba", "ppo") for samples in (240, 300)
    ]
    # 240 is what the preset of ppo has anyway.
    assert [len(one.changes) for one in found] == [1, 1, 0, 1] * 2
    assert len({one.name for one in found}) == 8


def test_groups_choices_and_settings_that_are_lists(tmp_path: Path) -> None:
    text = (
        'zeta = ["entropy", "none", "information"]\n[policy]\nhidden = [[8], [8, 8]]\n[constraint]\nkind = "chance"\n'
    )
    found = cells(tmp_path, HEAD + text)
    assert [(one.row().zeta is None, dict(one.changes)["policy.hidden"]) for one in found] == [
        (False, "[8]"), (False, "[8, 8]"), (True, "[8]"), (True, "[8, 8]"), (False, "[8]"), (False, "[8, 8]"),
    ]  # fmt: skip
    assert all(one.row().constraint is KINDS["chance"] for one in found)
    assert found[0].name == "safe-pendulum-samba-smoke-constraint.kind=chance-policy.hidden=-8--zeta=entropy-0"
    assert "zeta" not in dict(found[4].changes)


def test_long_names_are_shortened(tmp_path: Path) -> None:
    many = "".join(f"{name} = 1.5\n" for name in ("limit",)) + "nu_floor = 0.5\ngamma = 0.5\nalpha = 0.5\n"
    more = "[multiplier]\ninitial = 0.6\nfactor = 1.5\nsteepness = 1.0\nreaction = 1.0\ntolerance = 1.5\n"
    (one,) = cells(tmp_path, f"{HEAD}[constraint]\n{many}{more}")
    assert len(one.name) < 80 and one.settings().constraints(one.row(), ("hazard",))[0].limit == 1.5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed = 1", "names no system; give one as system ="),
        (HEAD + "seed = []", "line 3: seed is an empty list"),
        (HEAD + "seed = [1, 1]", "two combinations are the same, safe-pendulum-samba-smoke-1"),
        (HEAD + "sed = [1]", "line 3: there is no setting 'sed'"),
        (HEAD + "[constraint]\nlimit = [1.0, 'x']", "line 4: constraint.limit is 'x'; it must be a number"),
        (HEAD + "[constraint]\nlimit = [1.0, -1.0]", "constraint.limit = -1.0: must be at least 0"),
        (HEAD + "learner = ['samba', 'sanba']", "no learner is called 'sanba'"),
        (HEAD + "real_samples = [29]\nfirst.samples = 20", "real_samples = 29 is too small"),
    ],
)
def test_mistakes_get_one_line(text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.toml").write_text(text)
    assert message in error_of(["sweep", str(tmp_path / "run.toml"), "--cells"], capsys)


def test_a_rig_is_not_swept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text(
        "from samba_rl import GymTask\nfrom tests.tasks.own_envs import Drift\n\n\ndef rig():\n"
        "    return GymTask(Drift(), horizon=5)\n"
    )
    (tmp_path / "run.toml").write_text(f'system = "{tmp_path / "mine.py"}:rig"\n')
    assert "is a rig; a sweep would use it for days" in error_of(["sweep", str(tmp_path / "run.toml")], capsys)


def test_cells_run_one_by_one_are_kept_and_tabulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_text(
        f'system = "{LINE}"\nlearner = "ppilco"\npreset = "smoke"\nreal_samples = [70, 80]\npictures = false\n'
    )
    for cell in ("0", "1"):
        assert main(["sweep", "run.toml", "--cell", cell, "--steps", "50"]) == 0
    assert "finished in" in capsys.readouterr().out
    assert main(["sweep", "run.toml", "--cell", "1"]) == 0
    assert "is already finished" in capsys.readouterr().out
    assert "--cell 2: run.toml has the cells 0 to 1" in error_of(["sweep", "run.toml", "--cell", "2"], capsys)
    assert main(["sweep", "run.toml", "--cells"]) == 0
    assert capsys.readouterr().out.count("(finished)") == 2
    # Nothing is left to run; the table is made.
    assert main(["sweep", "run.toml"]) == 0
    assert "2 cells, 2 already finished" in capsys.readouterr().out
    with open("results/run/sweep.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["real_samples"], row["real samples"]) for row in rows] == [("70", "70"), ("80", "80")]
    run = load_run(Path("runs/sweep/line-ppilco-smoke-real_samples=80-0"), Line())
    assert run.settings.real_samples == 80 and float(rows[1]["return"]) < 0
    assert json.loads((run.folder / "config.json").read_text())["named"] == LINE if run.folder else False


@pytest.mark.slow
def test_a_sweep_in_processes_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    Path("run.toml").write_text(f'system = "{LINE}"\nlearner = "ppilco"\npreset = "smoke"\nseed = [0, 1]\n')
    assert main(["sweep", "run.toml", "--jobs", "2", "--steps", "50"]) == 0
    assert len(list(Path("results/run").glob("line-*.json"))) == 2


# A constraint of one's own --------------------------------------------------------------------------------------------

PEAK = """
from dataclasses import dataclass
from typing import ClassVar, final

from samba_rl import Constraint, register_constraint


@register_constraint
@final
@dataclass(frozen=True, kw_only=True)
class Peak(Constraint):
    label: ClassVar[str] = "peak"

    @staticmethod
    def make(settings, name, column):
        return Peak(name=name, limit=settings.limit, column=column)

    def amounts(self, traces):
        return traces.safety[..., self.column].amax(1)

    def value(self, amounts):
        return amounts.mean()

    def contributions(self, amounts):
        return amounts

    def growth(self, traces):
        top = traces.safety[..., self.column].cummax(1).values
        return top.diff(dim=1, prepend=0 * top[:, :1])

    def progress(self, traces):
        return traces.safety[..., self.column].cummax(1).values

    @property
    def kind(self):
        return "peak"

    def in_words(self):
        return f"mean peak of the {self.name} cost"


def task():
    from tests.line import make_line

    return make_line()
"""


@pytest.fixture
def _kinds() -> Iterator[None]:
    before = dict(KINDS)
    yield
    KINDS.clear()
    KINDS.update(before)


@pytest.mark.usefixtures("_kinds")
def test_a_constraint_of_ones_own_is_learned_and_loaded_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, out = tmp_path / "mine.py", str(tmp_path / "run")
    mine.write_text(PEAK)
    short = [
        "--preset",
        "smoke",
        "--real-samples",
        "70",
        "--no-pictures",
        "--no-evaluation",
        "--no-report",
        "--out",
        out,
    ]
    kind = ["--constraint.kind", f"{mine}:Peak", "--constraint.limit", "0.5", "--feasibility-iterations", "0"]
    # The constraint is not mistaken for the system, wherever the system stands.
    assert main(["train", *kind, *short, f"{mine}:task"]) in (0, 4)
    assert "mean peak of the edge cost" in " ".join(capsys.readouterr().out.split())
    assert json.loads((tmp_path / "run" / "config.json").read_text())["row"]["constraint"] == "peak"
    # Another process does not know it until it has loaded the file.
    del KINDS["peak"]
    assert "register_constraint" in error_of(["eval", out, "--task", LINE, "--steps", "20"], capsys)
    assert main(["eval", out, "--task", f"{mine}:task", "--steps", "20", "--json"]) == 0
    assert "peak" in capsys.readouterr().out
    assert "no constraint is called 'peek'; did you mean 'peak'" in error_of(
        ["train", f"{mine}:task", "--constraint.kind", "peek"], capsys
    )
