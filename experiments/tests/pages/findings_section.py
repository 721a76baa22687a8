"""The findings of a page, and the numbers in them that nothing accounts for."""

import re
from collections.abc import Iterable
from pathlib import Path

__all__ = ["findings_under", "unchecked_numbers"]

_PAGE = Path(__file__).resolve().parents[3] / "docs" / "experiments.md"


def findings_under(title: str) -> str:
    """Return the text of a section, without its line breaks."""
    _, _, rest = _PAGE.read_text().partition(f"# {title}\n")
    section, _, _ = rest.partition("\n#")
    return " ".join(section.split())


def unchecked_numbers(findings: str, phrases: Iterable[str], names: str) -> list[str]:
    """Return what has digits and is neither in a phrase nor one of the names, a pattern."""
    # The longest first: a short phrase may be a part of a longer one.
    for phrase in sorted(phrases, key=len, reverse=True):
        findings = findings.replace(phrase, "")
    return re.findall(r".{0,20}\d.{0,20}", re.sub(names, "", findings))
