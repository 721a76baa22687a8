"""Several files appear together or not at all, and what they replaced is not lost."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from matrixdp import InvalidParameterError, MatrixDPError
from matrixdp.errors import StorageError
from matrixdp.files.publishing import atomic
from matrixdp.files.publishing.atomic import check_target, write_all


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def refuse_name(monkeypatch: pytest.MonkeyPatch, refused: str) -> None:
    real = atomic._give_name

    def give(fresh: Path, path: Path, *, force: bool) -> None:
        if path.name == refused:
            raise StorageError(f"{path} could not be written")
        real(fresh, path, force=force)

    monkeypatch.setattr(atomic, "_give_name", give)


@pytest.mark.parametrize("refused", ["a", "b", "c"])
@pytest.mark.parametrize("existing", [(), ("a",), ("a", "b", "c")])
def test_what_was_replaced_comes_back(
    refused: str, existing: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in existing:
        (tmp_path / name).write_text(f"old {name}")
    before = contents(tmp_path)
    refuse_name(monkeypatch, refused)
    with pytest.raises(StorageError):
        write_all([(tmp_path / name, b"new") for name in "abc"], force=True)
    assert contents(tmp_path) == before


def test_all_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    write_all([(tmp_path / name, name.encode()) for name in "abc"], force=True)
    assert contents(tmp_path) == {"a": b"a", "b": b"b", "c": b"c"}
    write_all([])


@pytest.mark.parametrize("taken", ["a", "b"])
def test_a_file_that_appears_meanwhile_is_kept(taken: str, tmp_path: Path) -> None:
    (tmp_path / taken).write_text("precious")
    with pytest.raises((InvalidParameterError, StorageError)) as caught:
        write_all([(tmp_path / name, b"new") for name in "ab"])
    assert isinstance(caught.value, MatrixDPError)
    assert contents(tmp_path) == {taken: b"precious"}


def test_files_get_their_names_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named: list[str] = []
    real = atomic._give_name

    def give(fresh: Path, path: Path, *, force: bool) -> None:
        assert all((tmp_path / name).exists() for name in named)
        named.append(path.name)
        real(fresh, path, force=force)

    monkeypatch.setattr(atomic, "_give_name", give)
    write_all([(tmp_path / name, b"new") for name in "cab"])
    assert named == ["c", "a", "b"]


@pytest.mark.parametrize("links", [True, False])
def test_an_old_file_keeps_its_place_until_it_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, links: bool
) -> None:
    (tmp_path / "a").write_text("old a")
    copied: list[str] = []
    real_copy = shutil.copyfile

    def copy(source: Path, target: Path) -> None:
        copied.append(Path(source).name)
        real_copy(source, target)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(shutil, "copyfile", copy)
    if not links:
        monkeypatch.setattr(os, "link", refuse)
    seen: list[str] = []
    real = atomic._give_name

    def give(fresh: Path, path: Path, *, force: bool) -> None:
        seen.append((tmp_path / "a").read_text())
        if path.name == "b":
            raise StorageError("no")
        real(fresh, path, force=force)

    monkeypatch.setattr(atomic, "_give_name", give)
    with pytest.raises(StorageError):
        write_all([(tmp_path / name, b"new") for name in "ab"], force=True)
    assert seen == ["old a", "new"]
    assert contents(tmp_path) == {"a": b"old a"}
    assert copied == ([] if links else ["a"])  # nothing is copied where a link will do


def test_a_link_that_is_replaced_comes_back_as_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "a").symlink_to("precious")
    refuse_name(monkeypatch, "b")
    with pytest.raises(StorageError):
        write_all([(tmp_path / name, b"new") for name in "ab"], force=True)
    assert (tmp_path / "a").is_symlink()
    assert (tmp_path / "precious").read_text() == "precious"


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"])
def test_names_that_no_system_allows(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError, match="not a valid file name"):
        check_target(tmp_path / name, force=False)


@pytest.mark.skipif(os.name != "posix", reason="rights are those of POSIX")
def test_only_the_owner_reads_what_is_not_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_names, hidden = atomic._give_names, list[int]()

    def seen(files: Any, always: Any, *, force: bool) -> None:
        hidden.extend(fresh.stat().st_mode & 0o777 for fresh, _ in files)
        give_names(files, always, force=force)

    monkeypatch.setattr(atomic, "_give_names", seen)
    for force in (False, True):
        write_all([(tmp_path / "a", b"one"), (tmp_path / "b", b"two")], force=force)
    assert hidden == [0o600] * 4
    mask = os.umask(0o027)
    try:
        write_all([(tmp_path / "c", b"three")])
    finally:
        os.umask(mask)
    assert (tmp_path / "c").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o666 & ~mask
