"""Files larger than memory: the same noise, bounded memory, all or nothing."""

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
    KeyStateError,
    ShapeError,
    StorageError,
)
from matrixdp.noise import ReleaseKey, add_noise, add_noise_to_npy, npy_stream, unfinished
from matrixdp.noise.npy_layout import read_layout
from reference.noise import test_key

SHAPE = (200, 301)
VALUE = np.random.default_rng(60).uniform(-9.0, 9.0, SHAPE)
SCALES = {
    "one": 2.5,
    "per row": np.linspace(0.5, 9.0, 200)[:, None],
    "per column": np.linspace(0.5, 9.0, 301)[None, :],
    "per element": np.linspace(0.5, 9.0, 200 * 301).reshape(SHAPE),
}


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npy_stream, "_CHUNK_ELEMENTS", 10_007)


@pytest.fixture
def paths(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "value.npy", tmp_path / "noisy.npy"


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_a_file_gets_the_noise_of_its_array(
    paths: tuple[Path, Path], scale: Any, dtype: type
) -> None:
    source, target = paths
    value: Any = VALUE.astype(dtype)
    np.save(source, value)
    add_noise_to_npy(source, str(target), scale, test_key(61), threads=2, progress=False)
    assert np.array_equal(np.load(target), add_noise(value, scale, test_key(61)))
    assert np.array_equal(np.load(source), value)
    assert sorted(path.name for path in source.parent.iterdir()) == ["noisy.npy", "value.npy"]


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_a_file_in_fortran_order_is_its_transpose(paths: tuple[Path, Path], scale: Any) -> None:
    source, target = paths
    np.save(source, np.asfortranarray(VALUE))
    add_noise_to_npy(source, target, scale, test_key(62), progress=False)
    noisy = np.load(target)
    assert noisy.flags.f_contiguous
    assert read_layout(target).fortran_order
    transposed = scale.T if isinstance(scale, np.ndarray) else scale
    expected = add_noise(np.ascontiguousarray(VALUE.T), transposed, test_key(62)).T
    assert np.array_equal(noisy, expected)


@pytest.mark.parametrize("shape", [(7,), (3, 4, 5), (0, 4), (1,)])
def test_any_number_of_axes(paths: tuple[Path, Path], shape: tuple[int, ...]) -> None:
    source, target = paths
    np.save(source, np.zeros(shape))
    add_noise_to_npy(source, target, 1.0, test_key(63), progress=False)
    assert np.array_equal(np.load(target), add_noise(np.zeros(shape), 1.0, test_key(63)))


def test_version_two_of_the_format_is_read(paths: tuple[Path, Path]) -> None:
    source, target = paths
    with source.open("wb") as file:
        np.lib.format.write_array(file, VALUE, version=(2, 0))
    add_noise_to_npy(source, target, 1.0, test_key(64), progress=False)
    assert np.array_equal(np.load(target), add_noise(VALUE, 1.0, test_key(64)))


def test_the_progress_bar_is_silent_off_a_terminal(
    paths: tuple[Path, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    np.save(paths[0], VALUE)
    add_noise_to_npy(*paths, 1.0, test_key(65))
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.strip() == ""


def test_the_progress_bar_reaches_the_end(
    paths: tuple[Path, Path], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    np.save(paths[0], VALUE)
    add_noise_to_npy(*paths, 1.0, test_key(66))
    shown = capfd.readouterr().err
    assert "Adding noise" in shown
    assert "100%" in shown


@pytest.mark.parametrize("element", [np.nan, np.inf, -np.inf])
def test_a_bad_element_is_found_before_anything_is_drawn(
    paths: tuple[Path, Path], element: float
) -> None:
    value = VALUE.copy()
    value[-1, -1] = element
    np.save(paths[0], value)
    key = ReleaseKey.generate()
    with pytest.raises(InvalidParameterError, match="finite"):
        add_noise_to_npy(*paths, 1.0, key, progress=False)
    assert repr(key) == "ReleaseKey(unbound)"
    assert not paths[1].exists()


def test_bad_arguments_are_refused_first(paths: tuple[Path, Path]) -> None:
    source, target = paths
    np.save(source, VALUE)
    key = ReleaseKey.generate()
    with pytest.raises(ShapeError):
        add_noise_to_npy(source, target, np.ones((3, 1)), key, progress=False)
    with pytest.raises(InvalidParameterError, match="threads=0"):
        add_noise_to_npy(source, target, 1.0, key, threads=0, progress=False)
    with pytest.raises(InvalidParameterError, match="folder"):
        add_noise_to_npy(source, source.parent / "no" / "such.npy", 1.0, key, progress=False)
    with pytest.raises(FileNotFoundError):
        add_noise_to_npy(source.with_name("missing.npy"), target, 1.0, key, progress=False)
    spent = test_key(67)
    add_noise(VALUE, 1.0, spent)
    with pytest.raises(KeyStateError):
        add_noise_to_npy(source, target, 1.0, spent, progress=False)
    assert repr(key) == "ReleaseKey(unbound)"
    assert not target.exists()


@pytest.mark.parametrize("name", ["noisy.npy", "value.npy"])
def test_nothing_is_overwritten(paths: tuple[Path, Path], name: str) -> None:
    source = paths[0]
    np.save(source, VALUE)
    target = source.with_name(name)
    if target != source:
        target.write_text("precious")
    before = target.read_bytes()
    with pytest.raises(InvalidParameterError, match="never overwritten"):
        add_noise_to_npy(source, target, 1.0, ReleaseKey.generate(), progress=False)
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
        add_noise_to_npy(source, target, 1.0, test_key(68), progress=False)
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
    add_noise_to_npy(source, target, 1.0, test_key(69), progress=False)
    assert np.array_equal(np.load(target), add_noise(VALUE, 1.0, test_key(69)))
    assert sorted(path.name for path in source.parent.iterdir()) == ["noisy.npy", "value.npy"]


def test_a_source_that_shrinks_is_noticed(
    paths: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = paths
    np.save(source, VALUE)

    def shrink(*arguments: Any) -> Any:
        source.write_bytes(source.read_bytes()[:-500])
        return unfinished.unfinished_file(*arguments)

    monkeypatch.setattr(npy_stream, "unfinished_file", shrink)
    with pytest.raises(FileFormatError, match="cut short while"):
        add_noise_to_npy(source, target, 1.0, test_key(70), progress=False)
    assert list(source.parent.iterdir()) == [source]


RUN = """
import os, signal, sys
import numpy as np
from matrixdp.noise import ReleaseKey, add_noise_to_npy, npy_stream, unfinished

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
    unfinished.publish = count("publish", unfinished.publish, int(last))
else:
    unfinished._force = count("force", unfinished._force, int(last))
add_noise_to_npy(source, target, 1.0, ReleaseKey.generate(), progress=False)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
@pytest.mark.parametrize("moment", ["chunk-1", "chunk-4", "force-1", "force-2"])
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
    add_noise_to_npy(source, target, 1.0, test_key(71), progress=False)
    assert np.load(target).shape == SHAPE


FULL = """
import resource, sys
from matrixdp.errors import StorageError
from matrixdp.noise import ReleaseKey, add_noise_to_npy, npy_stream

npy_stream._CHUNK_ELEMENTS = 10_007
source, target, limit = sys.argv[1:]
if int(limit):
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
try:
    add_noise_to_npy(source, target, 1.0, ReleaseKey.generate(), progress=False)
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
@pytest.mark.parametrize("limit", [50, 100_000, VALUE.nbytes + 127])
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
            add_noise_to_npy(source, source.with_name("n" * length), 1.0, key, progress=False)
    with pytest.raises(InvalidParameterError, match="no name of a file"):
        add_noise_to_npy(source, source.with_name("a\0b"), 1.0, key, progress=False)
    real = Path.open

    def read_only(path: Path, mode: str = "r") -> Any:
        return refused(errno.EACCES)() if "x" in mode else real(path, mode)

    monkeypatch.setattr(Path, "open", read_only)
    with pytest.raises(StorageError, match=r"was not made.*Permission denied"):
        add_noise_to_npy(source, target, 1.0, key, progress=False)
    assert repr(key) == "ReleaseKey(unbound)"
    assert list(source.parent.iterdir()) == [source]


def test_a_kernel_that_cannot_be_made_spends_no_key(
    paths: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(paths[0], VALUE)
    monkeypatch.setattr(npy_stream, "fastest_kernel", refused(errno.ENOEXEC))
    key = ReleaseKey.generate()
    with pytest.raises(OSError, match="Exec format"):
        add_noise_to_npy(*paths, 1.0, key, progress=False)
    assert repr(key) == "ReleaseKey(unbound)"


@pytest.mark.parametrize("links", [True, False])
def test_a_name_that_cannot_be_forced_to_the_disk_is_taken_back(
    paths: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, *, links: bool
) -> None:
    np.save(paths[0], VALUE)
    if not links:
        monkeypatch.setattr(os, "link", refused(errno.EPERM))
    monkeypatch.setattr(unfinished, "_force_folder", refused(errno.EIO))
    with pytest.raises(StorageError, match="was not made"):
        add_noise_to_npy(*paths, 1.0, test_key(73), progress=False)
    assert list(paths[0].parent.iterdir()) == [paths[0]]


def test_folders_that_cannot_be_forced_to_the_disk_are_served(
    paths: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(paths[0], VALUE)
    monkeypatch.setattr(unfinished, "_force_folder", refused(errno.EINVAL))
    add_noise_to_npy(*paths, 1.0, test_key(74), progress=False)
    assert np.array_equal(np.load(paths[1]), add_noise(VALUE, 1.0, test_key(74)))


def test_other_errors_of_the_system_are_named(
    paths: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(paths[0], VALUE)

    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, "the disk is broken")

    monkeypatch.setattr(unfinished, "_force", fail)
    with pytest.raises(StorageError, match=r"was not made.*the disk is broken"):
        add_noise_to_npy(*paths, 1.0, test_key(72), progress=False)
    assert list(paths[0].parent.iterdir()) == [paths[0]]


MEMORY = """
import resource, sys
import numpy as np
from matrixdp.noise import ReleaseKey, add_noise, add_noise_to_npy

add_noise(np.zeros((300, 300)), 1.0, ReleaseKey.generate())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
add_noise_to_npy(sys.argv[1], sys.argv[2], 1.0, ReleaseKey.generate(), progress=False)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory in KiB")
def test_memory_is_bounded(paths: tuple[Path, Path]) -> None:
    np.save(paths[0], np.zeros((4096, 4096)))  # 128 MiB
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, *paths], check=True, capture_output=True, text=True
    )
    assert int(done.stdout) < 40 * 1024
