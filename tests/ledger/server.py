"""A PostgreSQL server of its own for each process that tests, if one is installed."""

import atexit
import contextlib
import functools
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

__all__ = ["PASSWORD", "Server", "server", "started_in"]

psycopg = pytest.importorskip("psycopg")
pytest.importorskip("sqlalchemy")

PASSWORD = "in no message"  # noqa: S105 - of a server that ends with the tests
_PROGRAMS = Path("/usr/lib/postgresql")
_MEMORY = Path("/dev/shm")  # noqa: S108
_START_SECONDS = 30.0
# Small, and it forces nothing to the disk but what the ledger asks for.
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "shared_buffers": "16MB",
    "max_connections": "60",
    "autovacuum": "off",
}

_NEW_CLUSTER = (
    *("--pgdata=data", "--username=tests", "--pwfile=word", "--auth=scram-sha-256"),
    *("--encoding=UTF8", "--locale=C", "--wal-segsize=1", "--no-sync"),
)


@dataclass(frozen=True)
class Server:
    """A running server."""

    port: int
    process: subprocess.Popen[bytes]
    folder: Path
    programs: Path

    def url(self, schema: str = "public", port: int | None = None) -> str:
        """Return the address of a schema, through a proxy if a port is given."""
        word = PASSWORD.replace(" ", "%20")
        address = f"tests:{word}@127.0.0.1:{port or self.port}/postgres"
        return f"postgresql+psycopg://{address}?options=-csearch_path%3D{schema}"

    def new_schema(self) -> str:
        """Make a schema, in which a ledger can be made."""
        name = f"s{secrets.token_hex(8)}"
        self.command(f"CREATE SCHEMA {name}")
        return name

    def command(self, statement: str, schema: str = "public") -> list[Any]:
        """Run a statement as a person beside the ledger would."""
        with self.connected() as connection:
            connection.execute(f"SET search_path TO {schema}")
            found = connection.execute(statement)
            return list(found) if found.description else []

    def connected(self) -> Any:
        """Return a connection that has nothing to do with a ledger."""
        return psycopg.connect(
            f"host=127.0.0.1 port={self.port} dbname=postgres user=tests password='{PASSWORD}'",
            autocommit=True,
            options="-c default_transaction_read_only=off",  # whatever a test has set
        )

    def restarted(self) -> "Server":
        """Return the server, started again as after a power cut."""
        self.process.kill()
        self.process.wait()
        again = replace(self, process=_process(self.programs, self.folder, self.port))
        _wait(again)
        return again

    def stop(self) -> None:
        """End the server and remove its files."""
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


@functools.cache
def server() -> Server | None:
    """Return the server of this process, started when first asked for, if one is installed."""
    started = started_in(_roomy())
    if started is not None:
        atexit.register(started.stop)
    return started


def started_in(parent: Path) -> Server | None:
    """Return a new server with its files in a folder below one that everybody can reach."""
    found = sorted(_PROGRAMS.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if not found:
        return None
    programs = found[-1].parent
    folder = Path(tempfile.mkdtemp(prefix="ledger-", dir=parent))
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
    word = folder / "word"
    word.write_text(PASSWORD)
    word.chmod(0o644)
    subprocess.run(
        [str(programs / "initdb"), *_NEW_CLUSTER],
        check=True,
        capture_output=True,
        **_rights(folder),
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    started = Server(port, _process(programs, folder, port), folder, programs)
    _wait(started)
    return started


def _rights(folder: Path) -> dict[str, Any]:
    """Return where and as whom its programs run: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {"cwd": folder}
    return {"cwd": folder, "user": "postgres", "group": "postgres", "extra_groups": []}


def _process(programs: Path, folder: Path, port: int) -> subprocess.Popen[bytes]:
    settings = [f"-c{name}={value}" for name, value in {**_SETTINGS, "port": port}.items()]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [*_until_killed(), str(programs / "postgres"), "-Ddata", *settings],
            stdout=log,
            stderr=log,
            **_rights(folder),
        )


def _until_killed() -> list[str]:
    """Return what ends a program with its parent, if that is killed before it stops it."""
    return [] if shutil.which("setpriv") is None else ["setpriv", "--pdeathsig", "QUIT"]


def _roomy() -> Path:
    """Return a folder in memory, where forcing something to the disk costs nothing."""
    with contextlib.suppress(OSError):
        if shutil.disk_usage(_MEMORY).free > 2**29:
            return _MEMORY
    return Path(tempfile.gettempdir())


def _wait(started: Server) -> None:
    limit = time.monotonic() + _START_SECONDS
    while True:
        try:
            started.connected().close()
            break
        except psycopg.OperationalError:
            if time.monotonic() > limit or started.process.poll() is not None:
                raise
            time.sleep(0.02)
