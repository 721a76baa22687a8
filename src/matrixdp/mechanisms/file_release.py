"""Releases of ``.npy`` files larger than memory, read and written block by block."""

import hashlib
import secrets
from os import PathLike
from pathlib import Path

from matrixdp.covariance import Diagonal, Isotropic
from matrixdp.errors import InvalidParameterError
from matrixdp.mechanisms.imgm import IMGM
from matrixdp.mechanisms.matrix_files import check_target, write_all
from matrixdp.mechanisms.statement import Statement, statement_path
from matrixdp.noise import ReleaseKey, add_noise_to_npy
from matrixdp.noise.npy_layout import read_layout
from matrixdp.privacy.guarantee import Guarantee

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
    path, beside = Path(target), statement_path(Path(target))
    if not isinstance(mechanism.covariance, Isotropic | Diagonal):
        raise InvalidParameterError(
            f"{type(mechanism.covariance).__name__} noise cannot be drawn in parts: load the "
            "matrix and use mechanism.release"
        )
    layout = read_layout(Path(source))
    if len(layout.shape) != 2 or layout.size == 0:
        raise InvalidParameterError(
            f"{source} has shape {layout.shape}: it must have two axes and not be empty"
        )
    shape = (layout.shape[0], layout.shape[1])
    mechanism.sensitivity.check_shape(shape)
    mechanism.covariance.check_shape(shape)
    check_target(path, force=force)
    check_target(beside, force=force)
    guarantee = mechanism.guarantee
    noise = mechanism.covariance
    scale = noise.scale if isinstance(noise, Isotropic) else noise.scales
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new") if force else path
    try:
        add_noise_to_npy(source, fresh, scale, ReleaseKey.generate(), progress=progress)
        statement = Statement(
            mechanism="IMGM",
            sensitivity=mechanism.sensitivity,
            covariance=mechanism.covariance,
            guarantee=guarantee,
            file={
                "name": path.name,
                "sha256": _digest(fresh),
                "shape": list(shape),
                "dtype": str(layout.dtype.name),
            },
        )
        if force:
            fresh.replace(path)
    finally:
        if force:
            fresh.unlink(missing_ok=True)
    write_all([(beside, statement.to_json().encode())], force=force)
    return guarantee


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
