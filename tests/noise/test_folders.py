"""The folders of the noise import each other in one direction."""

import ast
from pathlib import Path

import pytest

import matrixdp.noise

ROOT = Path(matrixdp.noise.__file__).parent
# From the ground up; a folder may import from itself and from those before it.
ORDER = ["specification", "keys", "kernels", "application", "proofs"]


def imported_folders(source: str) -> set[str]:
    """Return the folders of the noise that a module imports."""
    modules = [
        node.module
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.module
    ]
    return {name.split(".")[2] for name in modules if name.startswith("matrixdp.noise.")}


@pytest.mark.parametrize("folder", ORDER)
def test_folders_import_downwards(folder: str) -> None:
    allowed = set(ORDER[: ORDER.index(folder) + 1])
    for path in (ROOT / folder).glob("*.py"):
        assert imported_folders(path.read_text()) <= allowed, path.name


def test_every_folder_is_ordered() -> None:
    assert {path.parent.name for path in ROOT.glob("*/*.py")} == set(ORDER)
    upwards = "from matrixdp.noise.application.add import add_noise"
    assert imported_folders(upwards) == {"application"}
