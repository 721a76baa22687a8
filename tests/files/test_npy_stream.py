"""Files larger than memory: the noise of their arrays, in bounded memory."""

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
)
from matrixdp.files.formats.numpy_format import read_layout
from matrixdp.files.publishing.npy_stream import add_noise_to_npy
from matrixdp.noise import ReleaseKey, add_noise
from reference.noise import test_key

SHAPE = (200, 301)
VALUE = np.random.default_rng(60).uniform(-9.0, 9.0, SHAPE)
SCALES = {
    "one": 2.5,
    "per row": np.linspace(0.5, 9.0, 200)[:, None],
    "per column": np.linspace(0.5, 9.0, 301)[None, :],
    "per element": np.linspace(0.5, 9.0, 200 * 301).reshape(SHAPE),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_a_file_gets_the_noise_of_its_array(
    paths: tuple[Path, Path], scale: Any, dtype: type
) -> None:
    source, target = paths
    value: Any = VALUE.astype(dtype)
    np.save(source, value)
    add_noise_to_npy(source, str(target), scale, test_key(61), threads=2)
    assert np.array_equal(np.load(target), add_noise(value, scale, test_key(61)))
    assert np.array_equal(np.load(source), value)
    assert sorted(path.name for path in source.parent.iterdir()) == ["noisy.npy", "value.npy"]


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_a_file_in_fortran_order_is_its_transpose(paths: tuple[Path, Path], scale: Any) -> None:
    source, target = paths
    np.save(source, np.asfortranarray(VALUE))
    add_noise_to_npy(source, target, scale, test_key(62))
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
    add_noise_to_npy(source, target, 1.0, test_key(63))
    assert np.array_equal(np.load(target), add_noise(np.zeros(shape), 1.0, test_key(63)))


def test_version_two_of_the_format_is_read(paths: tuple[Path, Path]) -> None:
    source, target = paths
    with source.open("wb") as file:
        np.lib.format.write_array(file, VALUE, version=(2, 0))
    add_noise_to_npy(source, target, 1.0, test_key(64))
    assert np.array_equal(np.load(target), add_noise(VALUE, 1.0, test_key(64)))


def test_progress_counts_every_element_twice(
    paths: tuple[Path, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    np.save(paths[0], VALUE)
    steps: list[int] = []
    add_noise_to_npy(*paths, 1.0, test_key(65), advance=steps.append)
    assert sum(steps) == 2 * VALUE.size
    assert len(steps) > 2  # and not all at once
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("element", [np.nan, np.inf, -np.inf])
def test_a_bad_element_is_found_before_anything_is_drawn(
    paths: tuple[Path, Path], element: float
) -> None:
    value = VALUE.copy()
    value[-1, -1] = element
    np.save(paths[0], value)
    key = ReleaseKey.generate()
    with pytest.raises(InvalidParameterError, match="finite"):
        add_noise_to_npy(*paths, 1.0, key)
    assert repr(key) == "ReleaseKey(unbound)"
    assert not paths[1].exists()


def test_bad_arguments_are_refused_first(paths: tuple[Path, Path]) -> None:
    source, target = paths
    np.save(source, VALUE)
    key = ReleaseKey.generate()
    with pytest.raises(ShapeError):
        add_noise_to_npy(source, target, np.ones((3, 1)), key)
    with pytest.raises(InvalidParameterError, match="threads=0"):
        add_noise_to_npy(source, target, 1.0, key, threads=0)
    with pytest.raises(InvalidParameterError, match="folder"):
        add_noise_to_npy(source, source.parent / "no" / "such.npy", 1.0, key)
    with pytest.raises(FileFormatError, match=r"missing\.npy does not exist"):
        add_noise_to_npy(source.with_name("missing.npy"), target, 1.0, key)
    spent = test_key(67)
    add_noise(VALUE, 1.0, spent)
    with pytest.raises(KeyStateError):
        add_noise_to_npy(source, target, 1.0, spent)
    assert repr(key) == "ReleaseKey(unbound)"
    assert not target.exists()


MEMORY = """
import resource, sys
import numpy as np
from matrixdp.files.publishing.npy_stream import add_noise_to_npy
from matrixdp.noise import ReleaseKey, add_noise

add_noise(np.zeros((300, 300)), 1.0, ReleaseKey.generate())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
add_noise_to_npy(sys.argv[1], sys.argv[2], 1.0, ReleaseKey.generate())
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory in KiB")
def test_memory_is_bounded(paths: tuple[Path, Path]) -> None:
    np.save(paths[0], np.zeros((4096, 4096)))  # 128 MiB
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, *paths], check=True, capture_output=True, text=True
    )
    assert int(done.stdout) < 40 * 1024
