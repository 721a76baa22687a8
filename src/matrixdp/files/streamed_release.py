"""Releases of ``.npy`` files larger than memory, read and written block by block."""

import hashlib
from os import PathLike
from pathlib import Path
from typing import Any

from matrixdp.covariance import Diagonal, Isotropic
from matrixdp.errors import FileFormatError, InvalidParameterError, StorageError
from matrixdp.files.atomic import check_target, hidden_name, write_all
from matrixdp.files.npy_layout import read_layout
from matrixdp.files.npy_stream import add_noise_to_npy
from matrixdp.files.statement import Statement, statement_path
from matrixdp.mechanisms.imgm import IMGM
from matrixdp.noise import ReleaseKey
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.sensitivity.sets import SymmetricBall

__all__ = ["release_npy"]


def release_npy(
    mechanism: IMGM,
    source: str | PathLike[str],
    target: str | PathLike[str],
    *,
    force: bool = False,
    progress: bool = True,
) -> Guarantee:
    """Release the matrix of one ``.npy`` file into another, in bounded memory, with its statement.

    Parameters
    ----------
    mechanism : IMGM
        With independent noise (`Isotropic` or `Diagonal`): nothing else can be drawn in parts.
    source : path
        float64 or float32, two axes.
    target : path
        The file to make; its statement goes beside it, as ``Release.save`` does it.
    force : bool, optional
        Whether to replace existing files.
    progress : bool, optional
        Whether to show a progress bar on a terminal.

    Returns
    -------
    Guarantee
        What the release promises.

    Raises
    ------
    FileFormatError, InvalidParameterError, ShapeError
        Before anything is drawn or written.
    StorageError
        If the disk fills up; the target is untouched.
    """
    if not isinstance(mechanism, IMGM):
        raise InvalidParameterError(f"mechanism is a {type(mechanism).__name__}: pass an IMGM")
    path, beside = Path(target), statement_path(Path(target))
    shape, dtype = _checked(mechanism, Path(source), path)
    for made in (path, beside):
        check_target(made, force=force)
    guarantee, noise = mechanism.guarantee, mechanism.covariance
    scale = noise.scale if isinstance(noise, Isotropic) else getattr(noise, "scales", None)
    fresh = hidden_name(path)
    try:
        _add_noise(Path(source), fresh, scale, path, progress=progress)
        statement = Statement(
            mechanism=type(mechanism).__name__,
            sensitivity=mechanism.sensitivity,
            covariance=noise,
            guarantee=guarantee,
            file={
                "name": path.name,
                "sha256": _digest(fresh),
                "shape": list(shape),
                "dtype": dtype,
                "header": False,
                "index": False,
            },
        )
        # The statement first: a matrix never lies there without what it guarantees.
        write_all([(beside, statement.to_json().encode()), (path, fresh)], force=force)
    finally:
        fresh.unlink(missing_ok=True)
    return guarantee


def _add_noise(source: Path, fresh: Path, scale: Any, path: Path, *, progress: bool) -> None:
    """Stream into a hidden file; what goes wrong is told of the target."""
    try:
        add_noise_to_npy(source, fresh, scale, ReleaseKey.generate(), progress=progress)
    except StorageError as error:
        raise StorageError(str(error).replace(str(fresh), str(path))) from error


def _checked(mechanism: IMGM, source: Path, target: Path) -> tuple[tuple[int, int], str]:
    """Return shape and dtype of a file that can be released in parts, or refuse it."""
    if not isinstance(mechanism.covariance, Isotropic | Diagonal):
        raise InvalidParameterError(
            f"{type(mechanism.covariance).__name__} noise cannot be drawn in parts: load the "
            "matrix and use mechanism.release"
        )
    if isinstance(mechanism.sensitivity, SymmetricBall):
        raise InvalidParameterError(
            "a SymmetricBall is about symmetric matrices, which cannot be told in parts: load the "
            "matrix and use mechanism.release"
        )
    if target.suffix != ".npy":
        raise InvalidParameterError(f"{target} does not end in .npy: name such a file")
    if not source.is_file():
        raise FileFormatError(f"{source} is not a file: name a matrix to release")
    layout = read_layout(source)
    if len(layout.shape) != 2 or layout.size == 0:
        raise InvalidParameterError(
            f"{source} has shape {layout.shape}: it must have two axes and not be empty"
        )
    shape = (layout.shape[0], layout.shape[1])
    mechanism.sensitivity.check_shape(shape)
    mechanism.covariance.check_shape(shape)
    return shape, str(layout.dtype.name)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
