"""Choices among a few: a member of an enumeration, or its own string."""

import enum
from typing import TypeVar

from matrixdp.errors import InvalidParameterError

__all__ = ["checked_choice"]

E = TypeVar("E", bound=enum.Enum)


def checked_choice(value: object, kind: type[E], name: str) -> E:
    """Return the member of an enumeration that a value is or names.

    Raises
    ------
    InvalidParameterError
        If it is neither; the message lists the choices.

    Examples
    --------
    >>> from matrixdp.privacy import Accountant
    >>> checked_choice("rdp", Accountant, "accountant")
    <Accountant.RDP: 'rdp'>
    """
    if isinstance(value, kind):
        return value
    # Compared with strings alone, of which every choice has one.
    for member in kind:
        if isinstance(value, str) and value == member.value:
            return member
    choices = ", ".join(repr(member.value) for member in kind)
    raise InvalidParameterError(
        f"{name}={value!r} is not one of {choices}: pass one of them, or {kind.__name__}."
        f"{next(iter(kind)).name} and so on"
    )
