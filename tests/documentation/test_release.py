"""A release: one version everywhere, and nothing is said to be published that is not."""

import re
from pathlib import Path

import pytest

import matrixdp

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_one_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", matrixdp.__version__)
    cited = re.findall(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    listed = re.findall(r"^## \[(.*?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert cited == listed[:1] == [matrixdp.__version__]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_package_is_not_said_to_be_on_an_index(page: Path) -> None:
    assert re.findall(r"pip install ['\"]?matrixdp", page.read_text()) == []


def test_publishing_stores_no_token_and_is_said_to_be_untried() -> None:
    yaml = pytest.importorskip("yaml", reason="YAML is read by PyYAML, of the extra `dask`")
    path = ROOT / ".github/workflows/publish.yml"
    if not path.exists():
        pytest.skip("source distributions have no workflows")
    text = path.read_text()
    jobs = yaml.safe_load(text)["jobs"]
    assert "secrets." not in text
    assert text.startswith("# Untried")
    assert "untried" in (ROOT / "CONTRIBUTING.md").read_text()
    # Only the steps that sign may ask who they are, and the job that builds runs our code alone.
    signing = {name for name, job in jobs.items() if "id-token" in job["permissions"]}
    assert signing == {"attest", "publish"}
    assert jobs["build"]["permissions"] == {"contents": "read"}
    assert any(step.get("run") == "make dist" for step in jobs["build"]["steps"])
    assert not any("run" in step for name in signing for step in jobs[name]["steps"])
