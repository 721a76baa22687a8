"""Sources larger than memory are read in blocks: the peak stays far below their size."""

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("polars")
pytest.importorskip("pyarrow")

from queries.peak_memory import TIMES

pytestmark = pytest.mark.thorough

PARTS, COLUMNS = 8, 16
NUMBERS = np.random.default_rng(3).integers(0, 9, (375_000, COLUMNS)) / 8.0
NAMES = [f"x{number}" for number in range(COLUMNS)]


def parquet_files(folder: Path) -> None:
    import pyarrow as pa  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra
    from pyarrow import parquet  # noqa: PLC0415

    table = pa.table(dict(zip(NAMES, NUMBERS.T, strict=True)))
    for part in range(PARTS):
        options: dict[str, Any] = {"use_dictionary": False, "compression": "none"}
        parquet.write_table(table, folder / f"{part}.parquet", row_group_size=65_536, **options)


def npy_files(folder: Path) -> None:
    for part in range(PARTS):
        np.save(folder / f"{part}.npy", NUMBERS)


def csv_files(folder: Path) -> None:
    rows = "".join(",".join(map(str, row)) + "\n" for row in NUMBERS[:20_000].tolist())
    for part in range(PARTS):
        (folder / f"{part}.csv").write_text(",".join(NAMES) + "\n" + rows * 8)


def a_database(folder: Path) -> None:
    base = sqlite3.connect(folder / "base")
    base.execute(f"CREATE TABLE records ({', '.join(f'{name} REAL' for name in NAMES)})")
    rows, marks = NUMBERS.tolist(), ",".join("?" * COLUMNS)
    for _ in range(3):
        base.executemany(f"INSERT INTO records VALUES ({marks})", rows)  # noqa: S608
    base.commit()
    base.close()


MADE: dict[str, Callable[[Path], None]] = {
    "parquet": parquet_files,
    "polars": parquet_files,
    "npy": npy_files,
    "csv": csv_files,
    "sql": a_database,
}


@pytest.mark.parametrize("kind", MADE)
def test_the_peak_is_far_below_the_size(kind: str, tmp_path: Path) -> None:
    MADE[kind](tmp_path)
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    read = size * TIMES if kind == "polars" else size
    program = Path(__file__).with_name("peak_memory.py")
    done = subprocess.run(
        [sys.executable, str(program), kind, str(tmp_path), str(COLUMNS)],
        check=True,
        capture_output=True,
        text=True,
    )
    grown = int(done.stdout.splitlines()[-1])
    assert grown < 0.4 * read, f"{grown / 1e6:.0f} MB of {read / 1e6:.0f} MB"
