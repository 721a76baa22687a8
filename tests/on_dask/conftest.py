"""One small cluster for all tests of a process, and releases whose key is known."""

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from matrixdp.files.publishing import paid

SECRET = bytes(range(32))


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    import dask  # noqa: PLC0415 - an extra
    from distributed import LocalCluster  # noqa: PLC0415

    # A test kills workers more often than Dask takes for chance.
    lenient = dask.config.set({"distributed.scheduler.allowed-failures": 20})
    with (
        lenient,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as started,
    ):
        yield started


@pytest.fixture
def client(cluster: Any) -> Iterator[Any]:
    from distributed import Client  # noqa: PLC0415 - an extra

    with Client(cluster) as connected:
        yield connected


@pytest.fixture
def known_key(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Let the next releases be drawn with a key that the test knows."""

    class Known:
        token_hex = staticmethod(secrets.token_hex)

        @staticmethod
        def token_bytes(_count: int) -> bytes:
            return SECRET

    monkeypatch.setattr(paid, "secrets", Known)
    return SECRET


def left_in(folder: Path) -> list[str]:
    """Return the names of what is in a folder, hidden ones included."""
    return sorted(path.name for path in folder.iterdir())
