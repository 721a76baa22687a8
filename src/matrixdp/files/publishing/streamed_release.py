"""Releases of ``.npy`` files larger than memory, read and written block by block."""

from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

import numpy as np

from matrixdp.covariance import Diagonal, Isotropic
from matrixdp.errors import FileFormatError, InvalidParameterError
from matrixdp.files.formats.numpy_format import NpyLayout, map_npy, read_layout
from matrixdp.files.publishing.atomic import check_inputs_survive, hidden_beside
from matrixdp.files.publishing.lasting import write_paid
from matrixdp.files.publishing.npy_stream import Advance, NoisyNpy
from matrixdp.files.publishing.paid import (
    ChangedValueError,
    Publication,
    checked_request,
    publish_paid,
)
from matrixdp.files.publishing.release_file import MatrixSchema
from matrixdp.files.publishing.releases import stated_release
from matrixdp.files.publishing.statement import encoded, statement_path
from matrixdp.files.schemas.about import stamped
from matrixdp.mechanisms.about import About
from matrixdp.mechanisms.drawing import Promise
from matrixdp.mechanisms.mechanism import Mechanism
from matrixdp.mechanisms.proof import NoiseProof
from matrixdp.mechanisms.release import Release
from matrixdp.noise import ReleaseKey
from matrixdp.noise.application.threads import checked_threads, usable_cores
from matrixdp.noise.keys.value_tag import ValueTag
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.privacy.payment import Evidence, Payer, Payment
from matrixdp.sensitivity import ScaledSymmetricBall, SymmetricBall

__all__ = ["release_npy", "release_npy_to", "release_promised_npy"]


def release_npy(
    mechanism: Mechanism[Release],
    source: str | PathLike[str],
    target: str | PathLike[str],
    *,
    privacy_filter: Payer | None = None,
    request: str | None = None,
    force: bool = False,
    threads: int | None = None,
    about: About | None = None,
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
    privacy_filter : PrivacyFilter or LedgerAccount, optional
        Pays for the release, after all checks and before anything is drawn.
    request : str, optional
        A name for this release, as in ``IMGM.release_to``.
    force : bool, optional
        Whether to replace existing files; the source is never replaced.
    threads : int, optional
        The most threads that draw; by default as many as there are processors. The result is the
        same.
    about : About, optional
        What the statement says for people.
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
    BudgetExceededError
        If the budget does not hold enough; nothing is drawn.
    StorageError
        If the disk fills up, or the source changes while it is read; the target is untouched. What
        was paid stays paid. A release whose source has changed can never be finished.
    """
    # Its sensitivity is that of measurements, which it makes of a histogram itself.
    if hasattr(mechanism, "workload"):
        raise InvalidParameterError(
            f"mechanism is a {type(mechanism).__name__}, which answers queries on a histogram and "
            "releases no matrix as it is: use its release"
        )
    name = type(mechanism).__name__
    covariance = _independent(name, getattr(mechanism, "covariance", None))
    proof = NoiseProof(mechanism.sensitivity, covariance)
    release_promised_npy(
        Promise(proof, mechanism.guarantee, name),
        source,
        target,
        privacy_filter=privacy_filter,
        request=request,
        force=force,
        threads=threads,
        about=about,
        advance=advance,
    )
    return mechanism.guarantee


def release_npy_to(
    mechanism: Mechanism[Release],
    path: str | PathLike[str],
    source: str | PathLike[str],
    *,
    privacy_filter: Payer | None,
    request: str | None,
    force: bool,
    threads: int | None,
    about: About | None = None,
) -> Release:
    """Release the matrix of a file into another; return it mapped, not read."""
    release_npy(
        mechanism,
        source,
        path,
        privacy_filter=privacy_filter,
        request=request,
        force=force,
        threads=threads,
        about=about,
    )
    proof = NoiseProof(mechanism.sensitivity, mechanism.covariance)
    return Release.from_proof(
        map_npy(Path(path)), proof, mechanism.guarantee, type(mechanism).__name__
    )


def release_promised_npy(
    promise: Promise,
    source: str | PathLike[str],
    target: str | PathLike[str],
    *,
    privacy_filter: Payer | None,
    request: str | None,
    force: bool,
    threads: int | None,
    about: About | None = None,
    advance: Advance | None = None,
) -> None:
    """Release the matrix of a file with the noise of a promise; see `release_npy`."""
    origin, path = Path(source), Path(target).absolute()
    workers = usable_cores() if threads is None else checked_threads(threads)
    # Everything is checked before the draw; see `NoisyNpy` for the numbers themselves.
    scale = _independent_scale(promise)
    layout = _checked_layout(promise, origin, path)
    made = [path, statement_path(path)]
    check_inputs_survive(made, [origin])
    name = checked_request(privacy_filter, request, made, force=force)
    stream = _PaidStream(
        promise=promise,
        noisy=NoisyNpy.prepared(origin, scale, threads=workers, advance=advance),
        path=path,
        force=force,
        about=about,
    )
    publication = Publication(
        cost=promise,
        target=path,
        draft=stream.stated(""),
        tag=stream.tag,
        about={"shape": f"{layout.shape[0]} x {layout.shape[1]}"},
        write=stream.write,
    )
    # The numbers are checked in the pass that tags them. The secret of an earlier attempt needs a
    # pass of its own.
    if privacy_filter is None or not privacy_filter.resumes(name):
        stream.tag(publication.secret)
    publish_paid(privacy_filter, name, publication)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)  # it holds secrets
class _PaidStream:
    """A file that is read once for its tag, before it is paid for, and once to be drawn."""

    promise: Promise
    noisy: NoisyNpy
    path: Path
    force: bool
    about: About | None = None
    tags: dict[bytes, bytes] = field(default_factory=dict)

    def stated(self, digest: str, evidence: Evidence | None = None) -> bytes:
        """Return the statement of a target of a digest."""
        layout = self.noisy.layout
        facts = MatrixSchema(
            name=self.path.name,
            sha256=digest,
            shape=(layout.shape[0], layout.shape[1]),
            dtype="float32" if layout.dtype == np.float32 else "float64",
            header=False,
            index=False,
        )
        statement = stated_release(self.promise, facts, about=self.about, evidence=evidence)
        # The draft, which has no digest, is the same on every day.
        return encoded(stamped(statement) if digest else statement)

    def tag(self, secret: bytes) -> bytes:
        """Return the code of the file, which is read and checked once for each secret."""
        if secret not in self.tags:
            code = self._code(secret)
            self.noisy.check(code.update)
            self.tags[secret] = code.digest()
        return self.tags[secret]

    def write(self, payment: Payment) -> str:
        """Draw and publish, unless the file is not the one that was tagged."""
        code, key = self._code(payment.secret), ReleaseKey.from_bytes(payment.secret)
        with hidden_beside(self.path) as hidden:
            # Errors mention the target and not the hidden file, which means nothing to the user.
            digest = self.noisy.write(hidden, self.path, key, code.update)
            if code.digest() != self.tags[payment.secret]:
                raise ChangedValueError(
                    f"{self.noisy.source} changed while it was being read: {self.path} was not "
                    "made, and what was paid is lost. Release a file that stays as it is, with a "
                    "new request"
                )
            # The statement first: there is never a matrix without a statement of its guarantee.
            statement = self.stated(digest, payment.evidence)
            write_paid(
                [(statement_path(self.path), statement), (self.path, hidden)],
                payment,
                force=self.force,
            )
        return digest

    def _code(self, secret: bytes) -> ValueTag:
        return ValueTag(secret, self.noisy.context, self.stated(""))


def _independent_scale(promise: Promise) -> object:
    """Return the standard deviations of independent noise that proves a guarantee."""
    covariance = _independent(promise.mechanism, promise.covariance)
    # A release that is held in memory proves this when it is made; here none is.
    promise.proof.check_claim(promise.guarantee)
    return covariance.scale if isinstance(covariance, Isotropic) else covariance.scales


def _independent(name: str, covariance: object) -> Isotropic | Diagonal:
    """Return a covariance if it is one of independent noise, or raise."""
    if isinstance(covariance, Isotropic | Diagonal):
        return covariance
    raise InvalidParameterError(
        f"mechanism is a {name} without independent noise, and other noise cannot be drawn in "
        "parts: pass one with Isotropic or Diagonal noise, or load the matrix and use its release"
    )


def _checked_layout(promise: Promise, source: Path, target: Path) -> NpyLayout:
    """Return the layout of a file that can be released in parts, or raise if it is not one."""
    if isinstance(promise.sensitivity, SymmetricBall | ScaledSymmetricBall):
        raise InvalidParameterError(
            f"a {type(promise.sensitivity).__name__} is about symmetric matrices, and parts do not "
            "show whether one is symmetric: load it and use mechanism.release"
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
    promise.sensitivity.check_shape(shape)
    promise.covariance.check_shape(shape)
    return layout
