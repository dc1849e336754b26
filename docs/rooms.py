"""Draws docs/images/rooms.svg, the rooms of the package and what they import, from the code: python docs/rooms.py"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import grimp
import matplotlib as mpl
from importlinter import api
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "images" / "rooms.svg"
PACKAGE = "samba_rl"

CONTENTS = {
    "cli": "one file for each command",
    "report": "figures, films, web pages",
    "benchmark": "grids, statistics, tables",
    "export": "policies for other programs",
    "runs": "run folders, checkpoints, evaluation",
    "presets": "the numbers of each learner",
    "planet": "PlaNet: latent model and planner",
    "agents": "ask and tell, settings",
    "algorithm": "Algorithm 1",
    "learners": "the ten rows",
    "improve": "objectives, constraints, updates",
    "models": "Gaussian processes, ζ, imagination",
    "data": "real transitions, journal, formats",
    "tasks": "the real systems",
    "events": "what a run reports",
    "types": "Traces, Transitions, protocols",
    "ranges": "ranges of settings",
    "own": "functions of a user's own",
    "capture": "CUDA graphs and kernels",
    "errors": "errors that a user can act on",
}
"""What each room holds, in a few words."""

INK, MUTED, WIRE, BAND = "#1F2933", "#616E7C", "#B4BEC9", "#F5F7FA"
FOLDER, MODULE, HEART = "#2F6DB5", "#6B7F95", "#D9652B"
ROW, COLUMN, WIDTH = 0.46, 0.42, 1.12
"""Height of a row, distance of two columns, and width of a box [inches]."""


class Rooms(NamedTuple):
    """The rooms of the package, from the highest layer to the lowest, and how they depend on each other."""

    names: list[str]
    files: dict[str, int]
    lines: dict[str, int]
    imports: Counter[tuple[str, str]]
    """Number of import statements by (importing room, imported room)."""


def rooms() -> Rooms:
    """Read the rooms in the order of import-linter's layers, and the graph of imports."""
    contract = api.read_configuration(str(ROOT / "pyproject.toml"))["contracts_options"][0]
    names = [name.strip() for layer in contract["layers"] for name in layer.split("|")]
    graph = grimp.build_graph(PACKAGE, exclude_type_checking_imports=True, cache_dir=None)
    files, lines, imports = Counter[str](), Counter[str](), Counter[tuple[str, str]]()
    for module in graph.modules:
        room = _room(module)
        path = ROOT.joinpath(*module.split("."))
        source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        files[room] += 1
        lines[room] += len(source.read_text(encoding="utf-8").splitlines())
        imports.update((room, _room(other)) for other in graph.find_modules_directly_imported_by(module))
    inside = {pair: count for pair, count in imports.items() if pair[0] != pair[1] and set(pair) <= set(names)}
    return Rooms(names, files, lines, Counter(inside))


def drawn() -> tuple[list[str], set[tuple[str, str]]]:
    """Return the rooms and the imports that the picture shows."""
    text = PICTURE.read_text(encoding="utf-8")
    arrows = re.findall(r'id="(\w+)-imports-(\w+)"', text)
    return re.findall(r'id="room-(\w+)"', text), set(arrows)


def draw(found: Rooms) -> Figure:
    """Draw the rooms down the diagonal; a dot in the row of one and the column of another is an import."""
    count = len(found.names)
    left, right, top = 2.75, 0.25, 0.72
    size = (left + (count - 1) * COLUMN + WIDTH + right, top + count * ROW + 0.1)
    figure = Figure(figsize=size, facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, size[0]), ylim=(size[1], 0), aspect="equal")
    axes.axis("off")
    note: dict[str, Any] = {"color": MUTED, "fontsize": 8.5, "va": "center"}
    axes.text(0.2, 0.24, "The rooms of samba_rl", color=INK, fontsize=13, fontweight="bold", va="center")
    axes.text(
        0.2, 0.5, "Along a row: what a room imports. Down a column: who imports it. Larger dot: more often.", **note
    )
    x = {name: left + i * COLUMN for i, name in enumerate(found.names)}
    y = {name: top + (i + 0.5) * ROW for i, name in enumerate(found.names)}
    for i, name in enumerate(found.names):
        if i % 2 == 0:
            axes.axhspan(y[name] - ROW / 2, y[name] + ROW / 2, color=BAND, linewidth=0)
    _draw_wires(axes, found, x, y)
    for name in found.names:
        _draw_room(axes, found, name, x[name], y[name])
    legend = {FOLDER: "a folder of files", MODULE: "a single file", HEART: "the training loop"}
    for i, (colour, words) in enumerate(legend.items()):
        at = y[found.names[-4 + i]]
        axes.add_patch(_box(0.3, at - 0.09, 0.32, 0.18, colour))
        axes.text(0.74, at, words, **note)
    axes.text(0.3, y[found.names[-1]], "Nothing lies below the diagonal: imports go downward only.", **note)
    return figure


def _draw_wires(axes: Axes, found: Rooms, x: dict[str, float], y: dict[str, float]) -> None:
    """Draw a line to the right of each room, one that ends in each room from above, and dots where they meet."""
    down = {name: x[name] + WIDTH - 0.2 for name in found.names}
    for name in found.names:
        imported = [down[b] for a, b in found.imports if a == name]
        importing = [y[a] for a, b in found.imports if b == name]
        if imported:
            axes.plot([x[name] + WIDTH, max(imported)], [y[name]] * 2, color=WIRE, linewidth=0.9, zorder=2)
        if importing:
            end = (down[name], y[name] - 0.16)
            arrow = {"arrowstyle": "-|>", "color": WIRE, "linewidth": 0.9, "shrinkA": 0, "shrinkB": 0}
            axes.annotate("", end, (down[name], min(importing)), arrowprops=arrow, zorder=2)
    for (a, b), times in found.imports.items():
        size = 3.4 + 1.3 * times**0.5
        colour = _colour(found, a)
        axes.plot(down[b], y[a], "o", ms=size, color=colour, mec="white", mew=0.6, zorder=3, gid=f"{a}-imports-{b}")


def _draw_room(axes: Axes, found: Rooms, name: str, x: float, y: float) -> None:
    box = _box(x, y - 0.16, WIDTH, 0.32, _colour(found, name))
    box.set(zorder=4, gid=f"room-{name}")
    axes.add_patch(box)
    axes.text(x + WIDTH / 2, y, name, color="white", fontsize=10, fontweight="bold", ha="center", va="center", zorder=5)
    files, lines = found.files[name], found.lines[name]
    size = f"{files} files, {round(lines, -2):,} lines" if files > 1 else f"{round(lines, -1)} lines"
    beside: dict[str, Any] = {"ha": "right", "va": "center", "zorder": 5}
    axes.text(x - 0.12, y - 0.075, CONTENTS[name], color=INK, fontsize=8.5, **beside)
    axes.text(x - 0.12, y + 0.085, size, color=MUTED, fontsize=7.5, **beside)


def _box(x: float, y: float, width: float, height: float, colour: str) -> FancyBboxPatch:
    return FancyBboxPatch((x, y), width, height, "round,pad=0,rounding_size=0.06", facecolor=colour, edgecolor="none")


def _colour(found: Rooms, name: str) -> str:
    if name == "algorithm":
        return HEART
    return FOLDER if found.files[name] > 1 else MODULE


def _room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def main() -> None:
    """Write the picture."""
    # The same bytes every time, and letters that stay letters.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": PACKAGE}):
        draw(rooms()).savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
