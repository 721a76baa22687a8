"""A run that fails or is killed leaves nothing that could be taken for a release."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matrixdp.errors import (
    FileFormatError,
    InvalidParameterError,
    StorageError,
)
from matrixdp.files.formats.numpy_format import read_layout
from matrixdp.files.publishing import atomic, npy_stream
from matrixdp.files.publishing.npy_stream import add_noise_to_npy
from matrixdp.noise import ReleaseKey, add_noise
from reference.noise import test_key

SHAPE = (200, 301)
VALUE = np.random.default_rng(60).uniform(-9.0, 9.0, SHAPE)


@pytest.mark.parametrize("name", ["noisy.npy", "value.npy"])
def test_nothing_is_overwritten(paths: tuple[Path, Path], name: str) -> None:
    source = paths[0]
    np.save(source, VALUE)
    target = source.with_name(name)
    if target != source:
        target.write_text("precious")
    before = target.read_bytes()
    with pytest.raises(InvalidParameterError, match="never overwritten"):
        add_noise_to_npy(source, target, 1.0, ReleaseKey.generate())
    assert target.read_bytes() == before


def test_a_target_that_appears_meanwhile_is_kept(
    paths: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = paths
    np.save(source, VALUE)
    link = os.link

    def late(temporary: Path, name: Path) -> None:
        Path(name).write_text("precious")
        link(temporary, name)

    monkeypatch.setattr(os, "link", late)
    with pytest.raises(InvalidParameterError, match="not overwritten"):
        add_noise_to_npy(source, target, 1.0, test_key(68))
    assert target.read_text() == "precious"
    assert sorted(path.name for path in source.parent.iterdir()) == ["noisy.npy", "value.npy"]


def test_file_systems_without_links_are_served(
    paths: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = paths
    np.save(source, VALUE)

    def refuse(*_: Any) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    add_noise_to_npy(source, target, 1.0, test_key(69))
    assert np.array_equal(np.load(target), add_noise(VALUE, 1.0, test_key(69)))
    assert sorted(path.name for path in source.parent.iterdir()) == ["noisy.npy", "value.npy"]


def test_a_source_that_shrinks_is_noticed(
    paths: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = paths
    np.save(source, VALUE)

    def shrink(*arguments: Any) -> Any:
        source.write_bytes(source.read_bytes()[:-500])
        return atomic.unfinished_file(*arguments)

    monkeypatch.setattr(npy_stream, "unfinished_file", shrink)
    with pytest.raises(FileFormatError, match="cut short while"):
        add_noise_to_npy(source, target, 1.0, test_key(70))
    assert list(source.parent.iterdir()) == [source]


RUN = """
import os, signal, sys
import numpy as np
from matrixdp.files.publishing import atomic, npy_stream
from matrixdp.files.publishing.npy_stream import add_noise_to_npy
from matrixdp.noise import ReleaseKey

npy_stream._CHUNK_ELEMENTS = 10_007
moment, source, target = sys.argv[1:]
calls = {"chunk": 0, "force": 0, "publish": 0}


def count(name, function, last):
    def wrapped(*arguments, **options):
        calls[name] += 1
        if calls[name] == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)

    return wrapped


name, last = moment.split("-")
if name == "chunk":
    npy_stream.ExactNoise.add_range = count("chunk", npy_stream.ExactNoise.add_range, int(last))
elif name == "publish":
    npy_stream.publish = count("publish", npy_stream.publish, int(last))
else:
    atomic._force = count("force", atomic._force, int(last))
add_noise_to_npy(source, target, 1.0, ReleaseKey.generate())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
@pytest.mark.parametrize(
    "moment",
    ["chunk-4", "force-2"]
    + [pytest.param(moment, marks=pytest.mark.thorough) for moment in ("chunk-1", "force-1")],
)
def test_a_killed_run_leaves_nothing_that_looks_like_a_release(
    paths: tuple[Path, Path], moment: str
) -> None:
    source, target = paths
    np.save(source, VALUE)
    done = subprocess.run([sys.executable, "-c", RUN, moment, source, target], check=False)
    assert done.returncode == -9
    assert not target.exists()
    (leftover,) = (path for path in source.parent.iterdir() if path != source)
    assert leftover.name.startswith(".noisy.npy.")
    assert leftover.suffix == ".unfinished"
    with pytest.raises(FileFormatError):
        read_layout(leftover)
    with pytest.raises((ValueError, EOFError)):
        np.load(leftover)
    add_noise_to_npy(source, target, 1.0, test_key(71))
    assert np.load(target).shape == SHAPE


FULL = """
import resource, sys
from matrixdp.errors import StorageError
from matrixdp.files.publishing import npy_stream
from matrixdp.files.publishing.npy_stream import add_noise_to_npy
from matrixdp.noise import ReleaseKey

npy_stream._CHUNK_ELEMENTS = 10_007
source, target, limit = sys.argv[1:]
if int(limit):
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
try:
    add_noise_to_npy(source, target, 1.0, ReleaseKey.generate())
except StorageError as error:
    sys.exit(str(error))
"""


def assert_full(source: Path, target: Path, limit: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, source, target, str(limit)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "no space left while writing" in done.stderr
    assert "was not made" in done.stderr
    assert not target.exists()
    assert not list(target.parent.glob(".*"))


@pytest.mark.skipif(sys.platform == "win32", reason="no resource limits")
@pytest.mark.parametrize(
    "limit",
    [VALUE.nbytes + 127]
    + [pytest.param(limit, marks=pytest.mark.thorough) for limit in (50, 100_000)],
)
def test_a_file_that_may_not_grow(paths: tuple[Path, Path], limit: int) -> None:
    np.save(paths[0], VALUE)
    assert_full(*paths, limit)


def test_a_full_disk(paths: tuple[Path, Path], tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("mounting a small file system is not permitted here")
    try:
        np.save(paths[0], VALUE)
        assert_full(paths[0], folder / "noisy.npy", 0)
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_run_killed_in_its_last_moment_leaves_a_hidden_name(paths: tuple[Path, Path]) -> None:
    source, target = paths
    np.save(source, VALUE)
    done = subprocess.run([sys.executable, "-c", RUN, "publish-1", source, target], check=False)
    assert done.returncode == -9
    assert not target.exists()
    (leftover,) = (path for path in source.parent.iterdir() if path != source)
    assert leftover.name.startswith(".noisy.npy.")
    assert leftover.suffix == ".unfinished"
    assert read_layout(leftover).shape == SHAPE


def refused(number: int) -> Any:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    return refuse


def test_a_target_that_cannot_be_opened_spends_no_key(
    paths: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = paths
    np.save(source, VALUE)
    key = ReleaseKey.generate()
    for length in (240, 300):  # too long with the hidden suffix, and by itself
        with pytest.raises(StorageError, match=r"(?s)was not made.*too long"):
            add_noise_to_npy(source, source.with_name("n" * length), 1.0, key)
    with pytest.raises(InvalidParameterError, match="not a valid file name"):
        add_noise_to_npy(source, source.with_name("a\0b"), 1.0, key)
    real = os.open

    def read_only(path: Any, flags: int, *mode: int) -> Any:
        return refused(errno.EACCES)() if flags & os.O_CREAT else real(path, flags, *mode)

    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(StorageError, match=r"was not made.*Permission denied"):
        add_noise_to_npy(source, target, 1.0, key)
    assert repr(key) == "ReleaseKey(unbound)"
    assert list(source.parent.iterdir()) == [source]


def test_a_kernel_that_cannot_be_made_spends_no_key(
    paths: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(paths[0], VALUE)
    monkeypatch.setattr(npy_stream, "prepare_fastest", refused(errno.ENOEXEC))
    key = ReleaseKey.generate()
    with pytest.raises(OSError, match="Exec format"):
        add_noise_to_npy(*paths, 1.0, key)
    assert repr(key) == "ReleaseKey(unbound)"


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_what_the_type_needs_is_compiled_before_the_key_is_spent(
    kind: type, paths: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(value_bytes: int) -> None:
        assert value_bytes == np.dtype(kind).itemsize
        raise KeyboardInterrupt

    np.save(paths[0], VALUE.astype(kind))
    monkeypatch.setattr(npy_stream, "prepare_fastest", interrupted)
    key = ReleaseKey.generate()
    with pytest.raises(KeyboardInterrupt):
        add_noise_to_npy(*paths, 1.0, key)
    assert repr(key) == "ReleaseKey(unbound)"
    assert not paths[1].exists()


@pytest.mark.parametrize("links", [True, False])
def test_a_name_that_cannot_be_forced_to_the_disk_is_taken_back(
    paths: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, *, links: bool
) -> None:
    np.save(paths[0], VALUE)
    if not links:
        monkeypatch.setattr(os, "link", refused(errno.EPERM))
    monkeypatch.setattr(atomic, "_force_folder", refused(errno.EIO))
    with pytest.raises(StorageError, match="was not made"):
        add_noise_to_npy(*paths, 1.0, test_key(73))
    assert list(paths[0].parent.iterdir()) == [paths[0]]


def test_folders_that_cannot_be_forced_to_the_disk_are_served(
    paths: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(paths[0], VALUE)
    monkeypatch.setattr(atomic, "_force_folder", refused(errno.EINVAL))
    add_noise_to_npy(*paths, 1.0, test_key(74))
    assert np.array_equal(np.load(paths[1]), add_noise(VALUE, 1.0, test_key(74)))


def test_other_errors_of_the_system_are_named(
    paths: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(paths[0], VALUE)

    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, "the disk is broken")

    monkeypatch.setattr(atomic, "_force", fail)
    with pytest.raises(StorageError, match=r"was not made.*the disk is broken"):
        add_noise_to_npy(*paths, 1.0, test_key(72))
    assert list(paths[0].parent.iterdir()) == [paths[0]]
