"""The file that counts steps: torn lines, zeros, other runs and what was not written by it."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

from matrixdp.errors import FileFormatError, InvalidParameterError, StorageError
from matrixdp.files.publishing.atomic import write_all
from matrixdp.training import spending
from matrixdp.training.spending import SpendingFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.spent"


def opened(path: Path) -> SpendingFile:
    return SpendingFile(path, plan="p", mode="fast", randomness="secure")


def test_steps_are_counted(path: Path) -> None:
    counter = opened(path)
    assert counter.spent == 0
    for number in (1, 2, 3):
        counter.spend()
        assert counter.spent == opened(path).spent == number
    assert opened(path).run == counter.run
    header, *steps = path.read_text().splitlines()
    assert json.loads(header)["format"] == "matrixdp-spending-2"
    assert [json.loads(line) for line in steps] == [{"step": 1}, {"step": 2}, {"step": 3}]


@pytest.mark.parametrize("bytes_left", range(1, len('{"step": 3}\n')))
def test_a_torn_line_counts(path: Path, bytes_left: int) -> None:
    counter = opened(path)
    for _ in range(3):
        counter.spend()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) - len('{"step": 3}\n') + bytes_left])
    torn = opened(path)
    assert torn.spent == 3
    assert path.read_bytes() == whole
    torn.spend()
    assert opened(path).spent == 4


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'{"step": 2}\n', b""),
        (b'{"step": 2}\n', b'{"step": 1}\n'),
        (b'{"step": 3}\n', b'{"sttp'),
        (b'{"step": 3}\n', b'{"step": 3}\n\n'),
        (b'{"step": 1}', b'{"step":1}'),
        (b"matrixdp-spending-2", b"matrixdp-spending-9"),
        (b'"plan"', b'"plans"'),
    ],
)
def test_a_changed_file_is_refused(path: Path, old: bytes, new: bytes) -> None:
    counter = opened(path)
    for _ in range(3):
        counter.spend()
    changed = path.read_bytes().replace(old, new)
    path.write_bytes(changed)
    with pytest.raises(FileFormatError, match="spending file"):
        opened(path)
    assert path.read_bytes() == changed


@pytest.mark.parametrize("content", [b"", b"\n", b"hello", b"{}\n", b"\xff\n"])
def test_another_file_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match="is not a spending file"):
        opened(path)


def test_a_file_of_another_version_stays_spent(path: Path) -> None:
    opened(path).spend()
    path.write_bytes(path.read_bytes().replace(b"spending-2", b"spending-1"))
    with pytest.raises(FileFormatError, match="of another version: the steps that it counts stay"):
        opened(path)


def test_another_plan_mode_or_seed_is_refused(path: Path) -> None:
    opened(path)
    for plan, mode, randomness in (
        ("q", "fast", "secure"),
        ("p", "exact", "secure"),
        ("p", "fast", "seed 1"),
    ):
        with pytest.raises(InvalidParameterError, match="belongs to another plan, mode or seed"):
            SpendingFile(path, plan=plan, mode=mode, randomness=randomness)


@pytest.mark.parametrize("plan", ["p", "q"])
def test_a_file_that_another_process_makes_meanwhile(
    path: Path, monkeypatch: pytest.MonkeyPatch, plan: str
) -> None:
    others = []

    def later(contents: Sequence[tuple[Path, bytes | Path]]) -> None:
        monkeypatch.setattr(spending, "write_all", write_all)
        others.append(SpendingFile(path, plan=plan, mode="fast", randomness="secure"))
        others[0].spend()
        write_all(contents)

    monkeypatch.setattr(spending, "write_all", later)
    if plan == "q":
        with pytest.raises(InvalidParameterError, match="belongs to another plan"):
            opened(path)
        return
    counter = opened(path)
    assert (counter.run, counter.spent) == (others[0].run, 1)
    counter.spend()
    with pytest.raises(StorageError, match="another one continues the run"):
        others[0].spend()


@pytest.mark.parametrize("written", range(len('{"step": 3}\n')))
def test_zeros_after_a_power_cut_count_as_one_step(path: Path, written: int) -> None:
    counter = opened(path)
    for _ in range(3):
        counter.spend()
    whole = path.read_bytes()
    start = len(whole) - len('{"step": 3}\n')
    for zeros in range(1, len(whole) - start - written + 1):
        path.write_bytes(whole[: start + written] + bytes(zeros))
        assert opened(path).spent == 3
        assert path.read_bytes() == whole
    path.write_bytes(whole[: start + written] + bytes(len(whole) - start - written + 1))
    with pytest.raises(FileFormatError, match="was changed"):
        opened(path)


def test_a_damaged_first_line(path: Path) -> None:
    opened(path)
    header = path.read_bytes()
    for size in (1, 20, 40, len(header) - 1):
        path.write_bytes(header[:size])
        with pytest.raises(FileFormatError, match="first line is damaged"):
            opened(path)
    path.write_bytes(header.replace(b"spending-2", b"spending-1"))
    with pytest.raises(FileFormatError, match="of another version"):
        opened(path)


def test_another_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counters = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        counters.append(opened(Path("run.spent")))
    counters[0].spend()
    assert opened(tmp_path / "a" / "run.spent").spent == 1
    assert opened(tmp_path / "b" / "run.spent").spent == 0


def test_the_file_of_another_run_in_its_place(path: Path) -> None:
    counter, other = opened(path), opened(path.with_name("other"))
    for one in (counter, other):
        one.spend()
    path.write_bytes(path.with_name("other").read_bytes())  # of the same size
    with pytest.raises(StorageError, match="not what this training left"):
        counter.spend()


def test_a_name_that_is_too_long(path: Path) -> None:
    with pytest.raises(StorageError, match="File name too long"):
        opened(path.with_name("a" * 300))


def test_only_one_training_continues_a_run(path: Path) -> None:
    first, second = opened(path), opened(path)
    first.spend()
    with pytest.raises(StorageError, match="another one continues the run"):
        second.spend()
    assert second.spent == 0
    first.spend()
    assert opened(path).spent == 2


def test_a_step_is_on_the_disk_before_it_is_drawn(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = opened(path)
    sizes: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda _: sizes.append(path.stat().st_size))
    counter.spend()
    assert sizes == [path.stat().st_size]


def test_an_interruption_while_counting(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = opened(path)
    counter.spend()
    written = spending._write

    def interrupted(file: BinaryIO, content: bytes) -> None:
        written(file, content)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(spending, "_write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            counter.spend()
    # The file counts the step, the object does not know: it counts no further.
    with pytest.raises(StorageError, match="writing was interrupted"):
        counter.spend()
    assert opened(path).spent == 2


def test_a_file_that_is_gone(path: Path) -> None:
    counter = opened(path)
    path.unlink()
    with pytest.raises(StorageError, match="cannot be used"):
        counter.spend()
    with pytest.raises(StorageError, match="No such file"):
        opened(path.parent / "missing" / "run.spent")
