"""Units of privacy with several records each, such as users, which a training protects."""

import re
from dataclasses import dataclass

from matrixdp.errors import InvalidParameterError
from matrixdp.parameters import positive_integer

__all__ = ["Units"]


# Those that units of a ledger's account may have.
_NAME = re.compile(r"[\w.@+-]+(/[\w.@+-]+)*")


@dataclass(frozen=True)
class Units:
    """The units of a training, such as users, each of which has records of its own.

    Lots are drawn of units. A unit that is drawn brings all of its records, or ``most_records`` of
    them, chosen at random in each step; its gradient is that of the mean of their losses, and is
    clipped once. So one unit more or less moves a sum by the clip norm, however many records it
    has: nothing is assumed about that. Losses are one for each row.

    Parameters
    ----------
    number : int
        How many units the data has. It is public, as the number of records is elsewhere.
    most_records : int
        How many records of one unit a step takes at most. Each unit of a batch takes as much time
        and memory as so many records, also one that has fewer.
    name : str, optional
        What a unit is, in one word whose plural has an s. A ledger's account pays for units of its
        own name only.

    Raises
    ------
    InvalidParameterError
        If a number is not a positive integer, or the name is "record" or not one word.

    Examples
    --------
    >>> from matrixdp.training import TrainingPlan, Units
    >>> plan = TrainingPlan(
    ...     units=Units(1_200, most_records=4, name="user"), lot_size=60, epochs=10, clip_norm=1.0,
    ...     epsilon=2.0, delta=1e-5
    ... )
    >>> plan.steps
    200
    """

    number: int
    most_records: int
    name: str = "unit"

    def __post_init__(self) -> None:
        """Raise if a parameter is outside its domain."""
        for field in ("number", "most_records"):
            object.__setattr__(self, field, positive_integer(getattr(self, field), field))
        name: object = self.name
        if not isinstance(name, str) or name == "record" or not _NAME.fullmatch(name):
            raise InvalidParameterError(
                f"name={name!r} is no name of units that have several records: say in one "
                "word what one is, such as 'user', or make the plan with records=... instead"
            )
