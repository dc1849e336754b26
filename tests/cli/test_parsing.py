"""One line for a complaint, and what 'file.py:function' names."""

import sys
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import cloudpickle
import gymnasium
import pytest

from samba_rl import SafePendulum
from samba_rl.cli import COMMANDS
from samba_rl.cli.parsing import _in_one_line, load_function, load_system, load_task, parsed
from samba_rl.errors import UserError
from samba_rl.ranges import In

FRAMED = """\x1b[91m╭─ Unrecognized options ──────────╮\x1b[0m
│ Unrecognized options: --epsodes │
│ 3                               │
│ ─────────────────────────────── │
│ Perhaps you meant:              │
│     --episodes INT              │
│         How many. (default: 3)  │
│ ─────────────────────────────── │
│ For full helptext, run x --help │
╰─────────────────────────────────╯
"""
PLAIN = """ Missing argument
 ----------------------------------
  Missing value for argument '--n'.
  ---------------------------------
  For full helptext, run x --help

"""
OWN = """
from __future__ import annotations

from dataclasses import dataclass

from samba_rl import SafePendulum


@dataclass(frozen=True)
class Mine:
    angle: float = 0.0


def task():
    return SafePendulum(horizon=12)


def twice(x):
    return 2 * x + Mine().angle
"""
ENVIRONMENTS = """
import gymnasium

class Env(gymnasium.Env):
    pass

def make():
    return Env()

def wrong():
    return 3
"""


def test_a_box_becomes_a_line() -> None:
    assert _in_one_line(FRAMED) == "Unrecognized options: --epsodes 3; perhaps you meant --episodes"
    assert _in_one_line(PLAIN) == "Missing value for argument '--n'"
    assert _in_one_line("no box at all") == "no box at all"


def test_functions_of_a_file_work_and_can_be_sent_to_other_processes(tmp_path: Path) -> None:
    (tmp_path / "random.py").write_text(OWN)
    before = set(sys.modules)
    function = load_function(f"{tmp_path / 'random.py'}:twice")
    assert function(3) == 6 and not any(str(name).endswith("file random") for name in set(sys.modules) - before)
    (tmp_path / "random.py").unlink()
    assert cloudpickle.loads(cloudpickle.dumps(function))(4) == 8
    assert sys.modules["random"].__name__ == "random"


def test_a_task_comes_from_a_name_or_a_function(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    assert load_task("safe-pendulum").horizon == 30
    assert load_task(f"{tmp_path / 'mine.py'}:task").horizon == 12
    with pytest.raises(UserError, match="returned a float; it must return a Task"):
        load_task("time:time")


BROKEN = {
    "quits.py": "import sys\nsys.exit(5)\n",
    "syntax.py": "def (\n",
    "raises.py": "\nraise KeyError('x')\n",
    "tasks.py": "import sys\ndef leave(): sys.exit()\ndef boom():\n    raise ValueError('first\\nsecond')\n",
}


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("os:system", "os:system cannot be called without arguments: TypeError: system() missing required"),
        ("json:loads", "json:loads cannot be called without arguments: TypeError: loads() missing 1 required"),
        ("./bad.py:task:", "'./bad.py:task:' does not name a function; write module:function or file.py:function"),
        (":", "':' does not name a function"),
        (".:task", "the module '.' (for the function task) cannot be imported: TypeError: "),
        ("x" * 300 + ":task", f"the module '{'x' * 300}' (for the function task) cannot be imported: Module"),
        ("quits.py:task", "quits.py (for the function task) cannot be loaded: it ends the program"),
        ("quits:task", "the module 'quits' (for the function task) cannot be imported: it ends the program"),
        (
            "syntax.py:task",
            "syntax.py (for the function task) cannot be loaded: SyntaxError: invalid syntax (syntax.py,",
        ),
        ("raises.py:task", "raises.py (for the function task) cannot be loaded: KeyError: 'x' (raises.py, line 2)"),
        ("raises:task", "the module 'raises' (for the function task) cannot be imported: KeyError: 'x' ("),
        ("tasks.py:leave", "tasks.py:leave cannot be called without arguments: it ends the program"),
        (
            "tasks.py:boom",
            "tasks.py:boom cannot be called without arguments: ValueError: first (tasks.py, line 4)",
        ),
    ],
)
def test_what_a_users_code_does_wrong_is_told_in_one_line(
    where: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in BROKEN.items():
        (tmp_path / name).write_text(text)
        monkeypatch.delitem(sys.modules, name.removesuffix(".py"), raising=False)
    with pytest.raises(UserError) as error:
        load_task(where)
    said = str(error.value).replace(f"{tmp_path}/", "")
    assert said.startswith(message) and "\n" not in said


def without_range(hint: Any) -> bool:
    """Whether a type is, or holds, a number without `In`."""
    if get_origin(hint) is Annotated:
        kind, *more = get_args(hint)
        return not any(isinstance(one, In) for one in more) and without_range(kind)
    return hint in (int, float) or any(without_range(one) for one in get_args(hint))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_number_of_a_command_has_a_range(name: str) -> None:
    hints = get_type_hints(COMMANDS[name], include_extras=True)
    assert [parameter for parameter, hint in hints.items() if parameter != "return" and without_range(hint)] == []


def test_the_ranges_of_a_commands_arguments_are_checked() -> None:
    def command(count: Annotated[int, In("[1, 9]")] = 1, *, name: str | None = None) -> int:
        return count

    assert parsed(command, "x", ["--count", "9", "--name", "ζ"])() == 9
    with pytest.raises(UserError, match=r"^count = 0: must be at least 1 and at most 9$"):
        parsed(command, "x", ["--count", "0"])
    with pytest.raises(UserError, match=r"^name = '.*': must be text without"):
        parsed(command, "x", ["--name", "\udcff"])


def test_faults_of_a_file_are_named_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("import math\n\n\ndef task():\n    x = 1\n    return math.nothing\n")
    with pytest.raises(
        UserError, match=r"mine\.py:task cannot be called without arguments: AttributeError: .*'nothing' \(.*, line 6\)"
    ):
        load_task(f"{path}:task")
    with pytest.raises(UserError, match=r"mine\.py has no function 'tsk'; did you mean 'task'\?"):
        load_task(f"{path}:tsk")
    path.write_text("import math\nfrom nowhere import x\n")
    with pytest.raises(
        UserError, match=r"mine\.py .* cannot be loaded: ModuleNotFoundError: .*'nowhere' \(.*, line 2\)"
    ):
        load_task(f"{path}:task")
    path.write_text("def task(:\n")
    with pytest.raises(UserError, match=r"mine\.py .* cannot be loaded: SyntaxError: .*line 1"):
        load_task(f"{path}:task")


def test_a_system_is_a_task_an_environment_or_an_id(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN + ENVIRONMENTS)
    where = f"{tmp_path / 'mine.py'}:"
    assert load_system("safe-pendulum") == SafePendulum()
    assert load_system("Pendulum-v1") == "Pendulum-v1" and load_system("samba_rl:SafePendulum-v0").endswith("-v0")  # type: ignore[union-attr]
    assert load_system(f"{where}task") == SafePendulum(horizon=12)
    for name in ("Env", "make"):
        source = load_system(f"{where}{name}")
        assert callable(source) and isinstance(source(), gymnasium.Env)
    with pytest.raises(UserError, match="returned a int; it must return a Task, such as GymTask"):
        load_system(f"{where}wrong")
