"""Check every link of the built site, to files and to anchors in them.

In: a folder of HTML. Out: a line for each dead link, and for each script, style or picture from
another machine: the site must work without a network. Must not: send requests to other machines.
"""

from __future__ import annotations

import posixpath
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script", "img", "link", "iframe", "source", "object"}
"""HTML elements whose address a browser fetches when it shows the page."""


class Page(HTMLParser):
    """The links in a page, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.places: set[str] = set()
        self.links: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record an element's anchors and links."""
        found = dict(attrs)
        self.places |= {value for name in ("id", "name") if (value := found.get(name))}
        for name in ("href", "src", "data"):
            value = found.get(name)
            if value is not None and (name != "data" or tag == "object"):
                self.links.append((tag, value))


def dead_links(folder: Path) -> list[str]:
    """Return a line for each dead link of the site."""
    pages = {
        path.relative_to(folder).as_posix(): Page(path.read_text(encoding="utf-8"))
        for path in sorted(folder.rglob("*.html"))
    }
    return [line for name in pages for line in dead_links_of(name, pages, folder)]


def dead_links_of(name: str, pages: dict[str, Page], folder: Path) -> list[str]:
    """Return a line for each dead link of one page."""
    found = []
    for tag, link in dict.fromkeys(pages[name].links):
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            if tag in LOADED and parts.scheme != "data":
                found.append(f"{name}: loads {link} from elsewhere")
            continue
        place = posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(parts.path)))
        place = name if not parts.path else place
        if place.startswith("../") and place.removeprefix("../") == "versions.js":
            continue  # shared by all versions, in the folder above them
        if place.startswith(("/", "../")):  # links to files of this machine
            found.append(f"{name}: {link} leads out of the site")
            continue
        target = pages.get(place)
        if target is None and not (folder / place).is_file():
            found.append(f"{name}: {link} leads nowhere")
        elif target and parts.fragment and unquote(parts.fragment) not in target.places:
            found.append(f"{name}: {link}: no such place there")
    return found
