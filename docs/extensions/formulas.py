"""Formulas as pictures (SVG) in the page, drawn when the documentation is built: no script, no font, no network."""

from __future__ import annotations

from html import escape
from xml.etree.ElementTree import tostring

import ziamath
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

SIZE = 17.0
"""Of the letters [px], to fit the text around them."""


def drawn(formula: str, *, inline: bool) -> tuple[str, float]:
    """Return a formula of LaTeX as SVG in the colour of the text, and how far it is above the line of the text [px]."""
    picture = ziamath.Latex(formula, size=SIZE, color="currentColor", inline=inline)
    svg = picture.svgxml()
    svg.set("role", "img")
    svg.set("aria-label", formula)  # what a screen reader says
    return tostring(svg, encoding="unicode"), picture.getyofst()


def in_line(writer: HTML5Translator, node: nodes.math) -> None:
    """Write a formula within a sentence."""
    svg, above = drawn(node.astext(), inline=True)
    writer.body.append(f'<span class="formula" style="vertical-align: {above:.1f}px">{svg}</span>')
    raise nodes.SkipNode


def displayed(writer: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula on lines of its own, which can be scrolled where it is wider than the screen."""
    label = f' id="{escape(node["ids"][0])}"' if node["ids"] else ""
    writer.body.append(f'<div class="formula-block"{label} tabindex="0">{drawn(node.astext(), inline=False)[0]}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Make this the way in which Sphinx writes formulas."""
    app.add_html_math_renderer("svg", (in_line, None), (displayed, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
