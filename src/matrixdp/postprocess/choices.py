"""Arguments that are one of a few words."""

from matrixdp.errors import InvalidParameterError

__all__ = ["check_choice"]


def check_choice(value: object, name: str, choices: tuple[str, ...]) -> None:
    """Raise unless a value is one of some words."""
    # isinstance first: comparing an array with a word would be an array.
    if not isinstance(value, str) or value not in choices:
        words = " or ".join(map(repr, choices))
        raise InvalidParameterError(f"{name}={value!r} is not known: pass {words}")
