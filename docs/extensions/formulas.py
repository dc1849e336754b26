"""Formulas as pictures (SVG) in the page, drawn when the documentation is built: no script, no font, no network."""

from __future__ import annotations

from html import escape

import ziamath
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

SIZE = 17.0
"""Of the letters [px], to fit the text around them."""


def drawn(formula: str, *, inline: bool) -> str:
    """Return a formula of LaTeX as SVG in the colour of the text; readers of the screen get its source."""
    picture = ziamath.Latex(formula, size=SIZE, color="currentColor", inline=inline)
    svg = picture.svgxml()
    svg.set("role", "img")
    svg.set("aria-label", formula)
    svg.set("style", f"vertical-align: {picture.getyofst():.1f}px" if inline else "")
    # Elements inside of HTML need no name space.
    text: str = ziamath.zmath.ET.tostring(svg, encoding="unicode")
    return text


def in_line(writer: HTML5Translator, node: nodes.math) -> None:
    """Write a formula within a sentence."""
    writer.body.append(f'<span class="formula">{drawn(node.astext(), inline=True)}</span>')
    raise nodes.SkipNode


def displayed(writer: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula on lines of its own, which can be scrolled where it is wider than the screen."""
    label = f' id="{escape(node["ids"][0])}"' if node["ids"] else ""
    writer.body.append(f'<div class="formula-block"{label} tabindex="0">{drawn(node.astext(), inline=False)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Make this the way in which Sphinx writes formulas."""
    app.add_html_math_renderer("svg", (in_line, None), (displayed, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
