"""Every test of the ledger that asks for a backend runs on both."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.backends import Backend, backends
from matrixdp import Budget
from matrixdp.ledger import Ledger, LedgerAccount


@pytest.fixture(params=backends(), ids=str)
def backend(request: pytest.FixtureRequest) -> Backend:
    """Return a kind of database."""
    found: Backend = request.param
    return found


@pytest.fixture
def ledger(backend: Backend, tmp_path: Path) -> Iterator[Ledger]:
    """Yield a new ledger, whose keys are `a.keys` in `tmp_path`."""
    with backend.ledger(tmp_path) as made:
        yield made


@pytest.fixture
def account(ledger: Ledger) -> LedgerAccount:
    """Return an account below another one."""
    ledger.open_account("clinic", Budget(8.0, 1e-5), neighbouring="replace", claims_delta=1e-6)
    return ledger.open_account(
        "clinic/ann", Budget(4.0, 1e-5), neighbouring="replace", claims_delta=1e-6
    )


@pytest.fixture
def url(backend: Backend, tmp_path: Path) -> str:
    """Return the address of a ledger with an account that has paid once."""
    found = backend.url(tmp_path)
    with Ledger.create(found, keys=tmp_path / "a.keys") as ledger:
        ledger.open_account("a", Budget(4.0, 1e-5), neighbouring="replace").spend(0.1)
    return found


@pytest.fixture
def small(tmp_path: Path) -> Iterator[LedgerAccount]:
    """Yield an account of an SQLite ledger."""
    with Ledger.create(f"sqlite:///{tmp_path}/a.ledger", keys=tmp_path / "a.keys") as ledger:
        yield ledger.open_account("a", Budget(4.0, 1e-5), neighbouring="replace")
