"""The page in a real browser: nothing runs or is fetched, and it fits screens and paper."""

import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from matrixdp.cli.main import main

CHROMIUM = shutil.which("chromium")
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")

# The page itself runs no script, so another page, of the same origin, looks at it.
FRAME = """<!DOCTYPE html><title>waiting</title>
<iframe src="report.html" style="width: {width}px; height: 900px; border: 0"></iframe>
<script>
onload = () => {{
  const page = document.querySelector("iframe").contentWindow, root = page.document;
  const count = (names) => root.querySelectorAll(names).length;
  document.title = JSON.stringify([
    root.documentElement.scrollWidth - root.documentElement.clientWidth,
    count("script, img, iframe, link, object, [onerror], [onload]"),
    page.performance.getEntriesByType("resource").length,
    count("svg polyline"), count("h2"), page.attacked === undefined
  ]);
}};
</script>"""


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder, and writes nothing about it."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def address(folder: Path) -> Iterator[str]:
    """Serve a report on files with hostile names, in frames of two widths."""
    hostile = "<img src=x onerror=parent.attacked=window.attacked=1>.csv"
    for end in ("", ".json"):
        shutil.copy(f"box.csv{end}", f"{hostile}{end}")
    assert main(["report", "ball.npy", "w.npz", hostile, "--out", "report.html"]) == 0
    for width in (380, 1200):
        Path(f"{width}.html").write_text(FRAME.format(width=width))
    handler = partial(Quiet, directory=folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def chromium(folder: Path, *arguments: str) -> str:
    command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={folder / 'profile'}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


def test_it_fits_every_screen_and_nothing_runs(
    address: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for width in (380, 1200):
        profile = tmp_path_factory.mktemp("profile")
        seen = chromium(profile, "--dump-dom", f"{address}/{width}.html")
        title = re.search(r"<title>(.*?)</title>", seen)
        assert title is not None
        # Nothing is wider than the screen, no such element, nothing fetched; lines, headings.
        assert title[1] == "[0,0,0,3,4,true]", f"{width} pixels wide: {title[1]}"


def test_it_prints_on_a_few_pages(address: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("print")
    paper = folder / "report.pdf"
    chromium(folder, f"--print-to-pdf={paper}", f"{address}/report.html")
    pages = re.findall(rb"/Type\s*/Page\b", paper.read_bytes())
    assert 3 <= len(pages) <= 6
