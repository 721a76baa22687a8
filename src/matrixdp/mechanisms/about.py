"""The data set, the purpose and the unit of a release, in the words of whoever makes it."""

from dataclasses import dataclass, fields

from matrixdp.errors import InvalidParameterError

__all__ = ["About"]

_LONGEST = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a statement says for people besides its guarantee. It is published as it is.

    Write nothing that was read from the records: no noise protects it.

    Parameters
    ----------
    dataset : str, optional
        A name of the data set.
    purpose : str, optional
        What the release is for.
    unit : str, optional
        Whom a record is about: person, visit, and so on. That nobody has more than one record is
        assumed, not checked.
    missing : str, optional
        What became of records with missing cells, where that is not said with the query.

    Examples
    --------
    >>> About(dataset="Adult 1994", purpose="table 3 of the report", unit="person").unit
    'person'
    """

    dataset: str | None = None
    purpose: str | None = None
    unit: str | None = None
    missing: str | None = None

    def __post_init__(self) -> None:
        """Raise unless all of them are short texts."""
        for each in fields(self):
            text: object = getattr(self, each.name)
            if text is None:
                continue
            if not isinstance(text, str) or not text.isprintable() or not 0 < len(text) <= _LONGEST:
                raise InvalidParameterError(
                    f"{each.name} must be a line of text of 1 to {_LONGEST} characters"
                )
