"""Makes the pictures of the README: python docs/pictures.py"""

from __future__ import annotations

from pathlib import Path

from samba_rl.figures.film import save_picture, strip
from samba_rl.figures.named import system_pictures

HERE = Path(__file__).parent / "images"


def main() -> None:
    """Write the pictures."""
    save_picture(strip(system_pictures()), HERE / "systems.png")


if __name__ == "__main__":
    main()
