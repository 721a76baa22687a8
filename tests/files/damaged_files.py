"""Files that a user might hand in by mistake or malice, drawn at random from valid ones.

A case is drawn from a seed and a number alone, so that a failure can be repeated.
"""

import gzip
import io
import json
import struct
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from random import Random
from typing import Any

import numpy as np

__all__ = ["altered_json", "drawn_file", "torn"]

_DTYPES = (
    *("<f8", "<f8", "<f8", "<f4", ">f8", "<f2", "<i8", "<u8", "|i1", "|b1", "<c16", "<U3", "|S2"),
    *("<M8[s]", "|V4", [("a", "<f8"), ("b", "<i4")]),
)
_NUMBERS = (0, 1, -1, 0.5, 1e-300, 1e300, 2**53 + 1, 2**63, 10**30, 10**400)
_CELLS = (
    *(
        "1",
        "2.5",
        "-3",
        "0.1",
        "1e5",
        "1e999",
        "nan",
        "",
        " 4 ",
        "x",
        "NA",
        "1_0",
        "1,5",
        '"',
        '"6"',
    ),
    *("\0", "\ufeff", "é", "\n", '"7', "7\t8", "9;1", "١", "1e9999999999999999999", "0x10"),
)
_HEADER_PIECES = (
    *(
        b"(",
        b")",
        b"[" * 300,
        b"'descr'",
        b"'shape'",
        b"True",
        b"None",
        b"-1",
        b"{",
        b"}",
        b"'",
        b",",
    ),
    *(b"99999999999999999999", b"<f8", b"|O", b"1e3", b"\\", b"\n", b"\0", b"L", b"(" * 5000),
)


def torn(content: bytes, random: Random) -> bytes:
    """Return content with bytes changed, cut off, repeated, moved or put in."""
    data = bytearray(content)
    for _ in range(random.choice((1, 1, 1, 2, 5, 20))):
        start = random.randrange(len(data) + 1)
        length = random.choice((1, 2, 4, 8, 64))
        match random.randrange(6):
            case 0 if data:
                data[start % len(data)] = random.randrange(256)
            case 1 if data:
                data[start % len(data)] ^= 1 << random.randrange(8)
            case 2 if random.random() < 0.3:
                del data[start:]
            case 3:
                del data[start : start + length]
            case 4:
                other = random.randrange(len(data) + 1)
                data[start:start] = data[other : other + length]
            case _:
                edge = struct.pack("<q", random.choice((0, -1, 1, 2**31 - 1, 2**63 - 1, 2**40)))
                data[start : start + 8] = random.choice((edge, edge[:4], random.randbytes(length)))
    return bytes(data)


def _shape(random: Random) -> tuple[int, ...]:
    axes = random.choice((0, 1, 2, 2, 2, 2, 3))
    return tuple(random.choice((0, 1, 2, 3, 4)) for _ in range(axes))


def _array(random: Random) -> Any:
    shape = _shape(random)
    if random.random() < 0.05:
        return np.full(shape, None)
    if random.random() < 0.5:
        return np.full(random.choice((shape, (4, 2), (4, 1))), random.choice((1.0, 2, 0.5, np.nan)))
    dtype = np.dtype(random.choice(_DTYPES))
    return np.zeros(shape, dtype, order=random.choice("CF"))  # type: ignore[call-overload]


def _npy(random: Random) -> bytes:
    file = io.BytesIO()
    np.save(file, _array(random), allow_pickle=True)
    content = file.getvalue()
    if random.random() < 0.4:
        return content
    text = content[10:128] if len(content) >= 128 else content[10:]
    if random.random() < 0.5:
        shape = tuple(
            random.choice((*_NUMBERS, 2**31, 2**40, True)) for _ in range(random.randrange(4))
        )
        described = {
            "descr": random.choice((*_DTYPES, "|O", "<f16", 3, None, [("a", "|O")], "<U99999999")),
            "fortran_order": random.choice((True, False, False, 0)),
            "shape": random.choice((shape, shape, 4, None, "ab")),
        }
        if random.random() < 0.1:
            described.pop(random.choice(sorted(described)))
        header = repr(described).encode()
    else:
        start = random.randrange(len(text))
        header = text[:start] + random.choice(_HEADER_PIECES) + text[start + random.randrange(9) :]
    version = random.choice((1, 1, 2, 3, 9))
    length = len(header) + random.choice((0, 0, 0, 1, -1, 60_000))
    size = struct.pack("<H" if version == 1 else "<I", max(0, min(length, 65_535)))
    return b"\x93NUMPY" + bytes((version, 0)) + size + header + content[128:]


def _npz(random: Random) -> bytes:
    file = io.BytesIO()
    packing = random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA))
    with zipfile.ZipFile(file, "w", packing) as archive:
        for _ in range(random.choice((0, 1, 1, 1, 1, 2))):
            name = random.choice(("value.npy", "value.npy", "x", "../x.npy", "é.npy", ".npy", "a/"))
            archive.writestr(name, _npy(random) if random.random() < 0.9 else random.randbytes(40))
    return file.getvalue()


def _text(random: Random) -> bytes:
    sign = random.choice((",", ",", ",", "\t", ";"))
    width = random.choice((1, 2, 2, 2, 3))
    usual = random.choice((1, 0.9, 0.5))
    lines = [sign.join(("a", "b", "c")[:width])] if random.random() < 0.5 else []
    for _ in range(random.choice((0, 1, 4, 4, 9))):
        cells = [
            _CELLS[random.randrange(4)] if random.random() < usual else random.choice(_CELLS)
            for _ in range(width if random.random() < 0.97 else random.randrange(5))
        ]
        lines.append(sign.join(cells))
    text = random.choice(("\n", "\n", "\r\n", "\r")).join([*lines, ""])
    if random.random() < 0.02:
        text += '"' + 200_000 * "1"
    return text.encode(random.choice(("utf-8",) * 8 + ("utf-8-sig", "utf-16", "utf-16-le")))


def _value(random: Random, depth: int = 0) -> Any:
    """Return anything that JSON can hold."""
    kind = random.randrange(9 if depth < 3 else 6)
    plain: tuple[Any, ...] = ("", "a", "b", "c", "range", "\0", "é", None, True, False, "x" * 999)
    if kind < 4:
        return random.choice(plain)
    if kind < 6:
        return random.choice(_NUMBERS[:-1])
    if kind == 6:
        return [_value(random, depth + 1) for _ in range(random.randrange(4))]
    names = ("kind", "start", "stop", "step", "name", "field_name", "index_columns", "columns")
    return {random.choice(names): _value(random, depth + 1) for _ in range(random.randrange(6))}


def _pandas(random: Random) -> bytes:
    """Return metadata such as pandas writes, or nearly so."""
    levels: Any = random.choice((["a"], ["b", "a"], ["a", "a"], [{"kind": "range"}], None))
    if random.random() < 0.5:
        levels = _value(random)
    if random.random() < 0.05:
        levels = (
            random.choice(
                ("a", "z", [], {"kind": "range"}),
            )
            and ["a", "z"] * 50_000
        )
    if random.random() < 0.3:
        levels = [{"kind": "range", **{end: _value(random) for end in ("start", "stop", "step")}}]
    described = {"index_columns": levels, "columns": _value(random)}
    if random.random() < 0.6:
        described["columns"] = [
            {"field_name": _value(random), "name": _value(random)} for _ in range(3)
        ]
    text = json.dumps(random.choice((described, described, described, _value(random)))).encode()
    return torn(text, random) if random.random() < 0.1 else text


def _column(random: Random, rows: int) -> Any:
    import pyarrow as pa  # type: ignore[import-untyped]  # noqa: PLC0415

    kind = random.randrange(16)
    if kind < 6:
        return pa.array([float(number) for number in range(rows)])
    if kind == 6:
        # Text that is not UTF-8, which pyarrow writes without a look.
        ends = pa.py_buffer(struct.pack(f"<{rows + 1}i", *range(rows + 1)))
        letters = pa.py_buffer(random.randbytes(rows))
        return pa.StringArray.from_buffers(rows, ends, letters)
    values: list[tuple[list[Any], Any]] = [
        (["x"] * rows, pa.string()),
        ([random.choice(("x", None)) for _ in range(rows)], pa.large_string()),
        ([b"\xff"] * rows, pa.binary()),
        ([random.choice((1, 2**62, -(2**63))) for _ in range(rows)], pa.int64()),
        ([2**64 - 1] * rows, pa.uint64()),
        ([random.choice((1.0, None, float("nan"))) for _ in range(rows)], pa.float32()),
        ([np.float16(1)] * rows, pa.float16()),
        ([True] * rows, pa.bool_()),
        ([None] * rows, pa.null()),
        ([[1.0]] * rows, pa.list_(pa.float64())),
        ([{"z": 1}] * rows, pa.struct([("z", pa.int32())])),
        ([10**17] * rows, pa.timestamp("us", tz="Nowhere/Land")),
        ([1] * rows, pa.duration("s")),
        ([3] * rows, pa.date32()),
    ]
    chosen, of_type = random.choice(values)
    made = pa.array(chosen, type=of_type)
    return made.dictionary_encode() if random.random() < 0.1 and kind == 15 else made


def _table(random: Random, suffix: str) -> bytes:
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import ipc, parquet  # noqa: PLC0415

    rows = random.choice((0, 1, 4, 4, 4, 9))
    names = [
        random.choice(("a", "b", "b", "c", "0", "", "é"))
        for _ in range(random.choice((0, 1, 2, 2, 3)))
    ]
    if random.random() < 0.7:
        names = ["a", "b", "c"][: len(names)]
    table = pa.table([_column(random, rows) for _ in names], names=names)
    if random.random() < 0.5:
        key = random.choice((b"pandas", b"pandas", b"pandas", b"\xff"))
        table = table.replace_schema_metadata({key: _pandas(random)})
    file = io.BytesIO()
    if suffix == ".parquet":
        parquet.write_table(table, file, row_group_size=random.choice((2, 100)))
    else:
        packing = random.choice((None, None, "lz4", "zstd"))
        with ipc.new_file(
            file, table.schema, options=ipc.IpcWriteOptions(compression=packing)
        ) as writer:
            writer.write_table(table, max_chunksize=random.choice((2, 100)))
    return file.getvalue()


def _parquet(random: Random) -> bytes:
    return _table(random, ".parquet")


def _arrow(random: Random) -> bytes:
    return _table(random, ".arrow")


_MAKERS: dict[str, Callable[[Random], bytes]] = {
    ".npy": _npy,
    ".npz": _npz,
    ".csv": _text,
    ".tsv": _text,
    ".csv.gz": lambda random: gzip.compress(_text(random), mtime=0),
}
if find_spec("pyarrow") is not None:
    _MAKERS |= {".parquet": _parquet, ".arrow": _arrow}


def drawn_file(random: Random, suffix: str | None = None) -> tuple[str, bytes]:
    """Return the format and the content of a file: valid, odd, or damaged."""
    named = suffix or random.choice(sorted(_MAKERS))
    # Now and then a file of another format.
    held = named if random.random() < 0.98 else random.choice(sorted(_MAKERS))
    content = b""
    for _ in range(9):
        try:
            content = _MAKERS[held](random)
            break
        except (ValueError, TypeError, OSError, NotImplementedError, KeyError):
            continue  # what the writer of the format refuses
    return named, torn(content, random) if random.random() < 0.5 else content


def altered_json(content: bytes, random: Random) -> bytes:
    """Return a JSON text with some of its values changed, or with its bytes changed."""
    if random.random() < 0.2:
        return torn(content, random)
    tree = json.loads(content)
    for _ in range(random.choice((1, 1, 2, 4))):
        inner, key = _somewhere(tree, random)
        match random.randrange(6):
            case 0:
                del inner[key]
            case 1 if isinstance(inner, dict):
                inner[random.choice(("kind", "extra", "é"))] = _value(random)
            case 2 | 3 if isinstance(inner[key], int | float):
                inner[key] = random.choice((*_NUMBERS, float("nan"), float("inf"), -1e400, 1e-320))
            case 4 if isinstance(inner[key], list):
                inner[key] = inner[key] * random.choice((0, 2, 3, 1000))
            case _:
                inner[key] = _value(random)
    text = json.dumps(tree, indent=random.choice((None, 2)))
    if random.random() < 0.02:
        text = text.replace(":", ":" + "[" * 5000, 1)
    return text.encode()


def _somewhere(tree: Any, random: Random) -> tuple[Any, Any]:
    """Return a container within a tree, and one of its keys or indices."""
    inner: Any = {"": tree}
    key: Any = ""
    while isinstance(inner[key], dict | list) and inner[key] and random.random() < 0.85:
        inner = inner[key]
        key = random.choice(sorted(inner) if isinstance(inner, dict) else range(len(inner)))
    return (inner, key) if key != "" else (tree, random.choice(sorted(tree)))
