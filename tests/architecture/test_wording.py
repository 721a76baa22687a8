"""Module docstrings say what a module is, and texts use the words of the field."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULES = sorted([*ROOT.glob("src/**/*.py"), *ROOT.glob("experiments/src/**/*.py")])
FOLDERS = ("src", "experiments", "tests", "benchmarks")
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
    first = re.match(r'r?"""(\w+)', text)
    return first is not None and first[1] in CLAUSES


def test_a_module_docstring_says_what_the_module_is() -> None:
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    assert len(paths) > 700
    assert [str(path) for path in paths if begins_with_a_clause(path.read_text())] == []


def test_texts_use_the_words_of_the_field() -> None:
    found = {str(path): WORDS.findall(path.read_text()) for path in [*MODULES, *PAGES]}
    assert {path: words for path, words in found.items() if words} == {}


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
