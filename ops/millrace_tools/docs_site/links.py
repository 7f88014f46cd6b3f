"""Reads the pages of a built site, and says what is wrong with their links, without asking any other host.

Each link within the site has to lead to a file that is there and, with an anchor, to a place on that page. What a page
loads by itself (scripts, styles, pictures, fonts) has to lie in the site.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
ICONS_AND_STYLES = {"stylesheet", "icon", "preload", "manifest", "preconnect", "prefetch"}


@dataclass(slots=True)
class Page:
    """The anchors of a page, what it links to, and what it loads."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value is not None}
        self.page.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.page.links.append(given["href"])
        attribute = LOADED.get(tag)
        is_loaded = tag != "link" or not ICONS_AND_STYLES.isdisjoint(given.get("rel", "").split())
        if attribute in given and is_loaded:
            self.page.loaded.append(given[attribute])


def faults(site: Path) -> Iterator[str]:
    """Yields a sentence for each link that leads nowhere, and for each thing that would be loaded from elsewhere."""
    pages = {str(path.relative_to(site)): _read(path) for path in sorted(site.rglob("*.html"))}
    files = {str(path.relative_to(site)) for path in site.rglob("*") if path.is_file()}
    for name, page in pages.items():
        for target in page.loaded:
            if urlsplit(target).netloc:
                yield f"{name} loads {target} from elsewhere"
            elif not target.startswith("data:") and _file(name, target) not in files:
                yield f"{name} loads {target}, which is not there"
        for target in page.links:
            if fault := _fault(name, target, files, pages):
                yield f"{name} links to {target}: {fault}"


def _read(path: Path) -> Page:
    reader = _Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    return reader.page


def _fault(name: str, target: str, files: set[str], pages: Mapping[str, Page]) -> str | None:
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        return None
    file = _file(name, target)
    if file not in files:
        return "there is no such page"
    anchor = unquote(parts.fragment)
    if anchor and file in pages and anchor not in pages[file].anchors:
        return "the page has no such place"
    return None


def _file(name: str, target: str) -> str:
    path = unquote(urlsplit(target).path)
    if not path:
        return name
    file = os.path.normpath(os.path.join(os.path.dirname(name), path.lstrip("/") if path.startswith("/") else path))
    return os.path.join(file, "index.html") if path.endswith("/") or file == "." else file
