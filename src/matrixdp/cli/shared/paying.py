"""Payment of a command's release from a ledger, and the report of a release that is pending."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from matrixdp.cli.shared.commands import called_with
from matrixdp.cli.shared.exit_codes import ReleasedButCutShortError
from matrixdp.cli.shared.interrupts import interrupts_ignored
from matrixdp.cli.shared.ledgers import opened_ledger
from matrixdp.cli.shared.streams import SPENDS_AGAIN, STREAM
from matrixdp.errors import InvalidParameterError, MatrixDPError

if TYPE_CHECKING:
    from matrixdp.ledger import LedgerAccount, PayingCommand

__all__ = ["NOBODY", "Paying", "paying_from"]

_PAYING = ("--ledger", "--account", "--keys", "--request")


@dataclass(frozen=True)
class Paying:
    """Who pays for the release of a command: an account of a ledger, or nobody.

    Attributes
    ----------
    account : LedgerAccount or None
        Who pays.
    url : str
        The ledger.
    request : str or None
        The name of the release.
    resumed : bool
        Whether that was paid before.
    """

    account: "LedgerAccount | None" = None
    url: str = ""
    request: str | None = None
    resumed: bool = False

    @contextmanager
    def reporting_pending(self) -> Iterator[None]:
        """Let no failure in the block, which releases, hide that the release is paid and pending.

        Raises
        ------
        ReleasedButCutShortError
            If it is; the message says how to finish it.
        """
        try:
            yield
        except BaseException as error:
            if self.account is None:
                raise
            # The first interrupt is the reason; a second one must not hide what it has left.
            with interrupts_ignored():
                pending = self._is_pending()
            if not pending:
                raise
            reason = str(error) or "interrupted"
            raise ReleasedButCutShortError(
                f"{reason}. The release is paid by account {self.account.name!r} and pending, so "
                f"its cost is spent: finish it with `matrixdp ledger finish {self.request}`, or "
                f"give it up with `matrixdp ledger forfeit {self.request}`"
            ) from error

    def unit(self, said: str | None) -> str | None:
        """Return whom a record is about: what is said, or what the account says.

        Raises
        ------
        InvalidParameterError
            If the two are not the same.
        """
        terms = None if self.account is None else self.account.terms
        # A guarantee for one record is none for a unit that has several.
        if terms is None or terms.unit == "record" or terms.records_per_unit > 1:
            return said
        if said not in (None, terms.unit):
            raise InvalidParameterError(
                f"--unit {said!r} is not that of the account, which promises something about one "
                f"{terms.unit!r}: leave it out"
            )
        return terms.unit

    def fields(self) -> dict[str, object]:
        """Return who paid, and what is left, for programs."""
        if self.account is None:
            return {}
        return {
            "account": self.account.name,
            "request": self.request,
            "paid_before": self.resumed,
            "remaining_mu": self.account.remaining,
        }

    def lines(self) -> list[str]:
        """Return who paid, and what is left, for people."""
        if self.account is None:
            return []
        from matrixdp.ledger.explanation import left_in_words  # noqa: PLC0415

        left = left_in_words(self.account.path)
        paid = "paid before" if self.resumed else "paid"
        who = f"{paid} by account {self.account.name} as request {self.request}"
        return [f"{who}; one more release may have {left}"]

    @property
    def again(self) -> str:
        """What a second run would do."""
        if self.account is None:
            return SPENDS_AGAIN
        return f"{SPENDS_AGAIN}, unless it names the same --request"

    def _is_pending(self) -> bool:
        if self.account is None or self.request is None:
            return False
        from matrixdp.ledger import Ledger  # noqa: PLC0415

        try:
            # Opened anew: an interrupt may have left the other connection within a transaction.
            with Ledger.open(self.url) as book:
                return book.account(self.account.name).is_pending(self.request)
        except (MatrixDPError, OSError):
            return True  # nobody knows, and the advice is right in either case


NOBODY = Paying()


def paying_from(
    ledger: str | None,
    account: str | None,
    keys: Path | None,
    request: str | None,
    *,
    target: str | Path,
) -> Paying:
    """Return who pays, as the options of a command say.

    Raises
    ------
    InvalidParameterError
        If they do not belong together, or the release goes to standard output.
    """
    if ledger is None:
        if account is not None or request is not None:
            raise InvalidParameterError("--account and --request are for --ledger: name it as well")
        return NOBODY
    if account is None:
        raise InvalidParameterError("--ledger needs --account: name the account that pays")
    if str(target) == STREAM:
        raise InvalidParameterError(
            "a ledger pays for releases that can be finished after a crash, and standard output "
            "cannot be written again: name a file as OUT"
        )
    book = opened_ledger(ledger, keys)
    if book.keys is None:
        raise InvalidParameterError(
            "pass --keys, the key file of the ledger: it seals the key of a release until that is "
            "out. If it is lost, `matrixdp ledger rotate --new-keys FILE` makes another one"
        )
    name = secrets.token_hex(16) if request is None else request
    paying = book.account(account, command=_repeatable(name))
    return Paying(paying, ledger, name, paying.resumes(name))


def _repeatable(request: str) -> "PayingCommand":
    """Return the command that was called, with its request, and without the ledger's address.

    That may hold a password; who repeats the command says where the ledger is.
    """
    from matrixdp.ledger import PayingCommand  # noqa: PLC0415

    words, arguments = called_with.get()
    kept, rest = [], iter(arguments)
    for argument in rest:
        if argument in _PAYING:
            next(rest, None)
        elif argument.partition("=")[0] not in _PAYING:
            kept.append(argument)
    return PayingCommand(str(Path.cwd()), (*words, "--request", request, *kept))
