"""Makes films and pictures of runs for the gallery: python docs/films.py [NAME ...] (half an hour on two cores)"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from samba_rl.report.film import policy_film, save_film
from samba_rl.runs import load_run
from samba_rl.runs.folder import SUMMARY

ROOT = Path(__file__).parent.parent
HERE = ROOT / "docs" / "images"
SIZE = 260
"""Width and height of a film [pixels]."""


class Film(NamedTuple):
    """A film of a policy: the command that learns it, and the episodes to show."""

    run: Path
    train: tuple[str, ...]
    episodes: int
    seed: int


FILMS = {
    "fetch": Film(ROOT / "runs" / "fetch", ("safe-fetch-reach", "--seed", "0", "--threads", "1"), 2, 3),
}
RUN = Film(ROOT / "runs" / "pendulum", ("safe-pendulum", "--seed", "0", "--threads", "1"), 0, 0)
PICTURES = ("learning-curve.png", "state-space.png")
"""Pictures that `train` draws of a run, which the gallery shows."""


def learned(film: Film) -> Path:
    """Return the folder of a film's run, after training or resuming it where it has not finished."""
    if not (film.run / SUMMARY).exists():
        command = ["resume", str(film.run)] if film.run.exists() else ["train", *film.train, "--out", str(film.run)]
        subprocess.run([sys.executable, "-m", "samba_rl", *command], check=False)  # 4: it does not keep its limit
    return film.run


def main(names: list[str]) -> None:
    """Write the films of these names, or everything."""
    for name in names or FILMS:
        run = load_run(learned(FILMS[name]))
        frames = policy_film(run.task, run.still_policy, FILMS[name].episodes, FILMS[name].seed, SIZE)
        save_film(frames, HERE / f"{name}.gif", run.task.dt)
    if not names:
        folder = learned(RUN)
        for picture in PICTURES:
            (HERE / f"run-{picture}").write_bytes((folder / picture).read_bytes())
        forecast = [sys.executable, "-m", "samba_rl", "forecast", str(folder), "-o", str(HERE / "run-forecast.png")]
        subprocess.run(forecast, check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
