"""Arguments of the wrong kind, and parts that may not be released, get errors of the library."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matrixdp.errors import InvalidParameterError, KeyStateError, MatrixDPError, StorageError
from matrixdp.files.publishing import atomic, npy_stream
from matrixdp.files.publishing.npy_stream import add_noise_to_npy
from matrixdp.noise import (
    ExactNoise,
    NoiseContext,
    NoiseStream,
    ReleaseKey,
    add_noise,
)
from matrixdp.noise.specification.scales import value_limit
from reference.noise import test_key

SHAPE = (4, 6)
ZEROS = np.zeros(SHAPE)
CONTEXT = NoiseContext.describe(shape=SHAPE, dtype="float64", scale=1.0)


def bound() -> NoiseStream:
    return test_key(120).bind(CONTEXT)


def noise() -> ExactNoise:
    return ExactNoise(bound(), 1.0)


def described(**changed: Any) -> NoiseContext:
    usual: dict[str, Any] = {"shape": SHAPE, "dtype": "float64", "scale": 1.0}
    return NoiseContext.describe(**usual | changed)


anything: Any = None
WRONG_KINDS: dict[str, tuple[Callable[[], object], str]] = {
    "no key": (lambda: add_noise(ZEROS, 1.0, anything), "key must be a ReleaseKey, got NoneType"),
    "a stream for a key": (
        lambda: add_noise(ZEROS, 1.0, bound()),  # type: ignore[arg-type]
        "key must be a ReleaseKey, got NoiseStream",
    ),
    "no key for a file": (
        lambda: add_noise_to_npy("a.npy", "b.npy", 1.0, anything),
        "key must be a ReleaseKey, got NoneType",
    ),
    "a stream for a key for a file": (
        lambda: add_noise_to_npy("a.npy", "b.npy", 1.0, bound()),  # type: ignore[arg-type]
        "key must be a ReleaseKey, got NoiseStream",
    ),
    "no context": (lambda: test_key(1).bind(anything), "context must be a NoiseContext"),
    "no context for a secret": (
        lambda: NoiseStream.from_secret(bound().export_secret(), anything),
        "context must be a NoiseContext",
    ),
    "text for a secret": (
        lambda: NoiseStream.from_secret("a" * 96, CONTEXT),  # type: ignore[arg-type]
        "secret must be the bytes",
    ),
    "no stream": (lambda: ExactNoise(anything, 1.0), "stream must be a NoiseStream, got NoneType"),
    "a key for a stream": (
        lambda: ExactNoise(test_key(1), 1.0),  # type: ignore[arg-type]
        "stream must be a NoiseStream, got ReleaseKey",
    ),
    "a fraction in the origin": (
        lambda: noise().add_tile(ZEROS[:2, :2], (0.0, 0)),  # type: ignore[arg-type]
        r"origin must be an integer, got origin=0\.0",
    ),
    "a number for the origin": (
        lambda: noise().add_tile(ZEROS[:2, :2], 0),  # type: ignore[arg-type]
        "origin must be a tuple of integers, got origin=0",
    ),
    "true in the origin": (lambda: noise().add_tile(ZEROS[:2, :2], (True, 0)), "origin=True"),
    "a fraction for the start": (
        lambda: noise().add_range(np.zeros(3), 1.5),  # type: ignore[arg-type]
        r"start must be an integer, got start=1\.5",
    ),
    "true for the start": (lambda: noise().add_range(np.zeros(3), True), "start=True"),
    "a number for the shape": (lambda: described(shape=5), "shape must be a tuple of integers"),
    "an unknown type": (lambda: described(dtype="nonsense"), "got dtype='nonsense'"),
    "a type that cannot be read": (lambda: described(dtype="i4,("), "got dtype="),
    "a negative length": (lambda: described(shape=(2, -1)), "whole lengths"),
    "more than 2**64 elements": (lambda: described(shape=(1 << 40, 1 << 40)), r"at most 2\*\*64"),
    "one more than 2**64 elements": (lambda: described(shape=((1 << 64) + 1,)), r"at most 2\*\*64"),
    "words before the first": (lambda: bound().words(-1, 1), "start=-1"),
    "words beyond the last": (lambda: bound().words((1 << 64) - 1, 2), "count=2"),
    "words from the end on": (lambda: bound().words(1 << 64, 0), "start=18446744073709551616"),
    "fewer words than none": (lambda: bound().words(0, -1), "count=-1"),
    "half a word": (lambda: bound().words(0, 0.5), r"count=0\.5"),  # type: ignore[arg-type]
    "words from one and a half": (lambda: bound().words(1.5, 1), r"start=1\.5"),  # type: ignore[arg-type]
    "a reader before the first": (lambda: bound().reader(-1), "start=-1"),
    "further words before the first": (lambda: bound().further_words(-1), "element=-1"),
    "further words of a half": (lambda: bound().further_words(0.5), r"element=0\.5"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize(("call", "message"), WRONG_KINDS.values(), ids=WRONG_KINDS)
def test_wrong_kinds_are_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        call()


def test_integers_of_numpy_are_integers() -> None:
    stream = bound()
    assert stream.words(np.int64(5), np.int64(1)) == stream.words(5, 1)  # type: ignore[arg-type]
    further = stream.further_words(np.int64(5))(0)  # type: ignore[arg-type]
    assert further == stream.further_words(5)(0) != stream.further_words(0)(0)
    assert stream.words((1 << 64) - 1, 1).size == 1
    whole = noise().add(ZEROS)
    origin: Any = np.array([1, 2])
    assert np.array_equal(noise().add_tile(ZEROS[:2, :3], origin), whole[1:3, 2:5])
    assert np.array_equal(noise().add_range(np.zeros(3), np.int64(7)), whole.ravel()[7:10])  # type: ignore[arg-type]


def test_as_many_elements_as_can_be_numbered() -> None:
    context = described(shape=(1 << 32, 1 << 32))
    part = ExactNoise(test_key(121).bind(context), 1.0)
    last = part.add_range(np.zeros(2), (1 << 64) - 2)
    corner = ((1 << 32) - 1, (1 << 32) - 2)
    assert np.array_equal(last, part.add_tile(np.zeros((1, 2)), corner)[0])
    assert described(shape=(1 << 40, 0, 1 << 40)).shape == (1 << 40, 0, 1 << 40)


@pytest.mark.parametrize("element", [np.nan, np.inf, -np.inf, 2.0**980])
def test_every_way_of_adding_refuses_what_is_not_finite(element: float) -> None:
    value = ZEROS.copy()
    value[-1, -1] = element
    calls: list[Callable[[Any], object]] = [
        lambda out: noise().add(value, out=out),
        lambda out: noise().add_tile(value[2:, 3:], (2, 3), out=out[2:, 3:]),
        lambda out: noise().add_range(value.ravel()[7:], 7, out=out.ravel()[7:]),
    ]
    for call in calls:
        out = np.zeros(SHAPE)
        with pytest.raises(InvalidParameterError, match="finite"):
            call(out)
        assert not out.any()


LIMITS = [
    (1.0, "float64", 2.0**52),
    (3.7, "float64", 2.0**53),
    (4.0, "float64", 2.0**54),
    (2.0**-900, "float64", 2.0**-848),
    (2.0**900, "float64", 2.0**952),
    (1.0, "float32", 2.0**23),
    (2.0**-100, "float32", 2.0**-77),
    (2.0**100, "float32", 2.0**123),
]


@pytest.mark.parametrize(("scale", "dtype", "largest"), LIMITS)
def test_values_up_to_the_limit_are_taken(scale: float, dtype: str, largest: float) -> None:
    assert value_limit(np.array([scale]), dtype).largest == largest
    add_noise(np.array([largest, -largest], dtype=dtype), scale, test_key(122))
    above = np.nextafter(np.array(largest, dtype=dtype), np.array(np.inf, dtype=dtype))
    for value in (above, -above):
        with pytest.raises(InvalidParameterError, match="must be finite and at most"):
            add_noise(value.reshape(1), scale, test_key(122))


def test_every_element_has_the_limit_of_its_own_scale(tmp_path: Path) -> None:
    scales = np.array([[2.0**-300], [1.0]])
    fine = np.array([[2.0**-248, 0.0], [0.0, -(2.0**52)]])
    context = NoiseContext.describe(shape=fine.shape, dtype="float64", scale=scales)
    noise = ExactNoise(test_key(123).bind(context), scales)
    expected = noise.add(fine)
    assert np.array_equal(add_noise(fine, scales, test_key(123)), expected)
    source, target = tmp_path / "value.npy", tmp_path / "noisy.npy"
    calls: list[Callable[[Any, Any], object]] = [
        lambda value, key: add_noise(value, scales, key),
        lambda value, _: noise.add(value),
        lambda value, _: [noise.add_tile(value[:, [k]], (0, k)) for k in range(2)],
        lambda value, _: noise.add_range(value.ravel(), 0),
        lambda _, key: add_noise_to_npy(source, target, scales, key),
    ]
    for index in ((0, 1), (1, 0)):
        value = fine.copy()
        value[index] = 2.0 * np.abs(fine).max(axis=1)[index[0]]
        np.save(source, value)
        key = ReleaseKey.generate()
        for call in calls:
            with pytest.raises(InvalidParameterError, match="times the scale of its noise"):
                call(value, key)
            assert repr(key) == "ReleaseKey(unbound)"
        assert [path.name for path in tmp_path.iterdir()] == ["value.npy"]


def test_parts_are_never_laid_over_the_scales() -> None:
    scales = np.ones(SHAPE)
    context = NoiseContext.describe(shape=SHAPE, dtype="float64", scale=scales)
    part = ExactNoise(test_key(124).bind(context), scales)
    calls: list[Callable[[], object]] = [
        lambda: part.add(ZEROS, out=scales),
        lambda: part.add_tile(ZEROS[:2, :3], (0, 0), out=scales[2:, 3:]),
        lambda: part.add_range(np.zeros(5), 0, out=scales.ravel()[3:8]),
    ]
    for call in calls:
        with pytest.raises(InvalidParameterError, match="overlaps the scales"):
            call()
    assert (scales == 1.0).all()


def test_a_spent_key_is_refused_before_a_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent = test_key(125)
    spent.bind(CONTEXT)
    np.save(tmp_path / "value.npy", np.full(SHAPE, np.nan))

    def never(*_: Any) -> Any:
        pytest.fail("the file was read")

    monkeypatch.setattr(npy_stream, "_chunks", never)
    with pytest.raises(KeyStateError, match="already bound"):
        add_noise_to_npy(tmp_path / "value.npy", tmp_path / "noisy.npy", 1.0, spent)


def test_a_source_that_vanishes_between_the_readings_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "value.npy"
    np.save(source, ZEROS)

    def vanish(*arguments: Any) -> Any:
        source.unlink()
        return atomic.unfinished_file(*arguments)

    monkeypatch.setattr(npy_stream, "unfinished_file", vanish)
    with pytest.raises(StorageError, match=r"source=.*value\.npy.*can no longer be read") as caught:
        add_noise_to_npy(source, tmp_path / "noisy.npy", 1.0, test_key(126))
    assert "not made" in str(caught.value)
    assert "folder" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_no_error_spends_a_key(tmp_path: Path) -> None:
    key = ReleaseKey.generate()
    np.save(tmp_path / "value.npy", np.full(SHAPE, np.nan))
    calls: list[Callable[[], object]] = [
        lambda: key.bind(anything),
        lambda: add_noise(np.full(SHAPE, np.nan), 1.0, key, threads=2),
        lambda: add_noise_to_npy(tmp_path / "value.npy", tmp_path / "noisy.npy", 1.0, key),
    ]
    for call in calls:
        with pytest.raises(MatrixDPError):
            call()
        assert repr(key) == "ReleaseKey(unbound)"
