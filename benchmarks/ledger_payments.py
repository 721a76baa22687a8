"""Payments from a ledger, against what the disk needs to keep as many: a loop of bare fsyncs.

A payment waits once for the disk. A release to a file waits for its payment, its files and their
names, and its publication, after which SQLite overwrites the key. The peer appends a page to a file
on the same disk and forces it there, one at a time; the works of one process are measured in
interleaved rounds. PostgreSQL takes part if a server is installed.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from saved import save

import matrixdp as mdp
from ledger.server import started_in
from matrixdp.ledger import Ledger, LedgerAccount

ROUNDS, PROCESSES, SECONDS = 100, 16, 10.0
# The times that one release to a file waits for the disk with SQLite: start of the log, payment,
# matrix, statement, the names of both, publication, its log, and the file without the key.
WAITS_OF_A_RELEASE = 9
MU = 1e-3
LONGEST_WAIT = 1.0
Work = Callable[[], object]


class Disk:
    """A file that is forced to the disk page by page."""

    def __init__(self, folder: Path) -> None:
        self._file = (folder / "bare").open("wb", buffering=0)

    def force(self) -> None:
        """Append a page and wait until the disk has it."""
        self._file.write(bytes(4096))
        os.fsync(self._file.fileno())


def timed(work: Work) -> float:
    """Return the seconds that a work takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def opened(url: str, folder: Path) -> Ledger:
    """Return a new ledger with a large account below another one."""
    ledger = Ledger.create(url, keys=folder / "keys")
    for name in ("a", "a/b"):
        ledger.open_account(name, mdp.Budget(1e4, 1e-5), neighbouring="replace")
    return ledger


def alone(account: LedgerAccount, folder: Path, kind: str) -> dict[str, float]:
    """Return what one process reaches, as shares of the rate of the disk."""
    mechanism = mdp.IMGM(mdp.FrobeniusBall(1.0, "replace"), mdp.Budget.from_mu(MU, delta=1e-5))
    disk, value, number = Disk(folder), np.eye(10), iter(range(10**9))
    works: dict[str, Work] = {
        "disk": disk.force,
        "pay": lambda: account.spend(MU),
        "release": lambda: mechanism.release_to(
            folder / f"{kind}{next(number)}.npy", value, privacy_filter=account
        ),
    }
    seconds: dict[str, list[float]] = {name: [] for name in works}
    # Not all in one round: a payment after a release begins a new log.
    for names in (("disk", "pay"), ("disk", "release")):
        for _ in range(ROUNDS):
            for name in names:
                seconds[name].append(timed(works[name]))
    median = {name: statistics.median(times) for name, times in seconds.items()}
    return {
        f"{kind}, alone, ms for one fsync": 1e3 * median["disk"],
        f"{kind}, alone, payments for each fsync": median["disk"] / median["pay"],
        f"{kind}, alone, ms for a payment": 1e3 * median["pay"],
        f"{kind}, alone, ms for the longest": 1e3 * max(seconds["pay"]),
        f"{kind}, alone, ms for a release to a file": 1e3 * median["release"],
        f"{kind}, alone, releases to files for each {WAITS_OF_A_RELEASE} fsyncs": (
            WAITS_OF_A_RELEASE * median["disk"] / median["release"]
        ),
    }


def crowd(url: str, folder: Path, kind: str) -> dict[str, float]:
    """Return what sixteen processes reach together, and how long one of them waited at most."""
    disk = Disk(folder)
    before = statistics.median(timed(disk.force) for _ in range(ROUNDS))
    waits = [wait for times in _in_processes(lambda: _payments(url, folder)) for wait in times]
    after = statistics.median(timed(disk.force) for _ in range(ROUNDS))
    rate = len(waits) / SECONDS
    return {
        f"{kind}, {PROCESSES} processes, payments a second": rate,
        f"{kind}, {PROCESSES} processes, payments for each fsync": rate * (before + after) / 2,
        f"{kind}, {PROCESSES} processes, ms for the median wait": 1e3 * statistics.median(waits),
        f"{kind}, {PROCESSES} processes, ms for the longest wait": 1e3 * max(waits),
    }


def _payments(url: str, folder: Path) -> list[float]:
    """Return how long each payment of a process took."""
    times, end = list[float](), time.monotonic() + SECONDS
    with Ledger.open(url, keys=folder / "keys") as ledger:
        account = ledger.account("a/b")
        while time.monotonic() < end:
            times.append(timed(lambda: account.spend(MU)))
    return times


def _in_processes(work: Callable[[], list[float]]) -> list[list[float]]:
    reading, writing = os.pipe()
    for _ in range(PROCESSES):
        if os.fork() == 0:
            with os.fdopen(writing, "w") as answers:
                answers.write(json.dumps(work()) + "\n")
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answers:
        found = [json.loads(line) for line in answers]
    for _ in range(PROCESSES):
        os.wait()
    if len(found) != PROCESSES:
        sys.exit("a process failed")
    return found


def main() -> int:
    """Measure and print; fail if somebody waits too long for SQLite."""
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        urls = {"SQLite": f"sqlite:///{folder}/ledger"}
        server = started_in(folder.parent)
        if server is not None:
            urls["PostgreSQL"] = server.url()
        for kind, url in urls.items():
            place = folder / kind
            place.mkdir()
            with opened(url, place) as ledger:
                figures |= alone(ledger.account("a/b"), place, kind)
            figures |= crowd(url, place, kind)
        if server is not None:
            server.stop()
    for what, figure in figures.items():
        print(f"{what}: {figure:.3g}")
    save("ledger_payments", figures)
    longest = figures[f"SQLite, {PROCESSES} processes, ms for the longest wait"]
    return 0 if longest < 1e3 * LONGEST_WAIT else 1


if __name__ == "__main__":
    sys.exit(main())
