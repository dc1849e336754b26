"""`samba-rl train --print-config`: every setting as a TOML file, with its help."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from samba_rl.cli.from_file import SYSTEM
from samba_rl.cli.settings_file import assignment, help_of, toml_of, toml_value

if TYPE_CHECKING:
    from samba_rl.cli.options import Options
    from samba_rl.tasks.task import Task


def print_config(task: Task, options: Options) -> int:
    """Print every setting as TOML."""
    print(config_of(task, options), end="")
    return 0


def config_of(task: Task, options: Options) -> str:
    """Return every setting as a TOML file for --config."""
    hidden = {"task", "settings", "config", "print_config", "kind"}
    texts = {**help_of(type(options)), "learner": "Learner; samba-rl train --help describes them."}
    lines = [
        f"# Settings of {options.learner} on {task.title}, preset {options.preset}: samba-rl train --config FILE",
        "# Flags override this file, and this file overrides the preset.",
        "",
        "# The system; your own as file.py:function.",
        f"{SYSTEM} = {toml_value(options.task)}",
    ]
    for field in fields(options):
        if field.name not in hidden:
            lines += assignment(field.name, getattr(options, field.name), texts.get(field.name, ""))
    text = toml_of("\n".join(lines), options.settings)
    kind = "\n".join(assignment("kind", options.kind, texts["kind"]))
    return text.replace("\n[constraint]\n", f"\n[constraint]\n{kind}\n", 1)
