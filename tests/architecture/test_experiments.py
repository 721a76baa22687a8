"""The experiments are a distribution of their own, whose folders import one way."""

import ast
from pathlib import Path

import pytest

import matrixdp

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = Path(matrixdp.__file__).parent
EXPERIMENTS = ROOT / "experiments" / "src" / "matrixdp_experiments"
MODULES = sorted(EXPERIMENTS.rglob("*.py"))
# From the ground up; a module may import from lower tiers and from its own part, not from beside.
TIERS = [
    {"datasets", "features", "models", "options"},
    {"grid"},
    {"gradients", "procedural", "released_features"},
    {"report", "asked"},
    {"command"},
    {"__main__"},
]


def imported(tree: ast.AST) -> set[str]:
    """Return the dotted names that a module imports, within functions too."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def violations(part: str, names: set[str]) -> set[str]:
    """Return the parts of the experiments that a part must not import."""
    tier = {name: level for level, parts in enumerate(TIERS) for name in parts}
    prefix = "matrixdp_experiments."
    parts = {name.removeprefix(prefix).split(".")[0] for name in names if name.startswith(prefix)}
    return {one for one in parts - {part} if tier[one] >= tier[part]}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(EXPERIMENTS)))
def test_folders_of_the_experiments_import_one_way(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    part = path.relative_to(EXPERIMENTS).parts[0].removesuffix(".py")
    if part != "__init__":
        assert violations(part, imported(tree)) == set()
    assert not any(isinstance(node, ast.Assert) for node in ast.walk(tree))
    assert len(text.splitlines()) <= 400


def test_the_check_above_can_fail() -> None:
    upwards = ast.parse("def late():\n    from matrixdp_experiments.report import page_text")
    assert violations("grid", imported(upwards)) == {"report"}
    sideways = ast.parse("import matrixdp_experiments.gradients.cells")
    assert violations("released_features", imported(sideways)) == {"gradients"}
    assert violations("report", imported(sideways)) == set()


def test_the_library_knows_no_experiment() -> None:
    found = {
        path.name
        for path in LIBRARY.rglob("*.py")
        for name in imported(ast.parse(path.read_text()))
        if name.split(".")[0] == "matrixdp_experiments"
    }
    assert found == set()
    assert not (LIBRARY / "experiments").exists()
    assert len(MODULES) > 50  # the experiments are where this test looks for them
