"""A program whose processes pay from one account until it is empty.

Arguments: address of a ledger, its key file, the account, the mu of a payment, the number of
processes. It prints how many payments each made, and the longest time that one took, as JSON.
"""

import json
import os
import sys
import time
import traceback

from matrixdp.errors import BudgetExceededError
from matrixdp.ledger import Ledger

__all__ = ["main"]


def pay_until_empty(url: str, keys: str, account: str, mu: float) -> tuple[int, float]:
    """Return the number of payments, and the longest time of one."""
    paid, longest = 0, 0.0
    with Ledger.open(url, keys=keys) as ledger:
        purse = ledger.account(account)
        while True:
            began = time.monotonic()
            try:
                purse.spend(mu)
            except BudgetExceededError:
                return paid, longest
            paid, longest = paid + 1, max(longest, time.monotonic() - began)


def main() -> None:
    """Start the processes and add up what they paid."""
    url, keys, account, mu, processes = sys.argv[1:]
    totals: list[tuple[int, float]] = []
    with Ledger.open(url, keys=keys) as ledger:  # what this imports, the children have
        ledger.account(account)
    reading, writing = os.pipe()
    children = []
    for _ in range(int(processes)):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                found = json.dumps(pay_until_empty(url, keys, account, float(mu)))
                os.write(writing, f"{found}\n".encode())
                status = 0
            except BaseException:  # noqa: BLE001 - a child that is forked never returns
                traceback.print_exc()
            finally:
                os._exit(status)
        children.append(child)
    os.close(writing)
    with os.fdopen(reading) as lines:
        totals += [json.loads(line) for line in lines]
    if any(os.waitpid(child, 0)[1] for child in children):
        sys.exit("a process failed")
    paid, waits = zip(*totals, strict=True)
    print(json.dumps({"paid": paid, "longest": max(waits)}))  # noqa: T201


if __name__ == "__main__":
    main()
