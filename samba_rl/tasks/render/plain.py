"""Pictures of systems that cannot draw themselves: states, actions and safety costs over time."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from samba_rl.tasks.render.drawing import ACTION, BACKGROUND, DIAL, FAINT, HAZARD, INK, STEEL, UNSAFE, UNSAFE_FILL

if TYPE_CHECKING:
    from PIL import Image, ImageDraw, ImageFont

    from samba_rl.tasks.render.drawing import Colour, Floats, Picture
    from samba_rl.tasks.task import Quantity, Task
    from samba_rl.types import Traces

STATES, ACTIONS, COSTS = 6, 3, 2
"""Largest numbers of states, actions and safety costs that are drawn."""
WIDTH, HEIGHT = 640, 84
"""Size of a panel [pixels], with its name above and its present value on the right."""
LEFT, RIGHT, TOP, BOTTOM = 12, 96, 24, 6
"""Margins of a panel [pixels]."""
FOOT = 22
"""Height of the line below the panels [pixels]."""
FINER = 2
"""Factor by which pictures are drawn larger and then reduced, so that lines are smooth."""
FONT = 13
"""Size of the text [pixels]."""


@dataclass(frozen=True)
class _Panel:
    """One quantity over time."""

    name: str
    values: Floats
    """Values [T + 1], or [T] for what belongs to a step; NaN after the end of the episode."""
    colour: Colour
    first: int
    """Frame at which the first value is known."""


def draw_episode(task: Task, traces: Traces, episode: int) -> list[Picture]:
    """Draw an episode: a picture for its start and one for each step, in which its curves grow; unsafe steps are red.

    Frames are uint8 [height, 640, 3], with a panel for each of the first states, actions and safety costs.
    """
    from PIL import Image, ImageDraw

    steps = int(traces.active[episode].sum())
    panels = _panels(task, traces, episode, steps)
    image = Image.new("RGB", (WIDTH * FINER, FINER * (HEIGHT * len(panels) + FOOT)), BACKGROUND)
    draw = ImageDraw.Draw(image)
    foot = FINER * (WIDTH - RIGHT), FINER * (HEIGHT * len(panels) + FOOT / 2)
    draw.text(foot, f"{steps} steps, {steps * task.dt:g} s", fill=STEEL, font=_font(), anchor="rm")
    spans = [_span(panel.values) for panel in panels]
    for row, (panel, (low, high)) in enumerate(zip(panels, spans, strict=True)):
        _frame(draw, row, panel, low, high)
    unsafe = traces.violation[episode, :steps].any(-1).tolist()
    frames = []
    for t in range(steps + 1):
        for row, (panel, (low, high)) in enumerate(zip(panels, spans, strict=True)):
            if t and unsafe[t - 1]:
                _band(draw, row, t, steps)
            _curve(draw, row, panel, t, steps, low, high)
        frames.append(_with_values(image, panels, t))
    return frames


def _panels(task: Task, traces: Traces, episode: int, steps: int) -> list[_Panel]:
    x, u, safety = (part[episode].detach().cpu().double().numpy() for part in (traces.x, traces.u, traces.safety))
    states = [_Panel(_title(q), x[: steps + 1, i], INK, 0) for i, q in enumerate(task.states[:STATES])]
    actions = [_Panel(_title(q), u[:steps, i], ACTION, 1) for i, q in enumerate(task.actions[:ACTIONS])]
    costs = [
        _Panel(f"{name} (safety cost)", safety[:steps, i], HAZARD, 1) for i, name in enumerate(task.constraints[:COSTS])
    ]
    return [*states, *actions, *costs]


def _title(quantity: Quantity) -> str:
    return f"{quantity.name} [{quantity.unit}]" if quantity.unit else quantity.name


def _span(values: Floats) -> tuple[float, float]:
    """Return the lower and upper end of an axis for values."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return -1.0, 1.0
    low, high = float(finite.min()), float(finite.max())
    room = 0.08 * (high - low) or max(0.1 * abs(high), 0.5)
    return low - room, high + room


def _place(row: int, t: float, steps: int, share: float) -> tuple[float, float]:
    """Return the pixel of time t at a share of the height of panel `row`."""
    across, up = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    return (
        FINER * (LEFT + across * t / max(steps, 1)),
        FINER * (HEIGHT * row + TOP + up * (1 - share)),
    )


def _frame(draw: ImageDraw.ImageDraw, row: int, panel: _Panel, low: float, high: float) -> None:
    """Draw what does not change: the area, the line at zero, the name and the range."""
    draw.rectangle([*_place(row, 0, 1, 1), *_place(row, 1, 1, 0)], fill=DIAL)
    if low < 0 < high:
        at = -low / (high - low)
        draw.line([_place(row, 0, 1, at), _place(row, 1, 1, at)], fill=FAINT, width=FINER)
    x, y = FINER * LEFT, FINER * (HEIGHT * row + 4)
    draw.text((x, y), panel.name, fill=INK, font=_font())
    words = f"{low:.3g} to {high:.3g}"
    draw.text((FINER * (WIDTH - RIGHT), y), words, fill=STEEL, font=_font(), anchor="ra")


def _band(draw: ImageDraw.ImageDraw, row: int, t: int, steps: int) -> None:
    """Mark step t as unsafe."""
    draw.rectangle([*_place(row, t - 1, steps, 0.06), *_place(row, t, steps, 0)], fill=UNSAFE_FILL)


def _curve(draw: ImageDraw.ImageDraw, row: int, panel: _Panel, t: int, steps: int, low: float, high: float) -> None:
    """Draw the part of a curve that leads to frame t."""
    last = t - panel.first
    if last < 0:
        return
    pair = panel.values[max(last - 1, 0) : last + 1]
    if np.isfinite(pair).all():
        heights = (pair - low) / (high - low)
        times = (t - 1, t) if len(pair) == 2 else (t, t)
        points = [_place(row, at, steps, float(share)) for at, share in zip(times, heights[[0, -1]], strict=True)]
        draw.line(points, fill=panel.colour, width=2 * FINER)


def _with_values(image: Image.Image, panels: list[_Panel], t: int) -> Picture:
    """Return the picture with the present value of each quantity, in its final size."""
    from PIL import ImageDraw

    shown = image.copy()
    draw = ImageDraw.Draw(shown)
    for row, panel in enumerate(panels):
        if t >= panel.first:
            value = float(panel.values[t - panel.first])
            at = FINER * (WIDTH - RIGHT + 10), FINER * (HEIGHT * row + (TOP + HEIGHT - BOTTOM) // 2)
            colour = UNSAFE if panel.colour == HAZARD and value > 0 else panel.colour
            draw.text(at, f"{value:.4g}", fill=colour, font=_font(), anchor="lm")
    return np.array(shown.reduce(FINER))


@functools.cache
def _font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Return a font with Greek letters where the machine has one, else Pillow's own."""
    from PIL import ImageFont

    try:
        return ImageFont.truetype("DejaVuSans.ttf", FINER * FONT)
    except OSError:
        return ImageFont.load_default(FINER * FONT)
