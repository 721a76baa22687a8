"""The site in a real browser: search, navigation, dark mode, narrow screens."""

import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from website.built_pages import Page

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
WIDE, NARROW = 1400, 390
# Long tables, long code, figures, a signature with many types.
PAGES = (
    *("docs/command_line.html", "docs/comparison.html", "docs/experiments.html"),
    *("docs/training.html", "docs/api/privacy.html", "docs/api/names/matrixdp.Release.html"),
)
WITHOUT_TEXT = {"index.html", "search.html"}
# The text may scroll by itself where the page does not.
WIDER = """
return Math.max(...["html", ".bd-content", ".bd-article-container", ".bd-article"]
  .map(name => document.querySelector(name))
  .map(part => part.scrollWidth - part.clientWidth));
"""
pytestmark = [
    pytest.mark.site,
    pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="no Chromium, or no driver"),
]


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder, and writes nothing about it."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Serve the site on this machine."""
    handler = partial(Quiet, directory=site)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Start a browser that a program clicks."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="clicks need selenium")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    with webdriver.Chrome(options, webdriver.ChromeService(DRIVER)) as driver:
        driver.implicitly_wait(20)
        driver.set_window_size(WIDE, 1000)
        yield driver


def click(browser: Any, selector: str) -> None:
    browser.find_element("css selector", selector).click()


def shown(browser: Any, selector: str, text: str) -> Any:
    """Return the first element of that text, for which the browser waits."""
    wait = pytest.importorskip("selenium.webdriver.support.wait").WebDriverWait(browser, 20)
    return wait.until(
        lambda driver: next(
            (
                element
                for element in driver.find_elements("css selector", selector)
                if text in element.text
            ),
            False,
        )
    )


def resize(browser: Any, width: int) -> None:
    """Make the screen as wide as that; windows have a least width."""
    size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def test_search_finds_a_page(browser: Any, address: str) -> None:
    browser.get(f"{address}/index.html")
    shown(browser, "h1", "matrixdp")  # the first page leads on to the documentation
    assert browser.current_url == f"{address}/docs/index.html"
    click(browser, "button.search-button__button")
    browser.find_element("css selector", "dialog input[type=search]").send_keys("kronecker\n")
    shown(browser, ".search a", "Kronecker").click()
    assert "kronecker" in browser.find_element("css selector", "h1").text.lower()


def test_navigation_leads_from_page_to_page(browser: Any, address: str) -> None:
    browser.get(f"{address}/docs/index.html")
    for section, page in (
        ("How-to guides", "Queries that carry their sensitivity"),
        ("Concepts", "What mu is"),
        ("Reference", "Command line"),
    ):
        shown(browser, ".bd-header a.nav-link", section).click()
        shown(browser, "h1", section)
        shown(browser, ".bd-sidebar-primary a", page).click()
        shown(browser, "h1", page)
    shown(browser, ".bd-sidebar-primary a", "matrixdp").click()
    shown(browser, "table a", "IMGM").click()
    shown(browser, "dt.sig", "IMGM")


def test_dark_mode_stays(browser: Any, address: str) -> None:
    browser.get(f"{address}/docs/mu.html")
    colours = {}
    for mode in ("light", "dark"):
        click(browser, ".bd-header .theme-switch-container button")
        shown(browser, ".bd-header .theme-switch-container .dropdown-item", mode.title()).click()
        browser.refresh()
        assert browser.execute_script("return document.documentElement.dataset.theme") == mode
        colours[mode] = browser.execute_script("return getComputedStyle(document.body).color")
    assert colours["light"] != colours["dark"]


def too_wide(browser: Any) -> int:
    """Return by how many pixels the page or its text is wider than there is room."""
    return int(browser.execute_script(WIDER))


def test_no_page_is_wider_than_the_screen(
    browser: Any, address: str, site: Path, built: dict[Path, Page]
) -> None:
    found = [path.relative_to(site).as_posix() for path in built]
    for width, names in ((WIDE, PAGES), (NARROW, set(found) - WITHOUT_TEXT)):
        resize(browser, width)
        for name in names:
            browser.get(f"{address}/{name}")
            assert browser.execute_script("return innerWidth") == width
            assert too_wide(browser) == 0, f"{name}, {width} pixels"
        browser.execute_script("document.querySelector('h1').style.minWidth = '2000px'")
        assert too_wide(browser) > 500


def test_a_narrow_screen_has_the_navigation_behind_a_button(browser: Any, address: str) -> None:
    resize(browser, NARROW)
    browser.get(f"{address}/docs/index.html")
    click(browser, ".bd-header button.primary-toggle")
    shown(browser, "dialog a.nav-link", "Concepts").click()
    shown(browser, "h1", "Concepts")


def test_nothing_comes_from_elsewhere(browser: Any, address: str) -> None:
    browser.get(f"{address}/docs/comparison.html")
    loaded = browser.execute_script("return performance.getEntries().map(entry => entry.name)")
    hosts = [name for name in loaded if "://" in name]
    assert len(hosts) > 5
    assert [name for name in hosts if not name.startswith(address)] == []
