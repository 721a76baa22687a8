"""Every door by which something is released: what it is called with, and what it costs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matrixdp import IMGM, Budget, FrobeniusBall, MatrixMechanism, RowBounds, SymmetricBall
from matrixdp.baselines import MVG, AnalyticGaussian, ClassicGaussian, private_directions
from matrixdp.files import release_npy
from matrixdp.ledger import Ledger, LedgerAccount
from matrixdp.queries import ClippedRecords, Gram, Mean, PublicBounds, Sum
from matrixdp.workloads import Prefix, marginals

__all__ = ["BUDGET", "Door", "Killed", "doors", "files_in", "killed_at", "opened", "path_doors"]

BUDGET = Budget(0.8, 1e-5)
"""What one release may cost."""

BALL = FrobeniusBall(1.0, neighbouring="add-remove")
MATRIX = np.arange(12.0).reshape(3, 4) / 20.0
BOUNDS = PublicBounds(3, norm=1.0)
RECORDS = np.random.default_rng(0).uniform(-0.5, 0.5, (50, 3))
TIGHT_BOUNDS = PublicBounds(3, norm=0.4)
ONE_COLUMN = PublicBounds(1, norm=1.0)
DIRECTIONS = np.linalg.qr(np.random.default_rng(1).standard_normal((3, 3)))[0]


class Killed(BaseException):
    """The process dies here: nothing catches it."""


@dataclass(frozen=True)
class Door:
    """A door.

    Attributes
    ----------
    name : str
        For people.
    release : callable or None
        Releases in memory; called with what pays.
    release_to : callable or None
        Releases to files; called with a folder, which of two values, and options.
    """

    name: str
    release: Callable[[Any], Any] | None
    release_to: Callable[..., Any] | None

    def __str__(self) -> str:
        return self.name


def mechanisms() -> dict[str, tuple[Any, Any]]:
    square = MATRIX[:, :3] + MATRIX[:, :3].T
    return {
        "IMGM": (IMGM(BALL, BUDGET), MATRIX),
        "IMGM, float32": (IMGM(BALL, BUDGET), MATRIX.astype(np.float32)),
        "IMGM, bounded rows": (IMGM(RowBounds([1.0, 2.0, 3.0], "add-remove"), BUDGET), MATRIX),
        "IMGM, symmetric": (IMGM(SymmetricBall(1.0, "add-remove"), BUDGET), square),
        "ClassicGaussian": (ClassicGaussian(BALL, BUDGET), MATRIX),
        "AnalyticGaussian": (AnalyticGaussian(BALL, BUDGET), MATRIX),
        "MVG": (MVG(BALL, BUDGET, shape=(3, 4), norm_bound=2.0), MATRIX),
        "MVG, directions": (
            MVG(
                *(BALL, BUDGET),
                shape=(3, 4),
                norm_bound=2.0,
                precision=[0.6, 0.3, 0.1],
                directions=DIRECTIONS,
            ),
            MATRIX,
        ),
        "MatrixMechanism": (
            MatrixMechanism(Prefix(4), BUDGET, neighbouring="add-remove"),
            np.array([3, 1, 4, 1]),
        ),
    }


def of_mechanism(name: str, mechanism: Any, value: Any) -> Door:
    suffix = "npz" if name == "MatrixMechanism" else "npy"

    def release_to(folder: Path, which: int = 0, **options: Any) -> Any:
        other = value * 2 if value.dtype.kind == "i" else value / 2
        return mechanism.release_to(folder / f"out.{suffix}", (value, other)[which], **options)

    return Door(name, lambda payer: mechanism.release(value, privacy_filter=payer), release_to)


def of_query(name: str, query: Any, data: Any) -> Door:
    def release_to(folder: Path, which: int = 0, **options: Any) -> Any:
        return query.release_to(folder / "out.csv", data * (1.0 - which / 2), BUDGET, **options)

    return Door(name, lambda payer: query.release(data, BUDGET, privacy_filter=payer), release_to)


def of_records() -> Door:
    workload = marginals([3, 4, 2], [(0, 1), (2,)])
    mechanism = MatrixMechanism(workload, BUDGET, neighbouring="add-remove")
    cells = np.random.default_rng(2).integers(0, 2, (40, 3))

    def release_to(folder: Path, which: int = 0, **options: Any) -> Any:
        return mechanism.release_records_to(folder / "out.npz", cells[which:], **options)

    return Door(
        "MatrixMechanism, records",
        lambda payer: mechanism.release_records(cells, privacy_filter=payer),
        release_to,
    )


def of_streams() -> Iterator[Door]:
    mechanism = IMGM(BALL, BUDGET)

    def source(folder: Path, which: int) -> Path:
        path = folder / f"in{which}.npy"
        if not path.exists():
            np.save(path, MATRIX * (1 + which))
        return path

    def release_to(folder: Path, which: int = 0, **options: Any) -> Any:
        return mechanism.release_to(folder / "out.npy", source(folder, which), **options)

    def release_file(folder: Path, which: int = 0, **options: Any) -> Any:
        return release_npy(mechanism, source(folder, which), folder / "out.npy", **options)

    yield Door("stream", None, release_to)
    yield Door("release_npy", None, release_file)


def of_estimators() -> Iterator[Door]:
    try:
        from estimators.examples import ALL, bounded, records, targets  # noqa: PLC0415
    except pytest.skip.Exception:  # scikit-learn is an extra
        return
    rows, classes = records(60)

    def fitting(kind: Any) -> Callable[[Any], Any]:
        # Short, since every release is looked at.
        steps = {"max_iter": 3} if kind.__name__ == "PrivateLogisticRegression" else {}
        return lambda payer: bounded(
            kind, epsilon=BUDGET.epsilon, delta=BUDGET.delta, neighbouring="add-remove", **steps
        ).fit(rows, targets(kind, rows, classes), privacy_filter=payer)

    for kind in ALL:
        yield Door(kind.__name__, fitting(kind), None)


def doors() -> list[Door]:
    """Return all of them."""
    return [
        *(of_mechanism(name, *parts) for name, parts in mechanisms().items()),
        of_records(),
        of_query("Sum", Sum(BOUNDS, "add-remove"), RECORDS),
        of_query("Gram", Gram(BOUNDS, "add-remove"), RECORDS),
        of_query(
            "ClippedRecords", ClippedRecords(PublicBounds(3, norm=0.4), "add-remove"), RECORDS
        ),
        of_query("Mean, public count", Mean(BOUNDS, "add-remove", count=50), RECORDS),
        of_query("Mean, private count", Mean(BOUNDS, "add-remove"), RECORDS),
        of_query("Mean of one column", Mean(ONE_COLUMN, "add-remove"), RECORDS[:, :1]),
        Door(
            "private_directions",
            lambda payer: private_directions(MATRIX, BALL, BUDGET, privacy_filter=payer),
            None,
        ),
        *of_streams(),
        *of_estimators(),
    ]


def path_doors() -> list[Door]:
    """Return those that release to files."""
    return [door for door in doors() if door.release_to is not None]


@contextmanager
def opened(folder: Path, budget: Budget = Budget(4.0, 1e-5)) -> Iterator[LedgerAccount]:  # noqa: B008 - frozen
    """Yield an account of a new ledger, which is in a folder of its own."""
    place = folder / "ledger"
    place.mkdir()
    with Ledger.create(f"sqlite:///{place}/a.ledger", keys=place / "a.keys") as ledger:
        ledger.open_account("clinic", budget, neighbouring="add-remove")
        yield ledger.account("clinic")


def files_in(folder: Path) -> dict[str, bytes]:
    """Return what was released to a folder, hidden files included."""
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if path.is_file() and not path.name.startswith("in")
    }


def killed_at(
    monkeypatch: pytest.MonkeyPatch, place: Any, name: str, *, call: int = 1, after: bool = False
) -> None:
    """Let the process die at a call of a function, before it or after it."""
    original, calls = getattr(place, name), [0]

    def dying(*arguments: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == call and not after:
            raise Killed
        result = original(*arguments, **options)
        if calls[0] == call:
            raise Killed
        return result

    monkeypatch.setattr(place, name, dying)
