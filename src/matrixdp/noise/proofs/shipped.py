"""Both tables of the fast path: prove what is shipped, or make it anew.

``python -m matrixdp.noise`` proves the shipped tables and prints their bounds; with ``make FOLDER``
it makes new ones, writes them to the folder and proves those. It needs python-flint.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from matrixdp.noise.proofs.certificate import make_table, prove_table
from matrixdp.noise.proofs.coarse_certificate import make_coarse_table, prove_coarse_table
from matrixdp.noise.specification.coarse_table import COARSE_STEP_ERROR, load_coarse_table
from matrixdp.noise.specification.table import STEP_ERROR, load_table, table_digest

__all__ = ["SHIPPED", "Shipped", "main"]

Table = NDArray[np.int64]


@dataclass(frozen=True)
class Shipped:
    """A table: its file, how it is made, read and proven, and the bound that is relied on."""

    file: str
    make: Callable[[], Table]
    load: Callable[[], Table]
    prove: Callable[[Table], float]
    bound: float


SHIPPED = (
    Shipped("table.bin", make_table, load_table, prove_table, STEP_ERROR),
    Shipped(
        "coarse.bin", make_coarse_table, load_coarse_table, prove_coarse_table, COARSE_STEP_ERROR
    ),
)


def main(arguments: list[str]) -> None:
    """Prove the shipped tables, or make new ones and prove those."""
    for shipped in SHIPPED:
        if arguments[:1] == ["make"]:
            table = shipped.make()
            Path(arguments[1], shipped.file).write_bytes(table.astype("<i8").tobytes())
        else:
            table = shipped.load()
        bound = shipped.prove(table)
        sys.stdout.write(f"{shipped.file}: SHA-256 {table_digest(table)}\n")
        sys.stdout.write(f"error of r <= {bound.hex()} steps; relied on is {shipped.bound.hex()}\n")
        if not bound <= shipped.bound:
            raise SystemExit(f"NOT PROVEN: the bound of {shipped.file} is exceeded")
