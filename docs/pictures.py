"""Makes the pictures of the documentation from results/: python docs/pictures.py"""

from __future__ import annotations

from pathlib import Path

from samba_rl.benchmark.cells import read_results
from samba_rl.report import named
from samba_rl.report.film import save_picture, strip

HERE = Path(__file__).parent / "images"
RESULTS = Path(__file__).parent.parent / "results"


def main() -> None:
    """Write the pictures of the systems and the figures of the default preset's results."""
    save_picture(strip(named.system_pictures()), HERE / "systems.png")
    usual = [result for result in read_results(RESULTS) if result.cell.preset == "default"]
    cells = [result for result in usual if result.cell.limit is None]
    for name in named.OF_RESULTS:
        named.save(named.draw(name, cells), HERE / f"{name}.png")


if __name__ == "__main__":
    main()
