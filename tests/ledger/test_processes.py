"""Many processes and threads at one account: exactly what fits is paid."""

import json
import math
import os
import subprocess
import sys
import threading
import traceback
from fractions import Fraction
from pathlib import Path

import pytest

from ledger.backends import Backend
from ledger.steps import LITTLE, MECHANISM, MU, check_chain, spent
from matrixdp import Budget
from matrixdp.ledger import Ledger, LedgerAccount

PROCESSES, PAYMENTS = 16, 160
# Threads that a fork does not copy are what is tested.
pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]


def test_room_for_exactly_so_many(backend: Backend, tmp_path: Path) -> None:
    url, keys = backend.url(tmp_path), tmp_path / "a.keys"
    with Ledger.create(url, keys=keys) as ledger:
        worth = ledger.open_account("a", Budget(8.0, 1e-5), neighbouring="replace").balance.limit
        mu = math.sqrt(worth.mu_squared / PAYMENTS) * (1 - 1e-12)
        assert worth.mu_squared // Fraction(mu) ** 2 == PAYMENTS
        program = Path(__file__).with_name("crowd.py")
        done = subprocess.run(
            [sys.executable, program, url, keys, "a", repr(mu), str(PROCESSES)],
            check=True,
            stdout=subprocess.PIPE,
        )
        found = json.loads(done.stdout)
        assert sum(found["paid"]) == PAYMENTS
        assert spent(ledger) == {"a": PAYMENTS * Fraction(mu) ** 2}
        check_chain(ledger, ledger.history())
    print(backend, found)  # noqa: T201 - with -s


def test_threads_share_a_ledger(ledger: Ledger, account: LedgerAccount) -> None:
    def pay() -> None:
        for _ in range(5):
            account.spend(MECHANISM)
            assert account.remaining > 0

    threads = [threading.Thread(target=pay) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert spent(ledger) == {"clinic": 40 * MU**2, "clinic/ann": 40 * MU**2}
    check_chain(ledger, ledger.history())


class Child:
    """A forked child that pays when it is told to."""

    def __init__(self, account: LedgerAccount) -> None:
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()
        self._process = os.fork()
        if self._process == 0:
            status = 1
            try:
                while os.read(orders, 1) == b"p":
                    account.spend(MECHANISM)
                    os.write(answers, b"+")
                status = 0
            except BaseException:  # noqa: BLE001 - a child that is forked never returns
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(orders)
        os.close(answers)

    def pay(self) -> None:
        """Let the child pay once."""
        os.write(self._orders, b"p")
        assert os.read(self._answers, 1) == b"+", "the child failed"

    def end(self) -> None:
        """Let the child end."""
        os.write(self._orders, b"e")
        assert os.waitpid(self._process, 0)[1] == 0
        os.close(self._orders)
        os.close(self._answers)


@pytest.mark.parametrize("closed_first", ["parent", "child"])
def test_a_forked_child_pays_as_well(
    ledger: Ledger, account: LedgerAccount, closed_first: str
) -> None:
    account.spend(MECHANISM)
    child = Child(account)
    child.pay()
    account.spend(MECHANISM)
    if closed_first == "parent":
        # SQLite removes the log of a file that nobody else has open.
        ledger.close()
    else:
        child.end()
        child = Child(account)
    child.pay()
    child.pay()
    account.spend(MECHANISM)
    child.end()
    assert spent(ledger) == {"clinic": 6 * MU**2, "clinic/ann": 6 * MU**2}
    check_chain(ledger, ledger.history())


def test_forks_while_threads_pay(ledger: Ledger, account: LedgerAccount) -> None:
    stop, paid = threading.Event(), list[int]()

    def pay() -> None:
        while not stop.is_set():
            account.spend(LITTLE)
            paid.append(1)

    threads = [threading.Thread(target=pay) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(12):
            child = Child(account)
            child.pay()
            child.end()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert spent(ledger)["clinic"] == 12 * MU**2 + len(paid) * Fraction(LITTLE) ** 2
    check_chain(ledger, ledger.history())
