"""The site as `make docs` built it."""

from pathlib import Path

import pytest

from website.built_pages import Page, pages

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def site() -> Path:
    """Return the folder of the built site."""
    folder = ROOT / "build" / "docs"
    if not (folder / "objects.inv").is_file():
        pytest.skip("the site is not built: make docs")
    return folder


@pytest.fixture(scope="session")
def built(site: Path) -> dict[Path, Page]:
    """Return the pages of the built site."""
    return pages(site)
