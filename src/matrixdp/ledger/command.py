"""The command line that pays for a release, by which ``matrixdp ledger finish`` repeats it."""

from dataclasses import dataclass

__all__ = ["PayingCommand"]


@dataclass(frozen=True, slots=True)
class PayingCommand:
    """A call of the program ``matrixdp``.

    Attributes
    ----------
    folder : str
        The folder that it was called in: its paths are relative to it.
    arguments : tuple of str
        What follows the program's name, with ``--request`` and without the ledger's address.
    """

    folder: str
    arguments: tuple[str, ...]
