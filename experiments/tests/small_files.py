"""Small files in the formats of the data sets, and pickles as Python 2 wrote them."""

import gzip
import io
import json
import lzma
import struct
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

PERSON = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, "
    "2174, 0, 40, United-States, <=50K"
)
RICH_PERSON = (
    "52, ?, 2000000, HS-grad, 9, Married-civ-spouse, ?, Husband, Black, Female, 0, 99999, 99, ?, "
    ">50K"
)


def image_arrays(train: int, test: int, shape: tuple[int, ...]) -> dict[str, NDArray[np.uint8]]:
    generator = np.random.default_rng(4)
    arrays = {}
    for part, count in (("train", train), ("test", test)):
        arrays[f"x_{part}"] = generator.integers(0, 256, (count, *shape), dtype=np.uint8)
        arrays[f"y_{part}"] = generator.integers(0, 10, count, dtype=np.uint8)
    return arrays


def reviews(each: int) -> list[dict[str, Any]]:
    return [
        {"split": split, "label": label, "id": number, "rating": 7, "text": f"{split} {number} é"}
        for split in ("train", "test")
        for label in (1, 0)
        for number in range(each)
    ]


def write_reviews(path: Path, found: list[dict[str, Any]]) -> None:
    with lzma.open(path, "wt", encoding="utf-8") as lines:
        lines.writelines(json.dumps(review) + "\n" for review in found)


def idx(array: NDArray[np.uint8]) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return gzip.compress(header + array.tobytes())


def tar(members: Mapping[str, bytes]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return content.getvalue()


def cifar_batch(images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> bytes:
    planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    return np.concatenate([labels[:, np.newaxis], planes], axis=1).tobytes()


# Pickles of Python 2, written by hand: Python 3 would use other names for the same things.


def pickled(value: bytes) -> bytes:
    return b"\x80\x02" + value + b"."


def _text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return b"T" + struct.pack("<i", len(data)) + data


def _whole(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def array_opcodes(array: NDArray[Any], code: str | None = None) -> bytes:
    """Return what makes an array: numpy's function, its type, and its bytes as text."""
    kind = code or array.dtype.str[1:]
    dtype = (
        b"cnumpy\ndtype\n(" + _text(kind) + _whole(0) + _whole(1) + b"tR"
        b"(" + _whole(3) + _text("<") + b"NNN" + 2 * _whole(-1) + _whole(0) + b"tb"
    )
    shape = b"(" + b"".join(_whole(length) for length in array.shape) + b"t"
    return (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(" + _whole(0) + b"t"
        + _text("b") + b"tR(" + _whole(1) + shape + dtype + b"\x89" + _text(array.tobytes()) + b"tb"
    )  # fmt: skip


def csr_opcodes(matrix: Any) -> bytes:
    """Return what makes a sparse matrix: an empty one, then its attributes."""
    shape = b"(" + b"".join(_whole(length) for length in matrix.shape) + b"t"
    parts = b"".join(
        _text(name) + array_opcodes(getattr(matrix, name)) for name in ("data", "indices", "indptr")
    )
    new = b"ccopy_reg\n_reconstructor\n(cscipy.sparse.csr\ncsr_matrix\nc__builtin__\nobject\nNtR"
    return new + b"}(" + _text("_shape") + shape + parts + b"ub"


def graph_opcodes(graph: Mapping[int, list[int]]) -> bytes:
    """Return what makes a defaultdict of lists."""
    items = b"".join(
        _whole(node) + b"](" + b"".join(_whole(other) for other in others) + b"e"
        for node, others in graph.items()
    )
    return b"ccollections\ndefaultdict\n(c__builtin__\nlist\ntR(" + items + b"u"
