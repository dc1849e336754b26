"""Cells of tutorials shown as a terminal, the help of each command, docstrings, and names that links find."""

from __future__ import annotations

import contextlib
import io
import os
import re
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config, GoogleDocstring

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


def answer_to_short_names(_app: Sphinx, tree: nodes.document) -> None:
    """Let links find what a module documents under the package's name too, as the pages of the source have it."""
    for signature in tree.findall(addnodes.desc_signature):
        module, name = signature.get("module") or "", signature.get("fullname")
        short = f"samba_rl.{name}"
        if module.startswith("samba_rl.") and short not in signature["ids"]:
            signature["ids"].append(short)


def with_arguments(app: Sphinx, what: str, name: str, documented: Any, options: Any, lines: list[str]) -> None:
    """Turn the arguments in a docstring (`Args:`) into a list; others are plain text."""
    if "Args:" in lines:
        lines[:] = GoogleDocstring(lines, Config(), app, what, name, documented, options).lines()


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
    app.connect("doctree-read", answer_to_short_names)
    app.connect("autodoc-process-docstring", with_arguments)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
