"""The folder tree is the architecture: imports point one way, and the core needs no extra."""

import ast
import importlib
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

import matrixdp

SOURCE = Path(matrixdp.__file__).parent
# From the ground up; a module may import from lower tiers and from its own part, not from beside.
TIERS = [
    {"errors"},
    {"parameters", "rounding", "processes", "interrupts", "integer_sums", "markup"},
    {"spectra"},
    {"covariance", "privacy", "noise"},
    {"sensitivity", "workloads"},
    {"mechanisms"},
    {"baselines"},
    {"files"},
    {"ledger", "queries", "postprocess", "audit"},
    {"estimators", "training", "report", "distributed"},
    {"cli"},
]
# The only modules that import from above, and only within a function: save and load delegate.
LATE = {
    "files/publishing/drafted.py": {"distributed"},
    "mechanisms/collecting.py": {"distributed"},
    "mechanisms/gaussian.py": {"files", "distributed"},
    "mechanisms/matrix_mechanism.py": {"files"},
    "mechanisms/release.py": {"files"},
    "mechanisms/workload_release.py": {"files"},
}
ENTRANCES = {"__init__", "__main__"}


@cache
def tree_of(path: Path) -> ast.Module:
    """Return a module as it is parsed, once for all tests."""
    return ast.parse(path.read_text())


def part_of(path: Path) -> str:
    first = path.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


def imported_names(tree: ast.AST, *, late: bool = True) -> set[str]:
    """Return the dotted names of matrixdp that a module imports, within functions too if late."""
    names = []
    inside = set() if late else late_nodes(tree)
    for node in ast.walk(tree):
        if node in inside:
            continue
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return {name for name in names if name.startswith("matrixdp.")}


def late_nodes(tree: ast.AST) -> set[ast.AST]:
    """Return everything within functions."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return {inner for function in functions for inner in ast.walk(function)}


def imported_parts(tree: ast.AST, *, late: bool = True) -> set[str]:
    """Return the parts of matrixdp that a module imports, within functions too if late."""
    return {name.split(".")[1] for name in imported_names(tree, late=late)}


def imports_between_pieces(folder: Path) -> dict[str, set[str]]:
    """Return, for each subfolder or module of a package, the others of it that it imports.

    A name that is neither comes from the package's ``__init__``, which imports them in turn.
    """
    prefix = ".".join(["matrixdp", *folder.relative_to(SOURCE).parts, ""])
    graph: dict[str, set[str]] = {}
    for path in sorted(folder.rglob("*.py")):
        piece = path.relative_to(folder).parts[0].removesuffix(".py")
        imported = imported_names(tree_of(path))
        own = {
            name.removeprefix(prefix).split(".")[0] for name in imported if name.startswith(prefix)
        }
        graph.setdefault(piece, set()).update(own - {piece})
    return {
        piece: {name if name in graph else "__init__" for name in others}
        for piece, others in graph.items()
    }


def cycle_in(graph: dict[str, set[str]]) -> list[str]:
    """Return pieces that import each other in a circle, or nothing."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def violations(part: str, imported: set[str]) -> set[str]:
    tier = {name: level for level, names in enumerate(TIERS) for name in names}
    return {other for other in imported - {part, "__version__"} if tier[other] >= tier[part]}


MODULES = sorted(SOURCE.rglob("*.py"))


def test_imports_point_one_way() -> None:
    found = {}
    for path in MODULES:
        part = part_of(path)
        if part not in ENTRANCES:
            late = violations(part, imported_parts(tree_of(path)))
            at_once = violations(part, imported_parts(tree_of(path), late=False))
            found[str(path.relative_to(SOURCE))] = (late, at_once)
    expected: dict[str, tuple[set[str], set[str]]] = {
        name: (LATE.get(name, set()), set()) for name in found
    }
    assert {name: both for name, both in found.items() if both != expected[name]} == {}


def test_the_check_above_can_fail() -> None:
    upwards = ast.parse("class A:\n    def late(self):\n        from matrixdp.cli.main import app")
    assert violations("privacy", imported_parts(upwards)) == {"cli"}
    assert violations("privacy", imported_parts(upwards, late=False)) == set()
    at_once = ast.parse("class A:\n    from matrixdp.files.publishing.releases import save_release")
    assert violations("mechanisms", imported_parts(at_once, late=False)) == {"files"}
    sideways = ast.parse("import matrixdp.noise.keys")
    assert violations("privacy", imported_parts(sideways)) == {"noise"}
    assert violations("mechanisms", {"errors", "privacy", "mechanisms"}) == set()


PACKAGES = sorted(path.parent for path in SOURCE.rglob("__init__.py") if path.parent != SOURCE)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_the_pieces_of_a_package_import_each_other_in_one_direction(package: Path) -> None:
    assert cycle_in(imports_between_pieces(package)) == []


def test_circles_of_subfolders_are_found() -> None:
    assert cycle_in({"solve": {"strategies"}, "strategies": set(), "unions": {"solve"}}) == []
    circle = cycle_in({"search": {"bounds"}, "bounds": {"search"}, "optimal": {"search"}})
    assert set(circle) == {"search", "bounds"}
    # Real edges, so that a reader of imports which saw nothing would be noticed.
    assert "strategies" in imports_between_pieces(SOURCE / "workloads")["solve"]
    assert "bases" in imports_between_pieces(SOURCE / "workloads" / "solve")["dual"]


def test_every_part_has_a_tier() -> None:
    assert {part_of(path) for path in MODULES} - ENTRANCES <= set().union(*TIERS)
    assert all(not lower & upper for lower, upper in pairwise(TIERS))


def test_public_names_are_listed_and_exist() -> None:
    assert len(set(matrixdp.__all__)) == len(matrixdp.__all__)
    for path in MODULES:
        if part_of(path) == "__main__":
            continue
        tree = tree_of(path)
        declared = [
            node
            for node in tree.body
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id == "__all__"
        ]
        assert declared or path.name == "__init__.py", f"{path.name} lists no public names"
    for name in matrixdp.__all__:
        assert getattr(matrixdp, name).__doc__


@pytest.mark.parametrize("module", ["matrixdp", "matrixdp.cli.main"])
def test_importing_loads_nothing_heavy(module: str) -> None:
    heavy = ["torch", "matplotlib", "numba", "dp_accounting", "pandas", "flint"]
    code = f"import sys, {module}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import matrixdp", ["numpy", "scipy"]),
        ("import matrixdp; matrixdp.IMGM", ["scipy.special", "scipy.linalg", "matrixdp.workloads"]),
        (
            "from matrixdp.cli.main import main; main(['budget', '--epsilon=1', '--delta=1e-5'])",
            ["scipy.special", "scipy.optimize", "cryptography", "msgspec", "matrixdp.noise"],
        ),
        (
            "from matrixdp.cli.main import main; main(['release', '--help'])",
            ["matrixdp.ledger", "sqlite3"],
        ),
    ],
)
def test_nothing_is_imported_before_it_is_used(statement: str, absent: list[str]) -> None:
    code = f"import sys; {statement}; sys.exit(str([n for n in {absent} if n in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "[]"


def test_stubs_name_what_packages_offer() -> None:
    # Packages that import late read their names from a stub, where type checkers find them too.
    stubs = sorted(SOURCE.rglob("__init__.pyi"))
    assert len(stubs) == 5
    for stub in stubs:
        assert "__all__" in stub.read_text()
        package = importlib.import_module(
            ".".join(["matrixdp", *stub.parent.relative_to(SOURCE).parts])
        )
        tree = ast.parse(stub.read_text())
        declared = next(
            ast.literal_eval(node.value)
            for node in tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        )
        assert sorted(declared) == sorted(package.__all__)
        assert all(getattr(package, name) is not None for name in declared)


def test_parts_show_their_public_names_and_no_others() -> None:
    # Whatever is imported becomes an attribute of its part; `dir` leaves it out.
    parts = [path.name for path in PACKAGES if path.parent == SOURCE]
    parts += [path.stem for path in SOURCE.glob("[!_]*.py")]
    code = """
import importlib, pkgutil, sys
from contextlib import suppress
packages = []
for name in sys.argv[1:]:
    with suppress(ImportError):  # an extra that is not installed
        packages.append(importlib.import_module(name))
for module in pkgutil.walk_packages(packages[0].__path__, "matrixdp."):
    if not module.name.endswith("__main__"):
        with suppress(ImportError):
            importlib.import_module(module.name)
print(len(packages))
for package in packages:
    used = {name for name in package.__all__ if hasattr(package, name)}
    shown = {name for name in dir(package) if not name.startswith("__")}
    if not used == shown == set(package.__all__):
        print(package.__name__, used ^ shown)
"""
    command = [sys.executable, "-c", code, "matrixdp", *[f"matrixdp.{part}" for part in parts]]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    looked_at, *wrong = done.stdout.splitlines()
    assert int(looked_at) >= len(parts) - 2  # three of the packages need an extra
    assert wrong == []


def test_few_names_at_the_top() -> None:
    assert len(matrixdp.__all__) <= 40
    # help(matrixdp) shows the names in groups, each name once.
    overview = matrixdp.__doc__ or ""
    assert [name for name in matrixdp.__all__ if f"`{name}`" not in overview] == []


def test_a_file_holds_one_idea() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in MODULES}
    assert [(str(path), lines) for path, lines in lengths.items() if lines > 400] == []


def test_no_guard_is_an_assertion() -> None:
    # python -O removes assertions, and with them whatever they guarded.
    asserting = [
        path.name
        for path in MODULES
        if any(isinstance(node, ast.Assert) for node in ast.walk(tree_of(path)))
    ]
    assert asserting == []
