"""Nobody is sent to a private path: pages, docstrings and help name public packages only."""

import ast
import importlib
import re
from pathlib import Path

import pytest

import matrixdp

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(matrixdp.__file__).parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PUBLIC = {
    *("audit", "baselines", "covariance", "distributed", "errors", "estimators", "files", "ledger"),
    *(
        "noise",
        "postprocess",
        "privacy",
        "queries",
        "report",
        "sensitivity",
        "training",
        "workloads",
    ),
}
DOTTED = re.compile(r"\b(?:matrixdp|mdp)((?:\.[A-Za-z_]\w*)+)")
# The suffix of a file is not a module.
FILES = {"py", "md", "json", "npy", "npz", "csv"}


def private_paths(text: str) -> list[str]:
    """Return the dotted paths of a text that lead into a module which is not public."""
    found = [match[0] for match in DOTTED.finditer(text) if is_private(match[1].split(".")[1:])]
    # An import names a module, even where a function in it has the same name.
    imported = re.findall(r"(?:from|import) matrixdp\.([\w.]+)", text)
    return found + [name for name in imported if name not in PUBLIC]


def is_private(names: list[str]) -> bool:
    """Return whether a path below matrixdp leads into a folder or file that is not public."""
    if (SOURCE / names[0]).is_dir() and names[0] not in PUBLIC:
        return True
    below = SOURCE.joinpath(*names[:2])
    is_module = len(names) > 1 and (below.is_dir() or below.with_suffix(".py").exists())
    if not is_module or names[-1] in FILES:
        return False
    exported = importlib.import_module(f"matrixdp.{names[0]}").__all__
    return len(names) > 2 or names[1] not in exported


def docstrings(path: Path) -> list[str]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)]
    return [text for node in nodes if (text := ast.get_docstring(node)) is not None]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_public_packages(page: Path) -> None:
    assert private_paths(page.read_text()) == []


def test_docstrings_name_public_packages() -> None:
    found = {
        str(path.relative_to(SOURCE)): wrong
        for path in sorted(SOURCE.rglob("*.py"))
        for text in docstrings(path)
        if (wrong := private_paths(text))
    }
    assert found == {}


def test_private_paths_are_found() -> None:
    for text in (
        "`matrixdp.mechanisms.imgm`",
        "from matrixdp.workloads.counting import count_cells",
        "see matrixdp.privacy.claims.composed_delta",
        "from matrixdp.files.publishing.npy_stream import add_noise_to_npy",
        "mdp.workloads.solve",
    ):
        assert private_paths(text), text
    for text in (
        "from matrixdp.privacy import Budget",
        "mdp.audit.audit_claim(1.0)",
        "matrixdp.errors.ShapeError: no",
        "python -m matrixdp.noise",
        "import matrixdp as mdp",
    ):
        assert private_paths(text) == [], text
