"""Finds dead links in the built site, and what it loads from a network: python docs/links.py docs/_build/html"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "iframe": "src", "video": "src", "source": "src", "link": "href"}
"""Elements that load what they name, and the attribute that names it."""


class Page(HTMLParser):
    """What a page links to, what it loads, and the places in it that links may lead to."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        self.places.update(found[name] for name in ("id", "name") if name in found)
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        loading = tag != "link" or found.get("rel") in ("stylesheet", "preload", "icon", "shortcut icon")
        if found.get(LOADED.get(tag, "")) and loading:
            self.loads.append(found[LOADED[tag]])


def read(path: Path) -> Page:
    """Return what a page contains."""
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def problems(site: Path) -> list[str]:
    """Return what is wrong with the links of the pages in a folder, a line for each."""
    pages = {path.resolve(): read(path) for path in sorted(site.rglob("*.html"))}
    wrong = []
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        for link in [*page.links, *page.loads]:
            parts = urlsplit(link)
            if parts.scheme == "data":
                continue
            if parts.scheme or parts.netloc:
                wrong += [f"{name}: loads {link} from a network"] * (link in page.loads)
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                wrong.append(f"{name}: {link} leads to no file")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].places:
                wrong.append(f"{name}: {link} leads to a page without that place")
    return wrong


def main() -> int:
    """Print what is wrong and return the exit code."""
    site = Path(sys.argv[1])
    wrong = problems(site)
    print("\n".join(wrong) or f"all links of {len(list(site.rglob('*.html')))} pages lead somewhere")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
