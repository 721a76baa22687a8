"""Saved files that hold more than their statement declares are refused, signed again or not."""

import base64
import gzip
import hashlib
import io
import json
import re
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from matrixdp import IMGM, Budget, FrobeniusBall, MatrixMechanism, Release
from matrixdp.errors import FileFormatError, InvalidParameterError
from matrixdp.files.formats.suffixes import FORMATS
from matrixdp.files.publishing.streamed_release import release_npy
from matrixdp.mechanisms.workload_release import WorkloadRelease
from matrixdp.workloads import Prefix

BUDGET = Budget(1.0, 1e-5)
MECHANISM = IMGM(FrobeniusBall(1.0, "replace"), BUDGET)
SECRET = b"Ada has measles"


def sign_again(target: Path) -> None:
    beside = target.with_name(target.name + ".json")
    statement = json.loads(beside.read_text())
    statement["file"]["sha256"] = hashlib.sha256(target.read_bytes()).hexdigest()
    beside.write_text(json.dumps(statement))


def refused(target: Path) -> None:
    sign_again(target)
    for read in (Release.load, Release.verify):
        with pytest.raises(FileFormatError):
            read(target)


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., Path]:
    def save(suffix: str, dtype: type = np.float64, shape: tuple[int, int] = (3, 2)) -> Path:
        if suffix in {".parquet", ".arrow"}:
            pytest.importorskip("pyarrow")
        target = tmp_path / f"out{suffix}"
        MECHANISM.release(np.ones(shape, dtype)).save(target, force=True)
        return target

    return save


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("suffix", FORMATS)
def test_honest_files_pass(suffix: str, dtype: type, saved: Callable[..., Path]) -> None:
    for shape in ((1, 1), (3, 2), (700, 3)):
        target = saved(suffix, dtype, shape)
        sign_again(target)
        assert Release.verify(target) == Release.load(target).guarantee


@pytest.mark.parametrize("suffix", [".csv", ".tsv.gz", ".parquet", ".arrow"])
@pytest.mark.parametrize("columns", [["a", "b"], ["0", "1"], ['x,"y"', "new\r\nline"]])
def test_honest_labels_pass(suffix: str, columns: list[str], tmp_path: Path) -> None:
    frames = pytest.importorskip("pandas")
    frame = frames.DataFrame(np.ones((2, 2)), columns=columns, index=["r,1", ""])
    for number, each in enumerate((frame, frame.rename_axis("who"))):
        target = tmp_path / f"{number}{suffix}"
        MECHANISM.release(each).save(target)
        assert Release.verify(target) == MECHANISM.guarantee


def test_columns_in_fortran_order_pass(tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", np.asfortranarray(np.ones((4, 3))))
    release_npy(MECHANISM, tmp_path / "in.npy", tmp_path / "out.npy")
    assert Release.verify(tmp_path / "out.npy") == MECHANISM.guarantee


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(b"\r\n", b"0000000000000000017\r\n", 1),
        lambda text: text.replace(b"\r\n", b"00\r\n", 1),
        lambda text: text.replace(b"\r\n", b" \r\n", 1),
        lambda text: text.replace(b"\r\n", b"\n"),
        lambda text: b"+" + text if text[:1] != b"-" else text.replace(b"-", b"-0", 1),
        lambda text: b"\xef\xbb\xbf" + text,
        lambda text: text + b"\r\n",
    ],
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_digits_and_signs_beyond_the_shortest(
    change: Callable[[bytes], bytes], dtype: type, saved: Callable[..., Path]
) -> None:
    target = saved(".csv", dtype)
    target.write_bytes(change(target.read_bytes()))
    refused(target)


@pytest.mark.parametrize(
    "packed",
    [
        lambda text: gzip.compress(text) + gzip.compress(b""),
        lambda text: gzip.compress(text, mtime=1_700_000_000),
        lambda text: gzip.compress(text, mtime=0) + b"\0" * 7,
    ],
)
def test_what_a_compressed_file_can_hide(
    packed: Callable[[bytes], bytes], saved: Callable[..., Path]
) -> None:
    target = saved(".csv.gz")
    target.write_bytes(packed(gzip.decompress(target.read_bytes())))
    refused(target)


def test_a_header_of_npy_with_more_space(saved: Callable[..., Path]) -> None:
    target = saved(".npy")
    content = target.read_bytes()
    wide = content[:8] + (246).to_bytes(2, "little") + content[10:127] + b" " * 128 + content[127:]
    target.write_bytes(wide)
    assert np.load(target).shape == (3, 2)
    refused(target)


def archived(arrays: dict[str, np.ndarray], hide: str) -> bytes:
    content = io.BytesIO()
    if hide == "before":
        content.write(SECRET)
    with zipfile.ZipFile(content, "a") as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.save(member, array)
            info = zipfile.ZipInfo(f"{name}.npy")
            if hide == "member comment":
                info.comment = SECRET
            if hide == "date":
                info.date_time = (2024, 5, 6, 7, 8, 10)
            if hide == "extra":
                info.extra = b"\xfe\xca\x0f\0" + SECRET
            with archive.open(info, "w", force_zip64=True) as file:
                file.write(member.getvalue() + (SECRET if hide == "array" else b""))
        if hide == "comment":
            archive.comment = SECRET
        if hide == "member":
            archive.writestr("note.txt", SECRET)
    return content.getvalue()


HIDDEN = ["before", "member comment", "date", "extra", "array", "comment", "member"]


@pytest.mark.parametrize("hide", HIDDEN)
def test_what_an_archive_can_hide(hide: str, saved: Callable[..., Path], tmp_path: Path) -> None:
    target = saved(".npz")
    workload = tmp_path / "workload.npz"
    MatrixMechanism(Prefix(4), BUDGET, neighbouring="replace").release([1, 2, 3, 4]).save(workload)
    for path in (target, workload):
        with np.load(path) as archive:
            arrays = dict(archive)
        path.write_bytes(archived(arrays, "nothing"))
        sign_again(path)
        assert (Release if path == target else WorkloadRelease).verify(path) is not None
        path.write_bytes(archived(arrays, hide))
    refused(target)
    sign_again(workload)
    with pytest.raises(FileFormatError):
        WorkloadRelease.load(workload)


def by_another_version(content: bytes) -> bytes:
    """Return a Parquet file that names another version of pyarrow."""
    made = re.search(rb"(?<=arrow version )[0-9.]+", content)
    assert made is not None
    return content.replace(made[0], made[0][:-1] + (b"1" if made[0][-1:] != b"1" else b"2"))


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
@pytest.mark.filterwarnings("ignore:.*pandas frame is left out")
@pytest.mark.parametrize("hide", ["metadata", "field", "index", "names", "statistics"])
def test_what_a_file_of_columns_can_hide(
    suffix: str, hide: str, saved: Callable[..., Path]
) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    target = saved(suffix)
    if suffix == ".parquet":
        table = parquet.read_table(target)
    else:
        with arrow.ipc.open_file(target) as reader:
            table = reader.read_all()
    if hide == "metadata":
        table = table.replace_schema_metadata({b"note": SECRET})
    if hide == "field":
        field = table.schema.field(0).with_metadata({b"note": SECRET})
        table = table.cast(arrow.schema([field, table.schema.field(1)]))
    if hide == "index":
        table = table.append_column("who", arrow.array(["Ada", "Bob", "Eve"]))
        stated = json.dumps({"index_columns": ["who"], "columns": []})
        table = table.replace_schema_metadata({b"pandas": stated.encode()})
    if hide == "names":
        table = table.rename_columns(["Ada", "Bob"])
    if suffix == ".parquet":
        parquet.write_table(
            table, target, use_dictionary=False, write_statistics=hide == "statistics"
        )
    else:
        with arrow.ipc.new_file(target, table.schema) as writer:
            for batch in table.to_batches():
                extra = {b"note": SECRET} if hide == "statistics" else None
                writer.write_batch(batch, custom_metadata=extra)
    refused(target)
    if suffix == ".parquet":
        target.write_bytes(by_another_version(target.read_bytes()))
        refused(target)


def test_unknown_flags_of_gzip_are_refused(saved: Callable[..., Path]) -> None:
    # Python's gzip ignores them, and zlib raises an error of its own.
    target = saved(".csv.gz")
    content = bytearray(target.read_bytes())
    content[3] |= 0xE0
    target.write_bytes(content)
    refused(target)


@pytest.mark.parametrize(
    ("part", "offsets"),
    [
        (b"PK\x03\x04", [4, 10, 12, 14, 18, 22, 43, 51]),  # of the member: times, sums, sizes
        (b"PK\x01\x02", [4, 34, 36, 38, 40]),  # of the list of members: attributes
        (b"PK\x05\x06", [4, 6, 8, 10]),  # of its end: numbers of disks
    ],
)
def test_bytes_of_an_archive_that_no_reader_looks_at(
    part: bytes, offsets: list[int], saved: Callable[..., Path]
) -> None:
    target = saved(".npz")
    content = target.read_bytes()
    for offset in offsets:
        at = content.index(part) + offset
        target.write_bytes(content[:at] + b"AB" + content[at + 2 :])
        refused(target)


def test_the_system_that_wrote_an_archive_does_not_matter(saved: Callable[..., Path]) -> None:
    target = saved(".npz")
    content = bytearray(target.read_bytes())
    for system in (0, 3, 77):
        content[content.index(b"PK\x01\x02") + 5] = system
        target.write_bytes(content)
        sign_again(target)
        if system in (0, 3):
            assert Release.verify(target) == MECHANISM.guarantee
    refused(target)


def test_bytes_between_the_columns_of_an_arrow_file(saved: Callable[..., Path]) -> None:
    target = saved(".arrow")
    content = target.read_bytes()
    gaps = [
        offset for offset in range(len(content) - 8) if content[offset : offset + 8] == bytes(8)
    ]
    assert gaps
    for offset in gaps:
        target.write_bytes(content[:offset] + SECRET[:8] + content[offset + 8 :])
        refused(target)


def test_digits_in_the_name_of_the_maker_of_a_parquet_file(saved: Callable[..., Path]) -> None:
    target = saved(".parquet")
    content = target.read_bytes()
    made = re.search(rb"parquet-cpp-arrow version [0-9.]+", content)
    assert made is not None
    said = b"parquet-cpp-arrow version 987654321.5.7"
    # Text follows its length, and the footer is followed by its own.
    start = content[: made.start() - 1] + bytes([len(said)]) + said + content[made.end() : -8]
    footer = struct.unpack("<i", content[-8:-4])[0] + len(said) - len(made[0])
    target.write_bytes(start + struct.pack("<i", footer) + content[-4:])
    refused(target)


def test_a_parquet_file_of_another_version_of_pyarrow(saved: Callable[..., Path]) -> None:
    target = saved(".parquet")
    schema = pytest.importorskip("pyarrow.parquet").read_metadata(target).metadata[b"ARROW:schema"]
    content = by_another_version(target.read_bytes())
    target.write_bytes(content)
    sign_again(target)
    assert Release.verify(target) == MECHANISM.guarantee
    footer = len(content) - 8 - struct.unpack("<i", content[-8:-4])[0]
    target.write_bytes(content[:footer] + SECRET + content[footer:])
    refused(target)
    # The name of a column, which is in the schema of Parquet and in that of Arrow.
    target.write_bytes(content.replace(b"%\x02\x18\x010", b"%\x02\x18\x01A"))
    refused(target)
    packed = base64.b64decode(schema)
    for offset in (offset for offset, byte in enumerate(packed) if byte == 0):
        hidden = base64.b64encode(packed[:offset] + SECRET[:1] + packed[offset + 1 :])
        target.write_bytes(content.replace(schema, hidden))
        refused(target)


@pytest.mark.parametrize(
    ("said", "hidden"),
    [
        (b'"delta": 0.00001', b'"delta": 0.00001000000000000000000123'),
        (b'"delta": 0.00001', b'"delta": 0.5, "delta": 0.00001'),
        (b'"bound": 1.0', b'"bound": 1.00000000000000000017'),
        (b'"bound": 1.0', b'"bound": 9007199254740993'),
        (b'"bound": 1.0', b'"bound": 0e99999999999999999999'),
        (b'"records": 1', b'"records": 1, "records": 1'),
    ],
)
def test_what_the_text_of_a_statement_can_hide(
    said: bytes, hidden: bytes, saved: Callable[..., Path]
) -> None:
    target = saved(".npy")
    beside = target.with_name(target.name + ".json")
    content = beside.read_bytes()
    assert said in content
    beside.write_bytes(content.replace(said, hidden, 1))
    for read in (Release.load, Release.verify):
        with pytest.raises(FileFormatError):
            read(target)


PAYMENT = {"ledger": "a" * 32, "account": "trial/site", "sequence": 1, "digest": "b" * 64}


def changed_statement(target: Path, *fields: str, text: object) -> None:
    beside = target.with_name(target.name + ".json")
    statement = json.loads(beside.read_text())
    statement["payment"] = dict(PAYMENT)
    *path, last = fields or ["payment"]
    part = statement
    for field in path:
        part = part[field]
    part[last] = text
    beside.write_text(json.dumps(statement))


@pytest.mark.parametrize(
    ("fields", "texts"),
    [
        (("mechanism",), [SECRET.decode(), "", "IMGM\n", "I" * 101]),
        (("file", "name"), ["", "a" * 256, "measles/Ada"]),
        (("payment", "ledger"), [SECRET.decode(), "A" * 32, "a" * 33]),
        (("payment", "account"), ["\x1b[2J", "a" * 201, SECRET.decode()]),
        (("payment", "digest"), [SECRET.decode(), "b" * 64 + "\n"]),
    ],
)
def test_texts_of_a_statement_have_no_room_for_data(
    fields: tuple[str, ...], texts: list[str], saved: Callable[..., Path], tmp_path: Path
) -> None:
    target, measured = saved(".npy"), tmp_path / "out.npz"
    changed_statement(target, text=PAYMENT)
    assert Release.verify(target) == MECHANISM.guarantee
    MatrixMechanism(Prefix(4), BUDGET, neighbouring="replace").release([1, 2, 3, 4]).save(measured)
    for text in texts:
        for path, kind in ((target, Release), (measured, WorkloadRelease)):
            changed_statement(path, *fields, text=text)
            with pytest.raises(FileFormatError, match=fields[-1]):
                kind.verify(path)


def test_a_release_names_the_class_of_its_mechanism() -> None:
    release = MECHANISM.release(np.eye(2))
    for name in (SECRET.decode(), "", "I" * 101):
        with pytest.raises(InvalidParameterError, match="name of a class"):
            Release(
                value=release.value,
                sensitivity=release.sensitivity,
                covariance=release.covariance,
                guarantee=release.guarantee,
                mechanism=name,
            )
