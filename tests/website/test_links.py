"""Every link within the site leads to a page and, if it names one, to a heading there."""

import re
from pathlib import Path

import pytest

from website.built_pages import Page, broken, loaded_from_elsewhere, pages

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.site
def test_links_lead_somewhere(built: dict[Path, Page]) -> None:
    assert len(built) > 200
    assert broken(built) == []


@pytest.mark.site
def test_nothing_is_loaded_from_other_hosts(site: Path, built: dict[Path, Page]) -> None:
    assert loaded_from_elsewhere(built) == []
    sheets = [path.read_text() for path in site.rglob("*.css")]
    assert [link for text in sheets for link in re.findall(r"url\(\W?(https?:[^)]*)", text)] == []


@pytest.mark.site
def test_every_page_of_the_repository_is_in_the_site(site: Path) -> None:
    sources = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.ipynb")]
    missing = [
        path.name
        for path in sources
        if not (site / path.relative_to(ROOT)).with_suffix(".html").is_file()
    ]
    assert missing == []


def test_the_checks_above_can_fail(tmp_path: Path) -> None:
    (tmp_path / "other.html").write_text('<h2 id="there">There</h2>')
    page = tmp_path / "page.html"
    page.write_text(
        '<a href="other.html#there">right</a> <a href="#here" id="here">right</a>'
        '<a href="https://example.org/absent">not ours</a><a href="page.html">right</a>'
    )
    assert broken(pages(tmp_path)) == []
    assert loaded_from_elsewhere(pages(tmp_path)) == []
    for link in ("absent.html", "other.html#absent", "#absent", "../page.html", "data.csv"):
        page.write_text(f'<a href="{link}">wrong</a>')
        assert broken(pages(tmp_path)) == [f"page.html: {link}"]
    page.write_text('<img src="absent.png"><script src="https://example.org/x.js"></script>')
    assert broken(pages(tmp_path)) == ["page.html: absent.png"]
    assert loaded_from_elsewhere(pages(tmp_path)) == ["https://example.org/x.js"]
