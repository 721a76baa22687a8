"""The release of a matrix to a file, paid for and finished after a crash with the same bits."""

import secrets
from os import PathLike
from pathlib import Path
from typing import Any

from matrixdp.files.formats.progress import Share, silent
from matrixdp.files.formats.suffixes import format_of
from matrixdp.files.publishing.atomic import check_target
from matrixdp.files.publishing.paid import check_paid_target, pay_and_write, request_named
from matrixdp.files.publishing.releases import MatrixSchema, save_release, stated_release
from matrixdp.files.publishing.statement import encoded, statement_path
from matrixdp.mechanisms.gaussian import CheckedMatrix, GaussianMechanism
from matrixdp.mechanisms.release import Release
from matrixdp.noise import ReleaseKey
from matrixdp.noise.application.threads import checked_threads
from matrixdp.noise.keys.stream import KEY_BYTES
from matrixdp.noise.keys.value_tag import ValueTag
from matrixdp.privacy.payment import Order, Payer, Payment

__all__ = ["release_to"]


def release_to(
    mechanism: GaussianMechanism,
    path: str | PathLike[str],
    matrix: Any,
    *,
    privacy_filter: Payer | None = None,
    request: str | None = None,
    force: bool = False,
    threads: int | None = None,
    query: str | None = None,
    advance: Share = silent,
) -> Release:
    """Release a matrix to a file; see `GaussianMechanism.release_to`.

    The statement can name the query that was answered. ``advance`` is called with each further
    share of the matrix that is written.
    """
    checked, name = mechanism.prepared(matrix), request_named(request)
    target = Path(path).absolute()
    format_of(target)
    check_paid_target(privacy_filter, name, lambda: _check_targets(target, force=force))
    workers = None if threads is None else checked_threads(threads)
    draft = _draft(mechanism, checked, target, query)
    done: list[Release] = []

    def write(payment: Payment) -> str:
        key = ReleaseKey.from_bytes(payment.secret)
        noisy = checked.drawing.draw(checked.array, key, threads=workers)
        value = noisy if checked.relabel is None else checked.relabel(noisy)
        release = Release.from_proof(
            value, mechanism.proof, mechanism.guarantee, type(mechanism).__name__
        )
        done.append(release)
        return save_release(
            release, target, force=force, query=query, advance=advance, payment=payment
        )

    order = Order(
        request=name,
        secret=secrets.token_bytes(KEY_BYTES),
        tag=lambda secret: (
            ValueTag(secret, checked.drawing.noise.context, draft).update(checked.array).digest()
        ),
        target=str(target),
        draft=draft,
        about={"shape": f"{checked.array.shape[0]} x {checked.array.shape[1]}"}
        | ({} if query is None else {"query": query}),
    )
    pay_and_write(privacy_filter, mechanism, order, write)
    return done[0] if done else Release.load(target)


def _check_targets(target: Path, *, force: bool) -> None:
    check_target(target, force=force)
    check_target(statement_path(target), force=force)


def _draft(
    mechanism: GaussianMechanism, checked: CheckedMatrix, target: Path, query: str | None
) -> bytes:
    """Return the statement without what is only known once the file is written."""
    return encoded(
        stated_release(
            mechanism=type(mechanism).__name__,
            sensitivity=mechanism.sensitivity,
            covariance=mechanism.covariance,
            guarantee=mechanism.guarantee,
            floor=mechanism.proof.floor,
            query=query,
            file=MatrixSchema(
                name=target.name,
                sha256="",
                shape=(checked.array.shape[0], checked.array.shape[1]),
                dtype="float32" if checked.array.itemsize == 4 else "float64",
                header=False,
                index=False,
            ),
        )
    )
