"""Options of the command line as values."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from matrixdp.errors import InvalidParameterError

__all__ = [
    "EXPERIMENTS",
    "RESULTS",
    "check_experiment",
    "check_known",
    "integers",
    "listed",
    "numbers",
    "seeds",
]

EXPERIMENTS = ("type-one", "type-two")
RESULTS = Path("results")
Value = TypeVar("Value")
_MOST_SEED = 2**63 - 1  # of the generators of PyTorch


def check_experiment(name: str, known: Sequence[str] = EXPERIMENTS) -> None:
    """Raise if there is no such experiment, or not for this command."""
    if name not in known:
        raise InvalidParameterError(
            f"experiment={name!r} cannot be used with this command: use {' or '.join(known)}"
        )


def check_known(value: str, names: Iterable[str], what: str) -> None:
    """Raise if a value is none of some names, which the message lists."""
    known = list(names)
    if value not in known:
        raise InvalidParameterError(f"{what}={value!r} is not known: use one of {', '.join(known)}")


def listed(given: Iterable[str] | None, name: str) -> list[str] | None:
    """Return the parts of an option that may be repeated, or separated by commas; None if none."""
    if given is None:
        return None
    parts = [part for text in given for part in text.split(",")]
    # Most likely a shell's variable that is not set; it must not mean "all of them".
    if not all(part.strip() for part in parts):
        raise InvalidParameterError(
            f"{name} has an empty value: name what you want, or leave --{name} out for all of them"
        )
    # Naming something twice is no reason to do it twice.
    return list(dict.fromkeys(parts)) or None


def numbers(given: Iterable[str] | None, name: str) -> list[float] | None:
    """Return the same as numbers."""
    return _converted(given, name, float, "a number")


def integers(given: Iterable[str] | None, name: str) -> list[int] | None:
    """Return the same as integers."""
    return _converted(given, name, int, "an integer")


def seeds(given: Iterable[str] | None) -> list[int] | None:
    """Return the same as seeds that every generator takes."""
    found = integers(given, "seed")
    for seed in found or ():
        if not 0 <= seed <= _MOST_SEED:
            raise InvalidParameterError(f"seed={seed} is not between 0 and {_MOST_SEED:,}")
    return found


def _converted(
    given: Iterable[str] | None, name: str, kind: Callable[[str], Value], words: str
) -> list[Value] | None:
    found = []
    for part in listed(given, name) or ():
        try:
            found.append(kind(part))
        except ValueError:
            raise InvalidParameterError(f"{name}={part!r} is not {words}") from None
    return found or None
