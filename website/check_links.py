"""Whether each link of the built site leads somewhere: ``python website/check_links.py build/docs``.

Inside the site: the file is there, and so is the anchor. Outside: the address has a form that can be asked for; whether
it answers, ``make linkcheck`` asks. Each page can be reached from the first one, and opens without a network:
scripts, styles and pictures lie in the site.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

OUTSIDE = ("http", "https", "mailto")
LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src"}  # by tag, the attribute with the address


class Page(HTMLParser):
    """The anchors of a page, what it links to or shows, and what a browser loads for it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors = {"", "#"}
        self.targets: list[str] = []
        self.parts: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element is called and where it leads."""
        loads = (
            LOADED.get(tag) if tag != "link" or dict(attrs).get("rel") in ("stylesheet", "icon", "preload") else None
        )
        for name, value in attrs:
            if name == loads and value is not None:
                self.parts.append(value)
            if name in ("id", "name") and value:
                self.anchors.add(value)
            elif (tag, name) in (("a", "href"), ("img", "src")) and value is not None:
                self.targets.append(value)


def mistakes(site: Path, first: str = "index.html") -> list[str]:
    """A line for each link that leads nowhere and each page that no link leads to."""
    pages = {path.resolve(): Page(path) for path in sorted(site.rglob("*.html"))}
    made_by_sphinx = {(site / name).resolve() for name in ("genindex.html", "search.html", "py-modindex.html")}
    found, links = [], {path: set[Path]() for path in pages}
    for path, page in pages.items():
        away = [part for part in page.parts if urlsplit(part).netloc]
        found += [f"{path.relative_to(site.resolve())}: {part}: is loaded from elsewhere" for part in away]
        for target in page.targets:
            parts = urlsplit(target)
            where = f"{path.relative_to(site.resolve())}: {target}"
            if parts.scheme in OUTSIDE:
                if parts.scheme != "mailto" and "." not in parts.netloc:
                    found.append(f"{where}: no address")
            elif parts.scheme and parts.scheme != "data":
                found.append(f"{where}: no link that a browser follows")
            elif not parts.scheme:
                to = (path.parent / unquote(parts.path)).resolve() if parts.path else path
                if not to.is_file():
                    found.append(f"{where}: no such file")
                elif to in pages:
                    links[path].add(to)
                    if unquote(parts.fragment) not in pages[to].anchors:
                        found.append(f"{where}: no such anchor")
    reached, ahead = set[Path](), [(site / first).resolve()]
    while ahead:
        page_path = ahead.pop()
        if page_path not in reached:
            reached.add(page_path)
            ahead.extend(links[page_path])
    return found + [f"{path}: no link leads here" for path in sorted(set(pages) - reached - made_by_sphinx)]


if __name__ == "__main__":
    wrong = mistakes(Path(sys.argv[1]))
    print(*wrong, sep="\n", end="\n" if wrong else "")
    sys.exit(bool(wrong))
