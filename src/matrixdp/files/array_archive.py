"""Several named arrays in one ``.npz`` file, with a statement beside it."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import FileFormatError, InvalidParameterError
from matrixdp.files.atomic import check_target
from matrixdp.files.statement import statement_path

__all__ = ["check_archive_target", "packed_arrays", "read_archive", "unpacked_arrays"]


def check_archive_target(target: Path, *, force: bool) -> None:
    """Raise if the file or its statement could not be written, before any work is done."""
    if target.suffix.lower() != ".npz":
        raise InvalidParameterError(f"{target} does not end in .npz: name such a file")
    check_target(target, force=force)
    check_target(statement_path(target), force=force)


def packed_arrays(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the content of a ``.npz`` file with these arrays."""
    # Not compressed: noise does not shrink, and readers need no time for it.
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]
    return content.getvalue()


def read_archive(source: Path, what: str) -> bytes:
    """Return the content of a file, or raise if there is none; errors call it ``what``."""
    try:
        return source.read_bytes()
    except FileNotFoundError as error:
        raise FileFormatError(
            f"{source} is missing: {what} is a .npz file with its .json statement beside it"
        ) from error
    except IsADirectoryError as error:
        raise FileFormatError(f"{source} is a folder: name a file in it") from error


def unpacked_arrays(data: bytes, name: str) -> dict[str, NDArray[Any]]:
    """Return the arrays in the content of a ``.npz`` file.

    Raises
    ------
    FileFormatError
        If it is cut short, not such a file, or holds anything but numbers; ``name`` is the file's.
    """
    try:
        # All members at once: they are read lazily, and damage shows only then.
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            return {member: archive[member] for member in archive.files}
    except Exception:  # noqa: BLE001 (numpy raises whatever zipfile, zlib and its parser raise)
        # Not in numpy's words, which recommend loading pickles: those run foreign code.
        raise FileFormatError(
            f"{name} cannot be read: its arrays are damaged; save the file again"
        ) from None
