"""Releases of ``.npy`` files larger than memory, read and written block by block."""

from os import PathLike
from pathlib import Path

import numpy as np

from matrixdp.covariance import Diagonal, Isotropic
from matrixdp.errors import FileFormatError, InvalidParameterError
from matrixdp.files.formats.numpy_format import NpyLayout, read_layout
from matrixdp.files.publishing.atomic import (
    check_inputs_survive,
    check_target,
    hidden_beside,
    write_all,
)
from matrixdp.files.publishing.npy_stream import Advance, write_noisy_npy
from matrixdp.files.publishing.releases import MatrixSchema, stated_release
from matrixdp.files.publishing.statement import encoded, statement_path
from matrixdp.mechanisms.mechanism import Mechanism
from matrixdp.mechanisms.proof import NoiseProof
from matrixdp.mechanisms.release import Release
from matrixdp.noise import ReleaseKey
from matrixdp.noise.application.threads import checked_threads, usable_cores
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.sensitivity.sets import SymmetricBall

__all__ = ["release_npy"]


def release_npy(
    mechanism: Mechanism[Release],
    source: str | PathLike[str],
    target: str | PathLike[str],
    *,
    force: bool = False,
    threads: int | None = None,
    advance: Advance | None = None,
) -> Guarantee:
    """Release the matrix of one ``.npy`` file into another, in bounded memory, with its statement.

    The noisy matrix is written once, into a hidden file that gets its name at the end, after the
    statement has got its own.

    Parameters
    ----------
    mechanism : Mechanism
        Any with independent noise (`Isotropic` or `Diagonal`): nothing else can be drawn in parts.
    source : path
        float64 or float32, two axes.
    target : path
        The file to make; its statement goes beside it, as with ``Release.save``.
    force : bool, optional
        Whether to replace existing files; the source is never replaced.
    threads : int, optional
        The most threads that draw; by default as many as there are processors. The result is the
        same.
    advance : callable, optional
        Called with the number of elements checked or written since the last call; the numbers add
        up to twice the size of the matrix.

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
    origin, path = Path(source), Path(target)
    workers = usable_cores() if threads is None else checked_threads(threads)
    # Everything is checked before the draw; see `write_noisy_npy` for the numbers themselves.
    scale = _independent_scale(mechanism)
    layout = _checked_layout(mechanism, origin, path)
    guarantee, beside = mechanism.guarantee, statement_path(path)
    check_inputs_survive([path, beside], [origin])
    for made in (path, beside):
        check_target(made, force=force)
    with hidden_beside(path) as hidden:
        # Errors mention the target and not the hidden file, which means nothing to the user.
        digest = write_noisy_npy(
            *(origin, hidden, path, scale, ReleaseKey.generate()),
            threads=workers,
            advance=advance,
        )
        statement = stated_release(
            mechanism=type(mechanism).__name__,
            sensitivity=mechanism.sensitivity,
            covariance=mechanism.covariance,
            guarantee=guarantee,
            file=MatrixSchema(
                name=path.name,
                sha256=digest,
                shape=(layout.shape[0], layout.shape[1]),
                dtype="float32" if layout.dtype == np.float32 else "float64",
                header=False,
                index=False,
            ),
        )
        # The statement first: there is never a matrix without a statement of what it guarantees.
        write_all([(beside, encoded(statement)), (path, hidden)], force=force, release=True)
    return guarantee


def _independent_scale(mechanism: Mechanism[Release]) -> object:
    """Return the standard deviations of independent noise that proves the mechanism's guarantee."""
    # Its sensitivity is that of measurements, which it makes of a histogram itself.
    if hasattr(mechanism, "workload"):
        raise InvalidParameterError(
            f"mechanism is a {type(mechanism).__name__}, which answers queries on a histogram and "
            "releases no matrix as it is: use its release"
        )
    covariance = getattr(mechanism, "covariance", None)
    if not isinstance(covariance, Isotropic | Diagonal):
        raise InvalidParameterError(
            f"mechanism is a {type(mechanism).__name__} without independent noise, and other noise "
            "cannot be drawn in parts: pass one with Isotropic or Diagonal noise, or load the "
            "matrix and use its release"
        )
    # A release that is held in memory proves this when it is made; here none is.
    NoiseProof(mechanism.sensitivity, covariance).check_claim(mechanism.guarantee)
    return covariance.scale if isinstance(covariance, Isotropic) else covariance.scales


def _checked_layout(mechanism: Mechanism[Release], source: Path, target: Path) -> NpyLayout:
    """Return the layout of a file that can be released in parts, or raise if it is not one."""
    if isinstance(mechanism.sensitivity, SymmetricBall):
        raise InvalidParameterError(
            "a SymmetricBall is about symmetric matrices, and parts do not show whether one is "
            "symmetric: load it and use mechanism.release"
        )
    if target.suffix.lower() != ".npy":
        raise InvalidParameterError(f"{target} does not end in .npy: name such a file")
    if not source.is_file():
        raise FileFormatError(f"{source} is not a file: name a matrix to release")
    layout = read_layout(source)
    if len(layout.shape) != 2 or layout.size == 0:
        raise InvalidParameterError(
            f"{source} has shape {layout.shape}: it must have two axes and not be empty"
        )
    # The mechanism never sees the matrix, so what its release would check is checked here.
    shape = (layout.shape[0], layout.shape[1])
    mechanism.sensitivity.check_shape(shape)
    mechanism.covariance.check_shape(shape)
    return layout
