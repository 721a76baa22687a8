"""Durable budgets: accounts in a database, which survive crashes, processes and machines."""

from matrixdp.ledger.account import LedgerAccount
from matrixdp.ledger.balances import Balance
from matrixdp.ledger.chain import Entry
from matrixdp.ledger.ledger import Ledger
from matrixdp.ledger.pending import PayingCommand, Pending
from matrixdp.ledger.runs import LedgerRun
from matrixdp.ledger.terms import Terms
from matrixdp.ledger.verification import Verification

__all__ = [
    "Balance",
    "Entry",
    "Ledger",
    "LedgerAccount",
    "LedgerRun",
    "PayingCommand",
    "Pending",
    "Terms",
    "Verification",
]


def __dir__() -> list[str]:
    return __all__
