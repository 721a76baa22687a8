"""Saved releases and strategies, altered at random so that as much as possible still fits."""

import functools
import hashlib
import io
import json
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from files.damaged_files import altered_json, drawn_file, torn
from matrixdp import IMGM, Budget, FrobeniusBall, MatrixMechanism, RowBounds, RowBox, SymmetricBall
from matrixdp.files.formats.suffixes import format_of
from matrixdp.files.publishing.statement import statement_path
from matrixdp.files.publishing.strategies import save_strategy
from matrixdp.mechanisms.labelled import MatrixFile
from matrixdp.queries import Mean, PublicBounds
from matrixdp.workloads import Dense, Prefix, Product, Total, Union, marginals, optimal_strategy

__all__ = ["altered_save", "saved_files"]

_BUDGET = Budget(1.0, 1e-5)
_VALUE = MatrixFile(np.ones((2, 2)), ["a", "b"], ["x", "y"], "id")


@functools.cache
def saved_files() -> dict[str, tuple[bytes, bytes]]:
    """Return names of valid files, each with its content and its statement."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        saved: dict[str, Any] = {
            "a.npy": FrobeniusBall(1.0, "replace"),
            "b.npy": RowBox([1.0, 2.0], "replace"),
            "c.npz": RowBounds([1.0, 2.0], "add-remove"),
            "d.csv": SymmetricBall(1.0, "replace"),
            "e.csv.gz": FrobeniusBall(1.0, "replace"),
        }
        for suffix, sensitivity in saved.items():
            value = MatrixFile(_VALUE.array) if suffix[2:] in ("npy", "npz") else _VALUE
            IMGM(sensitivity, _BUDGET).release(value).save(folder / suffix)
        bounds = PublicBounds(2, norm=1.0)
        Mean(bounds, "add-remove").release(np.ones((9, 2)), _BUDGET).save(folder / "means.npy")
        workloads = [
            Prefix(3),
            Union([Product([Prefix(2), Total(3)]), Product([Total(2), Dense(np.eye(3))])]),
            marginals([2, 3], [(0,), (1,)]),
        ]
        for number, workload in enumerate(workloads):
            best = optimal_strategy(workload, neighbouring="replace")
            save_strategy(best, folder / f"strategy{number}.npz")
            mechanism = MatrixMechanism(
                workload, _BUDGET, neighbouring="replace", strategy=best.strategy
            )
            mechanism.release(np.ones(workload.dimensions)).save(folder / f"workload{number}.npz")
        return {
            each.name: (each.read_bytes(), statement_path(each).read_bytes())
            for each in sorted(folder.iterdir())
            if statement_path(each).is_file()
        }


def altered_save(random: Random) -> tuple[str, bytes, bytes]:
    """Return the name of a saved file, its content and its statement, at least one altered."""
    name = random.choice(sorted(saved_files()))
    content, statement = saved_files()[name]
    part = random.randrange(4)
    if part in (0, 1):
        content = _altered_content(name, content, random)
    if part in (1, 2, 3):
        statement = altered_json(statement, random)
    if random.random() < 0.9:
        statement = _with_digest(statement, content)
    return name, content, statement


def _altered_content(name: str, content: bytes, random: Random) -> bytes:
    match random.randrange(3):
        case 0:
            return torn(content, random)
        case 1:
            return drawn_file(random, format_of(name))[1]
        case _ if not name.endswith(".npz"):
            return torn(content, random)
    with np.load(io.BytesIO(content)) as archive:
        arrays = {each: archive[each] for each in archive.files}
    key = random.choice(sorted(arrays))
    array = arrays.pop(key)
    match random.randrange(5):
        case 0:
            arrays[random.choice(("part_0_x", "residual_", "queries_9", "extra"))] = array
        case 1:
            arrays[key] = array.ravel()
        case 2:
            arrays[key] = array.astype(random.choice(("i8", "f4", "?", "c16", "U3")))
        case 3:
            arrays[key] = array * random.choice((0, -1, 1e300, np.nan))
        case _:
            arrays[key] = np.array(random.choice((0.0, 1, [], [[]], [[[1.0]]])))
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def _with_digest(statement: bytes, content: bytes) -> bytes:
    """Return a statement that is about this content, if it can still be read."""
    try:
        tree = json.loads(statement)
        tree["file"]["sha256"] = hashlib.sha256(content).hexdigest()
    except (ValueError, TypeError, KeyError, IndexError, RecursionError):
        return statement
    return json.dumps(tree).encode()
