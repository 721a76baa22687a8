"""The pages of a built site as they are: anchors, links, and what they load."""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


@dataclass
class Page(HTMLParser):
    """What a page offers to links, and where it leads."""

    path: Path
    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element's name, its link and what it loads."""
        found = dict(attrs)
        self.anchors |= {value for name in ("id", "name") if (value := found.get(name))}
        if tag == "a" and (link := found.get("href")):
            self.links.append(link)
        loads = found.get("href") if tag == "link" else found.get("src")
        if loads and found.get("rel") not in {"canonical", "next", "prev"}:
            self.loaded.append(loads)


def pages(site: Path) -> dict[Path, Page]:
    """Return the pages of a site; what the theme keeps beside its scripts are none."""
    found = sorted(site.resolve().rglob("*.html"))
    return {path: Page(path) for path in found if "_static" not in path.parts}


def broken(found: dict[Path, Page]) -> list[str]:
    """Return the links within a site that lead nowhere, and the files that it lacks."""
    return [
        f"{page.path.name}: {link}"
        for page in found.values()
        for link in [*page.links, *page.loaded]
        if not leads_somewhere(page, link, found)
    ]


def leads_somewhere(page: Page, link: str, found: dict[Path, Page]) -> bool:
    """Return whether a link leads to a file, and to an anchor in it if it names one."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    target = page.path.parent.joinpath(unquote(parts.path)).resolve() if parts.path else page.path
    if target not in found:
        return target.is_file() and not parts.fragment
    return not parts.fragment or unquote(parts.fragment) in found[target].anchors


def loaded_from_elsewhere(found: dict[Path, Page]) -> list[str]:
    """Return what pages load from other hosts."""
    loads = [link for page in found.values() for link in page.loaded]
    return [link for link in loads if urlsplit(link).netloc]
