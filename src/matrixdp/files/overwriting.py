"""Inputs are never overwritten, not even by force: the private matrix may have no other copy."""

from collections.abc import Iterable
from pathlib import Path

from matrixdp.errors import InvalidParameterError

__all__ = ["check_inputs_survive"]


def check_inputs_survive(written: Iterable[Path], read: Iterable[Path]) -> None:
    """Raise if a file that is to be written is one that is read.

    Files are compared, not names: links, relative paths and letter case lead to the same file under
    other names.
    """
    inputs = [path for path in read if path.exists()]
    for target in written:
        for source in inputs:
            # What does not exist yet cannot be an input, and `samefile` would fail on it.
            if target.exists() and target.samefile(source):
                raise InvalidParameterError(
                    f"{target} would replace {source}, which is read: choose another name to write "
                    "to (--force does not change that)"
                )
