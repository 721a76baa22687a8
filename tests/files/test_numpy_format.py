"""Files that are not plain matrices of floats are refused, whatever their headers say."""

from pathlib import Path

import numpy as np
import pytest

from matrixdp.errors import FileFormatError
from matrixdp.files.publishing.npy_stream import add_noise_to_npy
from matrixdp.noise import ReleaseKey

VALUE = np.random.default_rng(75).uniform(-9.0, 9.0, (20, 31))


@pytest.fixture
def paths(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "value.npy", tmp_path / "noisy.npy"


HEADER = "{{'descr': '<f8', 'fortran_order': False, 'shape': {}, }}"


def with_header(text: str, size: int = 0) -> bytes:
    encoded = text.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(encoded).to_bytes(2, "little") + encoded + bytes(size)


def damaged(source: Path, kind: str) -> None:
    np.save(source, VALUE)
    content = source.read_bytes()
    changed = {
        "empty": b"",
        "foreign": b"a,b,c\n1,2,3\n",
        "half a header": content[:50],
        "cut short": content[:-1],
        "something after the end": content + b"\0",
        "wrong magic": b"X" + content[1:],
        "version 3": content[:6] + b"\x03" + content[7:],
        "damaged header": content[:20] + b"\xff" * 20 + content[40:],
        "open bracket": with_header("{'descr': '<f8', 'shape': ("),
        "open text": with_header("'''abc"),
        "many brackets": with_header("(" * 3000),
        "wrong indent": with_header("{}\n  1\n 2"),
        "unhashable": with_header("{[]: 1}"),
        "negative shape": with_header(HEADER.format("(-1, -1)"), 8),
        "negative axis": with_header(HEADER.format("(-1, 0)")),
        "true for a length": with_header(HEADER.format("(True, 2)"), 16),
        "endless axis": with_header(HEADER.format(f"({'9' * 4000}, {'9' * 4000})")),
        "many axes": with_header(HEADER.format("(" + "9999999999," * 800 + ")")),
    }
    source.write_bytes(changed[kind])


@pytest.mark.parametrize(
    "kind",
    [
        *("empty", "foreign", "half a header", "cut short", "something after the end"),
        *("wrong magic", "version 3", "damaged header", "open bracket", "open text"),
        *("many brackets", "wrong indent", "unhashable", "negative shape", "negative axis"),
        *("true for a length", "endless axis", "many axes"),
    ],
)
@pytest.mark.filterwarnings("ignore:Reading .*additional header parsing:UserWarning")
def test_other_files_are_refused(paths: tuple[Path, Path], kind: str) -> None:
    source, target = paths
    damaged(source, kind)
    key = ReleaseKey.generate()
    with pytest.raises(FileFormatError, match=r"value\.npy"):
        add_noise_to_npy(source, target, 1.0, key)
    assert repr(key) == "ReleaseKey(unbound)"
    assert list(source.parent.iterdir()) == [source]


@pytest.mark.parametrize("dtype", ["int64", ">f8", "complex128", "float16", "U3"])
def test_other_types_are_refused(paths: tuple[Path, Path], dtype: str) -> None:
    np.save(paths[0], np.zeros((2, 2), dtype=dtype))
    with pytest.raises(FileFormatError, match=r"must be float64|real numbers, such as float64"):
        add_noise_to_npy(*paths, 1.0, ReleaseKey.generate())
