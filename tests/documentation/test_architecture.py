"""The architecture page names every folder of the source, and no other."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/architecture.md"
SOURCES = ("src/matrixdp", "experiments/src/matrixdp_experiments")


def named_folders(page: str) -> set[str]:
    """Return the folders that the tree of a page names, as paths by their indentation."""
    (tree,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    found: set[str] = set()
    above: list[tuple[int, str]] = []
    for line in tree.splitlines():
        names = re.match(r" *((?:[\w/]+/(?:  |$|(?= )))+)", line)
        if names is None:
            continue
        depth = len(line) - len(line.lstrip())
        above = [(own, name) for own, name in above if own < depth]
        parent = above[-1][1] + "/" if above else ""
        paths = [parent + name.rstrip("/") for name in names[1].split()]
        found.update(paths)
        above.append((depth, paths[-1]))
    return found


def folders_below(source: str) -> set[str]:
    """Return the folders with modules, from a folder downwards, as paths from the root."""
    modules = (ROOT / source).rglob("*.py")
    return {module.parent.relative_to(ROOT).as_posix() for module in modules}


def test_the_page_names_every_folder_and_no_other() -> None:
    folders = set().union(*map(folders_below, SOURCES))
    assert named_folders(PAGE.read_text()) == folders


def test_a_tree_is_read_by_its_indentation() -> None:
    tree = "```text\nsrc/a/   the library, in one/two\n  b/  c/  two\n    d/   one\n  e/\n```\n"
    assert named_folders(tree) == {"src/a", "src/a/b", "src/a/c", "src/a/c/d", "src/a/e"}


def test_the_page_is_one_page() -> None:
    assert len(PAGE.read_text().splitlines()) <= 90
