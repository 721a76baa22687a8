"""Programs for GPUs are kept on disk, and used only if they are what was kept."""

import ctypes
import os
from pathlib import Path

import pytest

pytest.importorskip("torch")

from matrixdp.noise.kernels.cuda import compiler

SOURCES = ("one", "other")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Play NVRTC, and note what it compiles."""
    found: list[str] = []

    def code(_nvrtc: object, source: str, options: list[str]) -> bytes:
        found.append(source)
        return f"code of {source} for {options}".encode()

    monkeypatch.setattr(ctypes, "CDLL", lambda _name: None)
    monkeypatch.setattr(compiler, "_digest", lambda _, *parts: f"{abs(hash(repr(parts)))}")
    monkeypatch.setattr(compiler, "_machine_code", code)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return found


def compiled(source: str) -> str:
    return compiler.compiled(source, "sm_90").decode()


def test_it_is_compiled_once_for_each_source(made: list[str]) -> None:
    for _ in range(3):
        for source in SOURCES:
            assert compiled(source).startswith(f"code of {source} for")
    assert made == list(SOURCES)


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_a_damaged_file_is_made_again(made: list[str], tmp_path: Path, damage: str) -> None:
    expected = compiled("one")
    (file,) = (tmp_path / "cache" / "matrixdp").iterdir()
    whole = file.read_bytes()
    flipped = bytes([*whole[:-1], whole[-1] ^ 1])
    file.write_bytes({"cut": whole[:-3], "flipped": flipped, "empty": b""}[damage])
    assert compiled("one") == expected
    assert file.read_bytes() == whole
    assert len(made) == 2


def test_it_works_without_a_folder(made: list[str], tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file in the way")
    assert compiled("one") == compiled("one")
    assert len(made) == 2


def test_it_works_without_a_home(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # A container may run as a user whom nobody has heard of.
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert compiled("one") == compiled("one")
    assert len(made) == 2
