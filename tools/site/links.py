"""Checks a built site: every link and anchor inside it leads somewhere, and no page fetches from another host.

`python tools/site/links.py build/site` says what is wrong, a line each, and ends with 1.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

_FETCHED: Final = {
    "audio": "src",
    "iframe": "src",
    "img": "src",
    "link": "href",
    "script": "src",
    "source": "src",
    "video": "src",
}
_ELSEWHERE: Final = ("http", "https", "mailto")


@dataclass
class Page(HTMLParser):
    links: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        target = values.get(_FETCHED.get(tag, "href" if tag == "a" else ""))
        if target is not None:
            (self.links if tag == "a" else self.fetched).append(target)


def read(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def broken(site: Path) -> list[str]:
    """Returns a line for each link, anchor or request that should not be there."""
    site = site.resolve()
    pages = {
        path: read(path) for path in sorted(site.rglob("*.html")) if path.name != "404.html"
    }  # which servers show anywhere
    faults = []
    for path, page in pages.items():
        where = path.relative_to(site)
        for target in dict.fromkeys(page.links + page.fetched):
            reason = _wrong(target, path, site, pages)
            if reason is None and target in page.fetched and urlsplit(target).scheme in ("http", "https"):
                reason = "another host"
            if reason is not None:
                faults.append(f"{where}: {target}: {reason}")
    for path in sorted(site.rglob("*.css")):
        outside = re.findall(r"(?:url\(|@import )['\"]?(https?:[^'\")\s]*)", path.read_text(encoding="utf-8"))
        faults += [f"{path.relative_to(site)}: {target}: another host" for target in outside]
    return faults


def _wrong(target: str, path: Path, site: Path, pages: dict[Path, Page]) -> str | None:
    parts = urlsplit(target)
    if parts.scheme:
        return None if parts.scheme in (*_ELSEWHERE, "data") else "no scheme of ours"
    if parts.netloc or parts.path.startswith("/"):
        return "not relative: it breaks where the site is opened from files"
    there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not there.is_file() or not there.is_relative_to(site):
        return "no such file"
    anchor = unquote(parts.fragment)
    return "no such anchor" if anchor and there in pages and anchor not in pages[there].anchors else None


def main(folder: str) -> int:
    site = Path(folder)
    pages = len(list(site.rglob("*.html")))
    faults = broken(site)
    sys.stdout.write("".join(f"{line}\n" for line in faults) or f"{pages} pages, all links lead somewhere\n")
    return 1 if faults or not pages else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2] or ["build/site"]))
