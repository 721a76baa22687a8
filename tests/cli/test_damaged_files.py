"""Files drawn at random: every reader and every command ends in an answer or in a named error."""

import contextlib
import io
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from cli.changed_words import ODD_WORDS
from files.damaged_files import drawn_file
from files.damaged_saves import altered_save, saved_files
from matrixdp import Release, ReleaseKey, WorkloadRelease
from matrixdp.cli.commands.query.source import RecordFile
from matrixdp.cli.main import main
from matrixdp.cli.shared.exit_codes import DEFECT
from matrixdp.errors import MatrixDPError
from matrixdp.files.formats.matrices import read_matrix
from matrixdp.files.publishing.npy_stream import add_noise_to_npy
from matrixdp.files.publishing.statement import read_schema, statement_path
from matrixdp.files.publishing.strategies import load_strategy
from matrixdp.queries import MeanRelease
from matrixdp.queries.names import Columns
from matrixdp.queries.sources import arrow_blocks, record_blocks

# The whole test draws this many cases, in parts that processes share.
_CASES, _PARTS, _EVERY_RUN = 20_000, 20, 300
# In one of so many cases the file goes to a command: that takes several times as long.
_READERS_PER_COMMAND = 4
_PROMISE = ["--epsilon", "1", "--delta", "1e-6", "--neighbouring", "replace", "--force"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _written(name: str, content: bytes) -> Path:
    path = Path(name)
    path.write_bytes(content)
    return path


def _read_matrix(random: Random) -> None:
    suffix, content = drawn_file(random)
    read_matrix(
        io.BytesIO(content),
        suffix,
        "in",
        header=random.random() < 0.5,
        index=random.random() < 0.5,
        decimals=random.choice(("nearest", "exact", "up")),
        delimiter=random.choice((None, None, ";")),
        columns=random.choice((None, None, ["b"], ["b", "a"])),
        offered=("--header", "--index", "--columns"),
    )


def _read_records(random: Random) -> None:
    suffix, content = drawn_file(random)
    path = _written(f"in{suffix}", content)
    columns = ("1", "0") if suffix == ".npy" else random.choice((("a", "b"), ("b",), ("c", "a")))
    match random.randrange(3):
        case 0:
            list(RecordFile(path, columns).numbers())
        case 1:
            list(RecordFile(path, columns).values([random.random() < 0.5 for _ in columns]))
        case _ if suffix in (".parquet", ".arrow"):
            list(arrow_blocks(path, list(columns)))
        case _:
            list(record_blocks(path, Columns(random.choice((1, 2))), 3))


def _read_saved(random: Random) -> None:
    name, content, statement = altered_save(random)
    path = _written(name, content)
    statement_path(path).write_bytes(statement)
    read = random.choice(_SAVED_READERS)
    if name.startswith("strategy") and random.random() < 0.8:
        read = load_strategy
    elif name.startswith("workload") and random.random() < 0.8:
        read = WorkloadRelease.load
    elif random.random() < 0.8:
        read = random.choice((Release.load, Release.verify))
    read(path)


_SAVED_READERS: list[Callable[[Path], Any]] = [
    *(Release.load, Release.verify, WorkloadRelease.load, load_strategy, read_schema),
    MeanRelease.load,
]


def _stream(random: Random) -> None:
    path = _written("in.npy", drawn_file(random, ".npy")[1])
    Path("out.npy").unlink(missing_ok=True)
    add_noise_to_npy(path, "out.npy", 1.0, ReleaseKey.generate())


_READERS = [*[_read_matrix] * 4, *[_read_records] * 3, *[_read_saved] * 3, _stream]


def _command(random: Random) -> list[str]:
    """Write files and return a command that reads them."""
    suffix, content = drawn_file(random)
    source = str(_written(f"in{suffix}", content))
    match random.randrange(8):
        case 0 | 1:
            bounds = random.choice(
                (["--sensitivity", "1"], ["--box", "1,1"], ["--row-bounds", "1"])
            )
            options = ["--header"] * (random.random() < 0.3) + ["--index"] * (random.random() < 0.3)
            target = f"out{random.choice(('.npy', '.csv', suffix))}"
            return ["release", source, target, *bounds, *options, *_PROMISE]
        case 2:
            np.save("fine.npy", np.ones((2, 2)))
            option = random.choice(("--box", "--row-bounds"))
            return ["release", "fine.npy", "out.npy", option, source, *_PROMISE]
        case 3:
            names = "0,1" if suffix == ".npy" else random.choice(("a,b", "b", "a"))
            asked = random.choice(("sum", "gram", "clipped"))
            return ["query", asked, source, "out.csv", "--columns", names, "--norm", "1", *_PROMISE]
        case 4:
            name = "0" if suffix == ".npy" else "a"
            by = random.choice((["--bins", f"{name}=0,1,9"], ["--categories", f"{name}=1,x"]))
            return ["query", "histogram", source, "out.csv", *by, *_PROMISE]
        case 5 | 6:
            return _workload(random, source)
        case _:
            return _verify(random)


def _workload(random: Random, source: str) -> list[str]:
    best, statement = saved_files()["strategy0.npz"]
    _written("best.npz", best)
    _written("best.npz.json", statement)
    np.save("fine.npy", np.ones((3, 1)))
    match random.randrange(3):
        case 0:
            asked = ["workload", "answer", source, "out.npz", "--workload", "prefix:3"]
            records = ["--records"] * (random.random() < 0.3)
            return [*asked, "--strategy", "best.npz", *records, *_PROMISE]
        case 1:
            asked = ["workload", "answer", "fine.npy", "out.npz", "--workload", f'"{source}"']
            return [*asked, "--strategy", "best.npz", *_PROMISE]
        case _:
            name, content, stated = altered_save(random)
            statement_path(_written(name, content)).write_bytes(stated)
            asked = ["workload", "answer", "fine.npy", "out.npz", "--workload", "prefix:3"]
            return [*asked, "--strategy", name, *_PROMISE]


def _verify(random: Random) -> list[str]:
    name, content, statement = altered_save(random)
    statement_path(_written(name, content)).write_bytes(statement)
    if name.startswith("workload") and random.random() < 0.5:
        return ["workload", "export", name, "answers.csv", "--force"]
    return ["verify", name]


def _defect(random: Random) -> str:
    """Return what went wrong in a case, or nothing."""
    if random.randrange(_READERS_PER_COMMAND + 1):
        try:
            random.choice(_READERS)(random)
        except MatrixDPError:
            return ""
        except Exception as error:  # noqa: BLE001 (what this test looks for)
            return repr(error)
        return ""
    arguments = _command(random)
    if random.random() < 0.3:
        position = random.randrange(1, len(arguments) + 1)
        arguments[position : position + random.randrange(2)] = [random.choice(ODD_WORDS)]
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = main(arguments)
    return f"{' '.join(arguments)}: {said.getvalue()}" if code == DEFECT else ""


def defects(seed: str, numbers: range) -> Iterator[str]:
    """Yield the cases of a seed that end in anything but an answer or a named error."""
    for number in numbers:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = _defect(Random(f"{seed}/{number}"))  # noqa: S311
        if found:
            yield f"seed {seed}, case {number}: {found[:300]}"


def test_some_files() -> None:
    assert list(defects("every run", range(_EVERY_RUN))) == []


@pytest.mark.thorough
@pytest.mark.parametrize("part", range(_PARTS))
def test_many_files(part: int) -> None:
    # The seed is in the head of pytest's report; set the variable to draw the same files again.
    numbers = range(part * _CASES // _PARTS, (part + 1) * _CASES // _PARTS)
    assert list(defects(os.environ["MATRIXDP_FUZZ_SEED"], numbers)) == []
