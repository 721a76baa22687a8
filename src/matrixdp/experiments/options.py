"""What the command line of an experiment takes, as values: shared by both of its entrances."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from matrixdp.errors import InvalidParameterError

__all__ = [
    "EXPERIMENTS",
    "RESULTS",
    "check_experiment",
    "listed",
    "numbers",
    "whole_numbers",
]

EXPERIMENTS = ("type-one", "type-two")
RESULTS = Path("results")
Value = TypeVar("Value")


def check_experiment(name: str, known: Sequence[str] = EXPERIMENTS) -> None:
    """Raise if there is no such experiment, or not for this command."""
    if name not in known:
        raise InvalidParameterError(
            f"experiment={name!r} cannot be used with this command: use {' or '.join(known)}"
        )


def listed(given: Iterable[str] | None) -> list[str] | None:
    """Return the parts of options that may be repeated, or separated by commas; None if none."""
    parts = [part for text in given or () for part in text.split(",") if part]
    # Naming something twice is no reason to do it twice.
    return list(dict.fromkeys(parts)) or None


def numbers(given: Iterable[str] | None, name: str) -> list[float] | None:
    """Return the same as numbers."""
    return _converted(given, name, float, "a number")


def whole_numbers(given: Iterable[str] | None, name: str) -> list[int] | None:
    """Return the same as whole numbers."""
    return _converted(given, name, int, "a whole number")


def _converted(
    given: Iterable[str] | None, name: str, kind: Callable[[str], Value], words: str
) -> list[Value] | None:
    found = []
    for part in listed(given) or ():
        try:
            found.append(kind(part))
        except ValueError:
            raise InvalidParameterError(f"{name}={part!r} is not {words}") from None
    return found or None
