"""Connections to a server that break, in the middle of a commit as well: paid once, exactly."""

import threading
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from ledger.backends import PostgreSQL
from ledger.proxy import Proxy
from ledger.server import Server, server
from ledger.steps import LITTLE, MECHANISM, MU, check_chain, spent
from matrixdp import Budget, Release
from matrixdp.ledger import Ledger
from matrixdp.ledger.stores.store import LostConnectionError


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let connections be made again at once."""
    monkeypatch.setattr("matrixdp.ledger.stores.store._PAUSES", (0.01,) * 100)


@pytest.fixture
def schema(tmp_path: Path) -> str:
    """Return the name of a new schema."""
    return PostgreSQL().url(tmp_path).rpartition("%3D")[2]


def running() -> Server:
    """Return the server, which there is if there is a schema."""
    found = server()
    assert found is not None
    return found


@pytest.fixture
def proxy(schema: str) -> Iterator[Proxy]:
    """Yield a proxy of the server."""
    assert schema
    with Proxy(running().port) as made:
        yield made


@pytest.fixture
def ledger(schema: str, proxy: Proxy, tmp_path: Path) -> Iterator[Ledger]:
    """Yield a ledger behind the proxy, with two accounts."""
    url = running().url(schema, proxy.port)
    with Ledger.create(url, keys=tmp_path / "a.keys") as made:
        for name in ("a", "a/b"):
            made.open_account(name, Budget(20.0, 1e-5), neighbouring="replace")
        yield made


def cut_everywhere(proxy: Proxy, act: Callable[[str], None], every: int = 1) -> int:
    """Act again and again, with a connection cut one message later each time; return how often."""
    number = 0
    for answered in (False, True):
        message, cuts = 1, -1
        while cuts != proxy.cuts:
            cuts = proxy.cuts
            proxy.cut(message, answered=answered)
            act(f"number-{number}")
            message, number = message + every, number + 1
    proxy.cut(0, answered=False)
    assert proxy.cuts > 20 // every
    return number


def test_payments_while_each_message_is_cut(ledger: Ledger, proxy: Proxy) -> None:
    account = ledger.account("a/b")
    paid = cut_everywhere(proxy, lambda _: account.spend(MECHANISM))
    assert spent(ledger) == {"a": paid * MU**2, "a/b": paid * MU**2}
    assert [entry.kind for entry in ledger.history()] == ["open"] * 2 + ["spend"] * paid
    check_chain(ledger, ledger.history())


@pytest.mark.thorough
def test_releases_while_each_message_is_cut(ledger: Ledger, proxy: Proxy, tmp_path: Path) -> None:
    account = ledger.account("a/b")

    def release(request: str) -> None:
        target = tmp_path / f"{request}.npy"
        MECHANISM.release_to(target, np.eye(2), privacy_filter=account, request=request)
        assert Release.verify(target) == MECHANISM.guarantee

    paid = cut_everywhere(proxy, release, every=2)
    assert spent(ledger) == {"a": paid * MU**2, "a/b": paid * MU**2}
    kinds = [entry.kind for entry in ledger.history()]
    assert kinds == ["open"] * 2 + ["pay", "publish"] * paid
    assert ledger.pending() == []


@pytest.mark.thorough
def test_accounts_and_keys_while_each_message_is_cut(
    ledger: Ledger, proxy: Proxy, tmp_path: Path
) -> None:
    budget = Budget(1.0, 1e-5)

    def open_and_rotate(request: str) -> None:
        ledger.open_account(request, budget, neighbouring="replace")
        ledger.rotate_keys(tmp_path / request)

    opened = cut_everywhere(proxy, open_and_rotate)
    kinds = [entry.kind for entry in ledger.history()]
    assert kinds == ["open"] * 2 + ["open", "rotate"] * opened
    ledger.write(ledger.check_keys)


def test_statements_while_messages_are_cut(ledger: Ledger, proxy: Proxy, tmp_path: Path) -> None:
    target = tmp_path / "a.npy"
    MECHANISM.release_to(target, np.eye(2), privacy_filter=ledger.account("a"))
    cuts = proxy.cuts
    for message in (1, 2, 3):
        proxy.cut(message, answered=False)
        assert ledger.verify_statements([target]) == []
    assert proxy.cuts == cuts + 3


def test_payments_while_a_server_ends_connections(ledger: Ledger) -> None:
    account, stop, ended = ledger.account("a/b"), threading.Event(), list[int]()

    def end_connections() -> None:
        while not stop.wait(0.02):
            found = running().command(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE usename = 'tests' AND pid <> pg_backend_pid()"
            )
            ended.append(len(found))

    thread = threading.Thread(target=end_connections)
    thread.start()
    paid = 0
    try:
        while sum(ended) < 20 or paid < 50:
            account.spend(LITTLE)  # however long it takes, it does not empty the account
            paid += 1
    finally:
        stop.set()
        thread.join()
    assert spent(ledger) == {name: paid * Fraction(LITTLE) ** 2 for name in ("a", "a/b")}
    check_chain(ledger, ledger.history())


def test_a_server_that_stays_away(ledger: Ledger, proxy: Proxy) -> None:
    account = ledger.account("a/b")
    ledger.close()
    with proxy:
        pass
    with pytest.raises(LostConnectionError, match="the same request pays once") as caught:
        account.spend(MECHANISM)
    assert caught.value.__suppress_context__
