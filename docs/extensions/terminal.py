"""How `%%bash` cells look in tutorials (as a terminal), and a directive for the help that each command prints."""

from __future__ import annotations

import contextlib
import io
import os
import re

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.application import Sphinx

from samba_rl.cli import COMMANDS, main

WIDTH = "80"
SETTINGS = {"train": ["safe-pendulum"], "new": ["runs/x", "--task", "safe-pendulum"]}
"""Arguments of the commands whose help depends on them."""


def prompted(script: str) -> str:
    """Put a prompt before each command of a script, and another one before the lines that go on with it."""
    lines, inside = [], False
    for line in script.splitlines():
        lines.append(f"{'>' if inside else '$'} {line}" if line else "")
        looping = re.match(r"\s*(for|while)\b", line) or (inside and not line.startswith("done"))
        inside = line.endswith("\\") or bool(looping)
    return "\n".join(lines)


def show_as_terminal(_app: Sphinx, tree: nodes.document) -> None:
    """Show cells that a shell runs as what one types there, and without the line for the notebook."""
    for block in tree.findall(nodes.literal_block):
        text = block.astext()
        if text.startswith("%%bash\n"):
            shown = prompted(text.partition("\n")[2].strip())
            block.rawsource, block["language"] = shown, "console"
            block.children = [nodes.Text(shown)]


def help_of(command: str) -> str:
    """Return what `samba-rl COMMAND --help` prints."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        main([*([command] if command else []), *SETTINGS.get(command, []), "--help"])
    plain = re.sub(r"\x1b\[[0-9;]*m", "", said.getvalue())
    if not plain.strip():
        raise RuntimeError(f"samba-rl {command} --help printed nothing")
    return plain.strip("\n")


class CommandHelp(Directive):
    """A section for each command with the help that it prints."""

    def run(self) -> list[nodes.Node]:
        """Ask each command for its help."""
        os.environ.update(COLUMNS=WIDTH, NO_COLOR="1", TERM="dumb")
        lines: list[str] = []
        for command in ["", *COMMANDS]:
            shown = " ".join(["samba-rl", command, *SETTINGS.get(command, [])]).strip().replace("  ", " ")
            lines += [f"## {shown}", "", "```text", *help_of(command).splitlines(), "```", ""]
        holder = nodes.section()
        self.state.nested_parse(StringList(lines, source="help"), self.content_offset, holder, match_titles=True)
        return holder.children


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directive and the look of the cells."""
    app.add_directive("command-help", CommandHelp)
    app.connect("doctree-read", show_as_terminal)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
