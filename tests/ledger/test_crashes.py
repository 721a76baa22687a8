"""Processes that die at every statement, every call of the system, and at random moments."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.backends import Backend
from matrixdp.ledger import Ledger

# `make test-crashes` asks for more.
CASES = os.environ.get("MATRIXDP_CRASHES", "12")
_MEMORY = Path("/dev/shm")  # noqa: S108


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder in memory, if there is one: a process that dies needs no disk."""
    if not _MEMORY.is_dir() or shutil.disk_usage(_MEMORY).free < 2**28:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=_MEMORY) as name:
        yield Path(name)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the children are forked")
def test_nothing_is_lost(backend: Backend, folder: Path) -> None:
    url, keys, seed = backend.url(folder), folder / "a.keys", os.environ["MATRIXDP_FUZZ_SEED"]
    program = Path(__file__).with_name("crashes.py")
    done = subprocess.run(
        [sys.executable, "-W", "error", program, url, keys, CASES, seed],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},  # as pytest found its modules
        capture_output=True,
        text=True,
        check=False,
    )
    print(backend, done.stdout, end="")  # noqa: T201 - with -s
    assert done.returncode == 0, f"MATRIXDP_FUZZ_SEED={seed}\n{done.stderr[-3000:]}"
    # A process that has seen nothing of all this, and opens what is left.
    with Ledger.open(url, keys=keys) as ledger:
        assert ledger.pending() == []
        paid = sum(entry.kind in ("pay", "spend") for entry in ledger.history())
        assert paid >= int(CASES) // 2
