"""A program that kills its children in the middle of releases, and has others finish them.

Nothing of this is in the library: the children replace the functions of the system, of SQLite and
of SQLAlchemy that a release calls by ones which count, and end without a word at one of these
points, or at a moment that the parent chooses. It prints figures as JSON, and fails if a promise is
broken. Arguments: address of a ledger to be made, its key file, number of cases, seed.
"""

import contextlib
import hashlib
import json
import os
import sqlite3
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from signal import SIGKILL
from typing import Any

import numpy as np

from ledger.steps import MECHANISM, MU, check_chain, paid_only
from matrixdp import Budget, Release
from matrixdp.errors import InvalidParameterError
from matrixdp.ledger import Entry, Ledger
from matrixdp.mechanisms.drawing import Drawing

__all__ = ["main"]

ACCOUNT = "clinic/ann"
# In one of so many cases, and of so many recoveries, it is the parent that kills.
RANDOM_MOMENTS = 5
RECOVERIES_THAT_DIE = 4


class Points:
    """The points that a process has passed, at one of which it ends."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.fatal = -1

    def reach(self, name: str) -> None:
        """Pass a point, or end there."""
        self.names.append(name)
        if len(self.names) == self.fatal:
            os.kill(os.getpid(), SIGKILL)

    def watch(self, owner: Any, name: str) -> None:
        """Replace a function by one that has a point before and one after it."""
        former = getattr(owner, name)

        def watched(*arguments: Any, **named: Any) -> Any:
            self.reach(f"before {name}")
            result = former(*arguments, **named)
            self.reach(f"after {name}")
            return result

        setattr(owner, name, watched)


POINTS = Points()


class WatchedConnection(sqlite3.Connection):
    """A connection with points around every statement."""

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        """Run one statement."""
        words = " ".join(str(arguments[0]).split()[:2])
        POINTS.reach(f"before {words}")
        found = super().execute(*arguments)
        POINTS.reach(f"after {words}")
        return found


def watch_everything(draws: Path) -> None:
    """Put points around whatever a release does, and write down what is drawn."""
    for name in ("fsync", "link", "replace", "unlink"):
        POINTS.watch(os, name)
    vars(sqlite3)["connect"] = partial(sqlite3.connect, factory=WatchedConnection)
    if "sqlalchemy" in sys.modules:
        from sqlalchemy.engine.default import DefaultDialect  # noqa: PLC0415

        for name in ("do_execute", "do_execute_no_params", "do_commit", "do_rollback"):
            POINTS.watch(DefaultDialect, name)
    draw = Drawing.draw

    def drawn(*arguments: Any, **named: Any) -> Any:
        noisy = draw(*arguments, **named)
        digest = hashlib.sha256(np.ascontiguousarray(noisy).tobytes()).hexdigest()
        with draws.open("a") as file:
            file.write(f"{RUNNING[-1]} {digest}\n")
        return noisy

    setattr(Drawing, "draw", drawn)  # noqa: B010 - types
    POINTS.watch(Drawing, "draw")


RUNNING: list[str] = []


@dataclass(frozen=True)
class Case:
    """A release that is made in spite of crashes, or given up."""

    request: str
    kind: str  # file, forfeit or memory
    target: Path

    @property
    def value(self) -> Any:
        """The value, the same in each attempt."""
        return np.full((4, 3), float(len(self.request)))

    def run(self, url: str, keys: Path) -> None:
        """Make the release as a user does, whatever has happened before."""
        RUNNING.append(self.request)
        with Ledger.open(url, keys=keys) as ledger:
            account = ledger.account(ACCOUNT)
            if self.kind == "memory":
                MECHANISM.release(self.value, privacy_filter=account)
            elif self.kind == "file":
                self.release(account)
            else:
                self.give_up(ledger, account)

    def release(self, account: Any) -> None:
        """Release to the file."""
        MECHANISM.release_to(self.target, self.value, privacy_filter=account, request=self.request)

    def give_up(self, ledger: Ledger, account: Any) -> None:
        """Pay, fail to write the file, and forfeit."""
        with contextlib.suppress(InvalidParameterError):  # it was forfeited already
            paid_only(account, self.target, self.request)
        ledger.forfeit(self.request)


@dataclass
class Watch:
    """What the parent saw of one ledger, and what it requires."""

    url: str
    keys: Path
    draws: Path
    figures: Counter[str] = field(default_factory=Counter)
    files: dict[str, set[str]] = field(default_factory=dict)
    sealed: set[str] = field(default_factory=set)

    def attempt(self, case: Case, *, fatal: int = -1, seconds: float | None = None) -> bool:
        """Let a fresh process run a case; return whether it came to its end."""
        child = os.fork()
        if child == 0:
            POINTS.names.clear()
            POINTS.fatal = fatal
            status = 1
            try:
                case.run(self.url, self.keys)
                status = 0
                self.draws.with_suffix(".points").write_text("\n".join(POINTS.names))
            except BaseException:  # noqa: BLE001 - a child that is forked never returns
                traceback.print_exc()
            finally:
                os._exit(status)
        if seconds is not None:
            time.sleep(seconds)
            os.kill(child, SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            self.figures["killed"] += 1
            return False
        assert os.WEXITSTATUS(status) == 0, f"{case} failed"
        return True

    def points(self) -> list[str]:
        """Return the points that the last process passed which came to its end."""
        return self.draws.with_suffix(".points").read_text().splitlines()

    def look(self, case: Case) -> list[Entry]:
        """Check what must hold at any moment, and return the entries of a case."""
        with Ledger.open(self.url, keys=self.keys) as ledger:
            history, accounts, pending = ledger.history(), ledger.accounts(), ledger.pending()
            check_chain(ledger, history)
        self.sealed |= {one.sealed for one in pending}
        paid = [entry for entry in history if entry.kind in ("pay", "spend")]
        for account in accounts:
            assert account.spent.mu_squared == MU**2 * len(paid), "the total is not exact"
        own = [entry for entry in history if entry.release == case.request]
        if case.request in self.drawn():
            assert case.kind == "memory" or own, "drawn unpaid"
        drawn = self.drawn()
        in_memory = [name for name in drawn if name.startswith("memory")]
        assert len(in_memory) <= sum(entry.kind == "spend" for entry in paid), "drawn unpaid"
        if case.target.exists():
            digest = hashlib.sha256(case.target.read_bytes()).hexdigest()
            self.files.setdefault(case.request, set()).add(digest)
            assert own, "there is a file that was not paid for"
        return own

    def drawn(self) -> dict[str, set[str]]:
        """Return what each request has drawn."""
        found: dict[str, set[str]] = {}
        for line in self.draws.read_text().splitlines():
            name, digest = line.split()
            found.setdefault(f"{name}-{digest}" if name.startswith("memory") else name, set()).add(
                digest
            )
        return found

    def check_finished(self, case: Case) -> None:
        """Check what must hold once somebody has finished a case."""
        own = self.look(case)
        if case.kind == "memory":
            return
        last = {"file": "publish", "forfeit": "forfeit"}[case.kind]
        assert [entry.kind for entry in own] == ["pay", last], "not paid once and ended once"
        drawn = self.drawn().get(case.request, set())
        assert len(drawn) <= 1, "drawn with two sets of bits"
        if case.kind == "file":
            assert self.files[case.request] == {own[-1].facts["sha256"]}, "published twice"
            assert Release.verify(case.target) == MECHANISM.guarantee
            self.figures["published"] += 1
        with Ledger.open(self.url, keys=self.keys) as ledger:
            assert ledger.pending() == [], "a key is left"
        self.check_erased()

    def check_erased(self) -> None:
        """Check that no file of SQLite holds a key that a finished release had."""
        if self.url.startswith("sqlite:///"):
            path = Path(self.url.removeprefix("sqlite:///"))
            for file in path.parent.glob(f"{path.name}*"):
                content = file.read_bytes()
                assert not any(sealed.encode() in content for sealed in self.sealed), file.name


def crash_and_recover(
    watch: Watch, case: Case, points: int, seconds: float, random: Random
) -> None:
    """Run a case until it dies, then until it is done; what dies may be the recovery as well."""
    if random.randrange(RANDOM_MOMENTS) == 0:
        ended = watch.attempt(case, seconds=random.uniform(0.0, 1.2 * seconds))
    else:
        ended = watch.attempt(case, fatal=points)
    watch.look(case)
    if case.kind == "memory":
        return
    while not ended and random.randrange(RECOVERIES_THAT_DIE) == 0:
        watch.figures["recoveries killed"] += 1
        watch.attempt(case, seconds=random.uniform(0.0, 1.2 * seconds))
        watch.look(case)
    assert watch.attempt(case)
    watch.check_finished(case)


@contextlib.contextmanager
def held_open(url: str, keys: Path) -> Iterator[None]:
    """Let a process have the ledger open: SQLite would tidy up when the last one closes it."""
    holder = os.fork()
    if holder == 0:
        with Ledger.open(url, keys=keys) as ledger:
            ledger.accounts()
            while True:
                time.sleep(1000)
    try:
        yield
    finally:
        os.kill(holder, SIGKILL)
        os.waitpid(holder, 0)


def run_cases(watch: Watch, cases: int, random: Random) -> None:
    """Let processes die at points of all kinds of releases, each point before any again."""
    began, folder = time.monotonic(), watch.keys.parent
    order: list[tuple[str, int]] = []
    for kind in ("file", "forfeit", "memory"):
        case = Case(f"{kind}-first", kind, folder / f"{kind}-first.npy")
        assert watch.attempt(case)
        watch.check_finished(case)
        order += [(kind, point + 1) for point in range(len(watch.points()))]
    seconds = (time.monotonic() - began) / 6
    watch.figures["points"] = len(order)
    chosen = [
        each for _ in range(-(-cases // len(order))) for each in random.sample(order, len(order))
    ]
    for number, (kind, point) in enumerate(chosen[:cases]):
        name = f"{kind}-{number}"
        case = Case(name, kind, folder / f"{name}{random.choice(('.npy', '.csv'))}")
        crash_and_recover(watch, case, point, seconds, random)
    watch.figures["points chosen"] = len(set(chosen[:cases]))
    watch.figures["draws"] = len(watch.draws.read_text().splitlines())
    watch.figures["unfinished files left"] = len(list(folder.glob(".*.unfinished")))
    watch.figures["seconds"] = round(time.monotonic() - began)


def main() -> None:
    """Run the cases and print the figures."""
    url, keys, cases, seed = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    watch = Watch(url, keys, keys.with_name("draws"))
    watch.draws.touch()
    with Ledger.create(url, keys=keys) as ledger:
        for name in ("clinic", ACCOUNT):
            ledger.open_account(name, Budget(40.0, 1e-5), neighbouring="replace")
    # What it imports and calibrates, the children have.
    Case("memory-warm", "memory", keys).run(url, keys)
    first = Case("file-warm", "file", keys.with_name("file-warm.npy"))
    first.run(url, keys)
    watch.check_finished(first)
    watch_everything(watch.draws)
    with held_open(url, keys):
        run_cases(watch, cases, Random(seed))  # noqa: S311 - which processes die
    print(json.dumps({"seed": seed, "cases": cases, **watch.figures}))  # noqa: T201


if __name__ == "__main__":
    main()
