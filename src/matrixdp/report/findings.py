"""The evidence of a report: files that are proven again, and the account that paid for them."""

from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from matrixdp.errors import FileFormatError, InvalidParameterError
from matrixdp.files.formats.suffixes import CHUNKED
from matrixdp.files.publishing.stated_payment import file_digest
from matrixdp.files.publishing.statement import statement_path
from matrixdp.files.publishing.verification import Verified, verified_file
from matrixdp.ledger import Balance, Ledger
from matrixdp.ledger.explanation import AccountInWords
from matrixdp.privacy.composition import composed_mu, group_mu
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.rounding import sqrt_up

__all__ = ["CheckedAccount", "CheckedFile", "Report", "report_on", "together"]


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A file, and whether it proves what its statement says.

    Attributes
    ----------
    path : Path
        As it was named.
    sha256 : str
        Of the file as it is.
    verified : Verified or None
        Its statement and its guarantee, if it proves them. Of any other file nothing is believed.
    reason : str
        Why it does not; empty if it does.
    """

    path: Path
    sha256: str
    verified: Verified | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CheckedAccount:
    """An account of a ledger at one moment, and what does not agree.

    Attributes
    ----------
    address, identity : str
        Of the ledger.
    balance : Balance
        What the account promises, and what is spent.
    in_words : AccountInWords
        The same for people, with every payment.
    entries : int
        How many entries of the ledger were computed again.
    findings : tuple of str
        What does not agree within the ledger, or between it and the files.
    """

    address: str
    identity: str
    balance: Balance
    in_words: AccountInWords
    entries: int
    findings: tuple[str, ...]

    @property
    def mu(self) -> float | None:
        """The mu for one unit of all that may be paid, or None if not everything has a mu."""
        terms = self.balance.terms
        if terms.plans or terms.claims_delta:
            return None
        return sqrt_up(self.balance.limit.mu_squared)


@dataclass(frozen=True, slots=True)
class Report:
    """What is known of some files, and of the account that paid for them.

    Attributes
    ----------
    files : tuple of CheckedFile
        In the order in which they were named.
    account : CheckedAccount or None
        None where no ledger was named.
    """

    files: tuple[CheckedFile, ...]
    account: CheckedAccount | None = None

    @property
    def proven(self) -> tuple[Verified, ...]:
        """What the files prove, without those that do not prove their guarantee."""
        return tuple(file.verified for file in self.files if file.verified is not None)

    @property
    def problems(self) -> int:
        """The number of files that are not proven, and of findings about the ledger."""
        findings = () if self.account is None else self.account.findings
        return len(self.files) - len(self.proven) + len(findings)

    @property
    def together(self) -> Guarantee | None:
        """What the proven files guarantee together, or None if there are none."""
        return together(self.proven) if self.proven else None


def report_on(
    files: Iterable[str | PathLike[str]],
    *,
    ledger: Ledger | None = None,
    account: str | None = None,
) -> Report:
    """Prove the guarantees of files again, and read the account that paid for them.

    Parameters
    ----------
    files : iterable of path
        Saved releases, each with its statement beside it.
    ledger : Ledger, optional
        The ledger that paid for them.
    account : str, optional
        Its account that the report is about; with `ledger` only.

    Raises
    ------
    InvalidParameterError
        If there is no file, one does not exist, or is a strategy, which proves nothing.
    """
    if (ledger is None) != (account is None):
        raise InvalidParameterError("pass ledger and account together, or neither of them")
    paths = [Path(file) for file in files]
    if not paths:
        raise InvalidParameterError("files=[] names no file: name at least one saved release")
    checked = tuple(_checked(path) for path in paths)
    if ledger is None or account is None:
        return Report(checked)
    return Report(checked, _account(ledger, account, checked))


def _checked(path: Path) -> CheckedFile:
    if not path.is_file() and not (path.is_dir() and path.suffix.lower() in CHUNKED):
        raise InvalidParameterError(f"{path} is not a file: name a saved release")
    digest = file_digest(path)
    if not statement_path(path).is_file():
        reason = f"{statement_path(path)} is missing: nothing says what the file guarantees"
        return CheckedFile(path, digest, None, reason)
    try:
        verified = verified_file(path)
    except FileFormatError as error:
        return CheckedFile(path, digest, None, str(error))
    # The digest that was verified: the file may have been replaced in between.
    return CheckedFile(path, verified.statement.file.sha256, verified)


def _account(ledger: Ledger, name: str, files: Iterable[CheckedFile]) -> CheckedAccount:
    balance = ledger.account(name).balance
    found = ledger.verify()
    proven = [file for file in files if file.verified is not None]
    against = ledger.verify_statements([file.path for file in proven])
    return CheckedAccount(
        address=ledger.address,
        identity=ledger.identity,
        balance=balance,
        in_words=ledger.in_words(name),
        entries=found.entries,
        findings=(*found.findings, *against, *_elsewhere(name, proven)),
    )


def _elsewhere(name: str, files: Iterable[CheckedFile]) -> list[str]:
    """Say which files were paid by an account that is neither the named one nor below it."""
    found = []
    for file in files:
        payment = None if file.verified is None else file.verified.statement.payment
        if payment is not None and not f"{payment.account}/".startswith(f"{name}/"):
            found.append(
                f"{file.path}: account {payment.account} paid for it, so the promise of account "
                f"{name} does not cover it"
            )
    return found


def together(proven: Iterable[Verified]) -> Guarantee:
    """Return what releases guarantee together, if they were planned before the first one.

    The guarantee is for the smallest delta that any of them states. Copies of one file count once.

    *Guarantee:* the squares of their mu add up (`composed_mu`). Where some are stated for added
    or removed records and others for replaced ones, the whole is stated for replaced ones: a
    replacement is one record removed and one added, so the former have twice their mu for it
    (`group_mu`).

    Parameters
    ----------
    proven : iterable of Verified
        At least one.
    """
    known = tuple(proven)
    relations = {guarantee.neighbouring for _, guarantee in known}
    mixed = len(relations) > 1
    costs: dict[str, float] = {}
    for statement, guarantee in known:
        doubled = mixed and guarantee.neighbouring == "add-remove"
        mu = group_mu(guarantee.mu, 2) if doubled else guarantee.mu
        costs[statement.file.sha256] = max(mu, costs.get(statement.file.sha256, 0.0))
    if len(costs) == len(relations) == 1:
        return max((guarantee for _, guarantee in known), key=lambda one: one.mu)
    return Guarantee.of_mu(
        composed_mu(costs.values()),
        delta=min(guarantee.delta for _, guarantee in known),
        neighbouring="replace" if mixed else relations.pop(),
    )
