"""Makes the pictures of the README: python docs/pictures.py"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from samba_rl.figures.film import save_picture, strip
from samba_rl.tasks.envs import SafeEnv
from samba_rl.tasks.fetch_reach import START

HERE = Path(__file__).parent / "images"
SIZE = 420
EPISODES: dict[str, tuple[list[float], list[list[float]]]] = {
    "safe-pendulum": ([-0.9, 0.0], [[2.0]] * 3),
    "safe-cart-pole-double-pendulum": ([0.3, 0.0, 0.0, 0.0, -0.45, 0.5], [[-15.0]]),
    "safe-fetch-reach": ([*START, START[0] + 0.14, 0.66, 0.5], [[0.4, -0.6, -0.3, 0.0]] * 3),
}
"""Where each episode begins, and what is done in it before the picture is taken."""


def picture(
    task: str, state: list[float], actions: list[list[float]]
) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """What the system looks like after those actions."""
    env = SafeEnv(task, render_mode="rgb_array", size=SIZE)
    env.reset(options={"state": state})
    for action in actions:
        env.step(np.array(action, dtype=np.float32))
    frame = env.render()
    env.close()
    assert frame is not None
    return frame


def main() -> None:
    """Write the pictures."""
    save_picture(strip([picture(task, *episode) for task, episode in EPISODES.items()]), HERE / "systems.png")


if __name__ == "__main__":
    main()
