"""Releases to files that are paid for: paid once, drawn after that, finished after a crash.

Every kind of release becomes a `Publication` once everything is checked, and goes this one way.
"""

import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from matrixdp.errors import InvalidParameterError, MatrixDPError, StorageError
from matrixdp.files.publishing.atomic import check_target, force_folder, remove_unfinished
from matrixdp.files.publishing.completed import completed_digest, discard
from matrixdp.files.publishing.lasting import digest_of
from matrixdp.files.publishing.locks import folder_locked
from matrixdp.files.publishing.statement import statement_path
from matrixdp.noise.keys.stream import KEY_BYTES
from matrixdp.privacy.payment import Cost, GivenUpError, Order, Payer, Payment, check_payer

__all__ = ["ChangedValueError", "Publication", "checked_request", "publish_paid"]

_LONGEST_REQUEST = 200


class ChangedValueError(StorageError):
    """A value was another one when it was drawn than when it was paid for."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Publication:
    """A release to files of which everything is known but the noise.

    Attributes
    ----------
    cost : Cost
        What is paid, all at once.
    target : Path
        The file that the statement describes.
    others : iterable of Path, optional
        Further files, which follow from it.
    draft : bytes
        The statement without what is only known once the file is written.
    tag : callable
        See `Order`.
    about : mapping
        Public facts for people.
    write : callable
        Draws with the secret of a payment, publishes the files with the target last, and returns
        the SHA-256 of the target.
    secret : bytes, optional
        Fresh; what is drawn with unless an earlier attempt was paid.
    """

    cost: Cost
    target: Path
    draft: bytes
    tag: Callable[[bytes], bytes]
    about: Mapping[str, str]
    write: Callable[[Payment], str]
    others: Iterable[Path] = ()
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(KEY_BYTES))

    def order(self, request: str) -> Order:
        """Return what is paid for."""
        return Order(request, self.secret, self.tag, str(self.target), self.draft, self.about)


def checked_request(
    payer: Payer | None, request: object, targets: Iterable[Path], *, force: bool
) -> str:
    """Return a request, or a fresh name for one, and check where its release goes.

    Raises
    ------
    InvalidParameterError
        If a file exists and is not forced, unless an earlier attempt at the same request may have
        made it; or if there is no such request or payer.
    """
    check_payer(payer)
    if request is None:
        request = secrets.token_hex(16)
    # Of letters that can be read: databases refuse some of the others.
    if not isinstance(request, str) or not _names_a_release(request):
        raise InvalidParameterError(
            f"request={request!r} must be a text of at most {_LONGEST_REQUEST} letters, which "
            "names the release"
        )
    try:
        for path in targets:
            check_target(path, force=force)
    except InvalidParameterError:
        if payer is None or not payer.resumes(request):
            raise
    return request


def _names_a_release(request: str) -> bool:
    return 0 < len(request) <= _LONGEST_REQUEST and request.isprintable()


def publish_paid(payer: Payer | None, request: str, publication: Publication) -> None:
    """Pay for a release, and write its files unless an earlier attempt has done it.

    Raises
    ------
    InvalidParameterError
        If the files of an earlier request are gone or others.
    GivenUpError
        If somebody has given the release up meanwhile; its files are removed again.
    ChangedValueError
        If the value was another one when it was drawn; the release is forfeited.
    """
    order, target = publication.order(request), publication.target
    payment = Payment(order.secret) if payer is None else payer.pay(publication.cost, order)
    if payment.digest is not None:
        _check_out(target, payment.digest, request)
        return
    try:
        payment.published(_written(publication, payment))
    except ChangedValueError:
        payment.forfeited()
        raise
    except GivenUpError:
        if payment.evidence is not None:
            with folder_locked(target.parent):  # no other release takes the names meanwhile
                discard(target, payment.evidence, publication.others)
        raise
    except BaseException as error:
        if payment.evidence is not None:
            error.add_note(
                f"request={request!r} is paid and not lost: repeat this call with it, which pays "
                "nothing, or forfeit it"
            )
        raise
    if payment.resumed:
        for path in (target, statement_path(target), *publication.others):
            remove_unfinished(path)


def _written(publication: Publication, payment: Payment) -> str:
    """Write the files, unless they are there, and return the digest of the target."""
    target = publication.target
    digest = completed_digest(target, payment.evidence) if payment.resumed else None
    if digest is None:
        try:
            digest = publication.write(payment)
        except (MatrixDPError, OSError):
            # Another attempt at the same request may have been faster, or is just giving the names.
            with folder_locked(target.parent):
                digest = completed_digest(target, payment.evidence)
            if digest is None:
                raise
            remove_unfinished(target)  # what this one may have left
    if payment.evidence is not None:
        # The ledger is about to forget the key: the names must not be lost in a power cut.
        force_folder(target.parent)
    return digest


def _check_out(target: Path, digest: str, request: str) -> None:
    if not target.exists() or digest_of(target) != digest:
        raise InvalidParameterError(
            f"request={request!r} was released as {target}, and that file is not there any more, "
            "or is another one: its noise cannot be drawn again. Make another request"
        )
