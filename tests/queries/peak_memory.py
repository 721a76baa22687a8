"""A process that sums up a source, and writes how much its peak of memory grew."""

import importlib
import resource
import sqlite3
import sys
from pathlib import Path
from typing import Any

import numpy as np

from matrixdp.cli.main import main as command
from matrixdp.queries import PublicBounds, Sum

TIMES = 3
"""So often polars reads its files: it reads 350 MB ahead, however large they are."""


def source_of(kind: str, folder: Path) -> Any:
    """Return what a query reads."""
    import polars as pl  # noqa: PLC0415

    match kind:
        case "parquet":
            return folder
        case "npy":
            return f"{folder}/*.npy"
        case "polars":
            return pl.concat([pl.scan_parquet(folder / "*.parquet")] * TIMES)
        case _:
            return sqlite3.connect(folder / "base").execute("SELECT * FROM records")


def peak() -> int:
    """Return the most memory that this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(kind: str, folder: Path, columns: int) -> None:
    """Write the growth of the peak."""
    # Late, since this file is collected without extras, too; and before anything is measured.
    for library in ("polars", "pyarrow.parquet"):
        importlib.import_module(library)
    names = [f"x{number}" for number in range(columns)]
    query = Sum(PublicBounds(columns, lower=0, upper=8), "replace")
    query.evaluate(np.ones((5000, columns)))  # loads what any query loads
    before = peak()
    if kind == "csv":
        words = ["--lower=0", "--upper=8", "--mu=1", "--delta=1e-6", "--neighbouring=replace"]
        out = str(folder / "out.npy")
        columns_named = f"--columns={','.join(names)}"
        assert command(["query", "sum", f"{folder}/*.csv", out, columns_named, *words]) == 0
    else:
        query.evaluate(source_of(kind, folder))
    sys.stdout.write(f"{peak() - before}\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
