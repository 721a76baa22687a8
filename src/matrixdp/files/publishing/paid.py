"""Releases to files that are paid for: paid once, drawn after that, finished after a crash."""

import hashlib
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

from matrixdp.errors import InvalidParameterError, StorageError
from matrixdp.privacy.payment import Cost, Order, Payer, Payment, check_payer

__all__ = ["check_paid_target", "not_there_yet", "pay_and_write", "request_named"]


def request_named(request: object) -> str:
    """Return a request, or a fresh name for one."""
    if request is None:
        return secrets.token_hex(16)
    # Of letters that can be read: databases refuse some of the others.
    if not isinstance(request, str) or not 0 < len(request) <= 200 or not request.isprintable():
        raise InvalidParameterError(
            f"request={request!r} must be a text of at most 200 letters, which names the release"
        )
    return request


def check_paid_target(payer: Payer | None, request: str, check: Callable[[], None]) -> None:
    """Check a target, unless an earlier attempt at the same request may have made it already."""
    check_payer(payer)
    if payer is None or not payer.resumes(request):
        check()


def pay_and_write(
    payer: Payer | None,
    cost: Cost,
    order: Order,
    write: Callable[[Payment], str],
) -> None:
    """Pay for a release, and write its files unless they are out already.

    Parameters
    ----------
    payer : Payer or None
        Who pays.
    cost : Cost
        What.
    order : Order
        The release.
    write : callable
        Draws with the key of a payment, publishes the files, and returns the SHA-256 of the first.

    Raises
    ------
    InvalidParameterError
        If the files of an earlier request are gone or others.
    """
    payment = Payment(order.secret) if payer is None else payer.pay(cost, order)
    if payment.digest is None:
        payment.published(write(payment))
    else:
        _check_out(Path(order.target), payment.digest, order.request)


def not_there_yet(
    contents: Sequence[tuple[Path, bytes | Path]],
) -> list[tuple[Path, bytes | Path]]:
    """Return the files that an attempt which was killed has not made: those that differ are kept.

    The bits of a release are a function of its key, so an earlier attempt made the same files.
    """
    return [
        (path, content)
        for path, content in contents
        if not (path.is_file() and _digest(path) == _digest(content))
    ]


def _check_out(target: Path, digest: str, request: str) -> None:
    if not target.is_file() or _digest(target) != digest:
        raise InvalidParameterError(
            f"request={request!r} was released as {target}, and that file is not there any more, "
            "or is another one: its noise cannot be drawn again. Make another request"
        )


def _digest(content: bytes | Path) -> str:
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    try:
        with content.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise StorageError(f"{content} cannot be read: {error.strerror}") from error
