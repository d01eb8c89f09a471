"""A built site stands on its own: links lead somewhere, and nothing is fetched from elsewhere."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}


class Page(HTMLParser):
    """What a page links to, what it fetches, and the places in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if given.get("id"):
            self.places.add(str(given["id"]))
        if tag == "a" and given.get("href"):
            self.links.append(str(given["href"]))
        where = given.get(FETCHED.get(tag, ""))
        if where and given.get("rel") not in ("canonical", "next", "prev"):
            self.fetched.append(where)


def faults(site: Path) -> list[str]:
    """Everything that is wrong with the pages under a folder."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    found = []
    for path, page in sorted(pages.items()):
        if path.name == "404.html":  # its links start at the root of a server
            continue
        name = path.relative_to(site)
        for where in page.fetched:
            if urlsplit(where).netloc:
                found.append(f"{name}: fetches {where}")
        for where in page.links + page.fetched:
            parts = urlsplit(where)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                found.append(f"{name}: {where} does not exist")
            elif (
                parts.fragment
                and target in pages
                and unquote(parts.fragment) not in pages[target].places
            ):
                found.append(f"{name}: {where} has no such place")
    for path in site.rglob("*.css"):
        if "url(http" in path.read_text(encoding="utf-8").replace('"', "").replace("'", ""):
            found.append(f"{path.relative_to(site)}: fetches from elsewhere")
    return found
