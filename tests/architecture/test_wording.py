"""Module docstrings say what a module is, and texts use the words of the field."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted([*ROOT.glob("src/**/*.py"), *ROOT.glob("experiments/src/**/*.py")])
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md")])
# A clause says what is asked of a module, and not what the module is.
CLAUSES = {"What", "Whether", "How", "Which", "Where"}
# The field says integers, scalars, booleans, correctly, compressed, and characters.
WORDS = re.compile(
    r"""\b((whole|single)[\s"#]+numbers?|truth values?|rightly|packed files?|also packed"""
    r"""|whole (counts?|weights?)|signs? between)\b""",
    re.IGNORECASE,
)


def begins_with_a_clause(text: str) -> bool:
    """Return whether the docstring of a module begins with What, Whether, How, Which or Where."""
    words = (ast.get_docstring(ast.parse(text)) or "").split()
    return bool(words) and words[0] in CLAUSES


def name_of(path: Path) -> str:
    """Return the path of a file from the root of the project."""
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_docstring_says_what_the_module_is(path: Path) -> None:
    assert not begins_with_a_clause(path.read_text())


@pytest.mark.parametrize("path", [*MODULES, *PAGES], ids=name_of)
def test_texts_use_the_words_of_the_field(path: Path) -> None:
    assert WORDS.findall(path.read_text()) == []


def test_the_checks_above_can_fail() -> None:
    assert len(MODULES) > 200
    assert len(PAGES) > 15
    assert begins_with_a_clause('"""What a query is: a matrix."""')
    assert not begins_with_a_clause('"""Queries: matrices. What one record changes is bounded."""')
    assert WORDS.search('"... must be a whole "\n    "number of at least 1"')
    assert WORDS.search("calibration of single numbers")
    assert WORDS.search("CSV and TSV (also packed)")
    assert WORDS.search("integers and truth values")
    assert WORDS.search("the sign between cells")
    assert not WORDS.search("the whole; numbers")
