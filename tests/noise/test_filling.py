"""The exact path is asked for the right elements: by their numbers in the whole, from any part."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from matrixdp.noise import ExactNoise, NoiseContext, NoiseStream, add_noise, kernels
from matrixdp.noise.application.add import PreparedNoise
from matrixdp.noise.application.filling import WorkSpace
from matrixdp.noise.application.tiles import Tile
from matrixdp.noise.kernels import available_kernels
from matrixdp.noise.kernels.block import Block
from matrixdp.noise.kernels.numpy_kernel import NumpyKernel
from matrixdp.noise.specification.table import load_table
from reference.noise import test_key

SHAPE = (70, 1000)
EVERY = 997
VALUE = np.random.default_rng(80).uniform(-9.0, 9.0, SHAPE)
CONTEXT = NoiseContext.describe(shape=SHAPE, dtype="float64", scale=1.5)


class UnsureKernel(NumpyKernel):
    """A kernel that leaves every 997th element of a block to the exact path, and spoils it."""

    def __call__(self, block: Block, grid_bits: int) -> int:
        super().__call__(block, grid_bits)
        block.undecided[::EVERY] = True
        block.noisy[block.undecided] = np.nan
        return int(np.count_nonzero(block.undecided))


class WatchedStream(NoiseStream):
    """A stream that keeps the numbers of the elements whose further words were asked for."""

    def __init__(self, context: NoiseContext, secret: bytearray) -> None:
        super().__init__(context, secret)
        self.asked: list[int] = []

    def further_words(self, element: int) -> Callable[[int], int]:
        self.asked.append(element)
        return super().further_words(element)


def watched() -> WatchedStream:
    return WatchedStream.from_secret(test_key(81).bind(CONTEXT).export_secret(), CONTEXT)


def unsure(stream: NoiseStream) -> ExactNoise:
    return ExactNoise(stream, 1.5, make_kernel=lambda: UnsureKernel(load_table()))


def marked(first: int, length: int) -> Iterator[int]:
    """Yield every 997th number of each block of a run of elements of the whole."""
    for start in range(first, first + length, NumpyKernel.block_length):
        yield from range(start, min(start + NumpyKernel.block_length, first + length), EVERY)


def undecided_anyway() -> set[int]:
    """Return what the numpy kernel leaves undecided by itself."""
    stream = watched()
    ExactNoise(stream, 1.5, make_kernel=available_kernels()["numpy"]).add(VALUE)
    return set(stream.asked)


PLAIN = ExactNoise(watched(), 1.5).add(VALUE)
PARTS = {
    "whole": ((0, 0), SHAPE),
    "whole rows, two blocks": ((5, 0), (60, 1000)),
    "parts of rows": ((3, 17), (40, 950)),
}


@pytest.mark.parametrize("in_place", [False, True], ids=["other output", "in place"])
@pytest.mark.parametrize(("origin", "shape"), PARTS.values(), ids=PARTS)
def test_further_words_belong_to_the_element(
    origin: tuple[int, int], shape: tuple[int, int], *, in_place: bool
) -> None:
    part = tuple(slice(a, a + n) for a, n in zip(origin, shape, strict=True))
    stream, tile = watched(), VALUE[part].copy()
    noisy = unsure(stream).add_tile(tile, origin, out=tile if in_place else None)
    assert np.array_equal(noisy, PLAIN[part])
    if shape[1] == SHAPE[1]:
        expected = list(marked(origin[0] * SHAPE[1], shape[0] * SHAPE[1]))
    else:
        # As many whole rows as have room are a block.
        numbers = np.arange(VALUE.size).reshape(SHAPE)[part].ravel()
        together = NumpyKernel.block_length // shape[1] * shape[1]
        blocks = [numbers[i : i + together] for i in range(0, numbers.size, together)]
        expected = [n for block in blocks for n in block[::EVERY].tolist()]
    anyway = undecided_anyway()
    assert [n for n in stream.asked if n not in anyway - set(expected)] == expected
    assert len(expected) > 30


def test_further_words_of_a_range_belong_to_the_element() -> None:
    stream = watched()
    noisy = unsure(stream).add_range(VALUE.ravel()[2000:69_000], 2000)
    assert np.array_equal(noisy, PLAIN.ravel()[2000:69_000])
    assert set(marked(2000, 67_000)) <= set(stream.asked)


def test_threads_ask_for_the_same_numbers() -> None:
    stream, value = watched(), VALUE.copy()
    assert np.array_equal(unsure(stream).add(value, out=value, threads=2), PLAIN)
    expected = {*marked(0, 35_000), *marked(35_000, 35_000)}
    assert expected <= set(stream.asked) <= expected | undecided_anyway()


def test_a_value_that_is_not_set_aside_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(**fields: Any) -> Tile:
        return Tile(**{**fields, "in_place": False})

    value = VALUE.copy()
    monkeypatch.setattr("matrixdp.noise.application.tiles.Tile", careless)
    with pytest.raises(ValueError, match="NaN"):
        unsure(watched()).add(value, out=value)


@pytest.mark.parametrize("in_place", [False, True])
def test_the_work_space_is_wiped(monkeypatch: pytest.MonkeyPatch, *, in_place: bool) -> None:
    kernels: list[Any] = []
    spaces: list[WorkSpace] = []

    def allocate(length: int) -> WorkSpace:
        spaces.append(WorkSpace(length))
        return spaces[-1]

    def make() -> Any:
        kernels.append(UnsureKernel(load_table()))
        return kernels[-1]

    monkeypatch.setattr("matrixdp.noise.application.filling.WorkSpace", allocate)
    value = VALUE[:, ::2].copy().T  # neither values nor results lie as they are read
    context = NoiseContext.describe(shape=value.shape, dtype="float64", scale=1.5)
    noise = ExactNoise(test_key(82).bind(context), 1.5, make_kernel=make)
    noise.add(value, out=value if in_place else None)
    (space,) = spaces
    used = {"words", "values", "noisy"} if in_place else {"words", "values"}
    assert used <= space.rooms.keys()
    assert not any(room.any() for room in space.rooms.values())
    assert not any(kernel._floats.any() or kernel._integers.any() for kernel in kernels)


SCALES = {
    "one": np.array(1.5),
    "per row": np.full((60, 1), 1.5) * np.arange(1, 61)[:, None],
    "per element": np.random.default_rng(81).uniform(0.5, 9.0, (60, 500)),
}


@pytest.mark.parametrize("kernel", available_kernels())
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("scales", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize("rows", [60, 70], ids=["one block", "several"])
def test_prepared_noise_has_the_bits_of_any_other(
    monkeypatch: pytest.MonkeyPatch, kernel: str, dtype: Any, scales: Any, rows: int
) -> None:
    only = {kernel: available_kernels()[kernel]}
    monkeypatch.setattr(kernels, "available_kernels", lambda: only)
    if scales.ndim and rows != len(scales):
        scales = np.concatenate([scales, scales])[:rows]
    value = VALUE[:rows, ::2].astype(dtype)
    assert value.flags.c_contiguous
    prepared = PreparedNoise.of(value.shape, value.dtype, scales)
    assert (prepared.block_scales is not None) == (
        rows == 60 and (dtype is np.float64 or kernel == "numba")
    )
    expected = add_noise(value, scales, test_key(84))
    unaligned = np.frombuffer(b"x" + value.tobytes(), np.uint8)[1:].view(dtype)
    for layout in (value, np.asfortranarray(value), unaligned.reshape(value.shape)):
        noisy = prepared.noisy_copy(layout, test_key(84), threads=None)
        assert noisy.tobytes() == expected.tobytes()


def blocks_seen(monkeypatch: pytest.MonkeyPatch, kind: type[NumpyKernel]) -> list[Block]:
    """Return a list that gets the blocks of prepared noise, which one kernel of a kind fills."""
    seen: list[Block] = []

    class Watched(kind):  # type: ignore[valid-type, misc]
        def __call__(self, block: Block, grid_bits: int) -> int:
            seen.append(block)
            return int(super().__call__(block, grid_bits))

    one = Watched(load_table())
    monkeypatch.setattr(kernels, "available_kernels", lambda: {"watched": lambda: one})
    return seen


def test_one_block_sends_what_is_undecided_to_the_exact_path_and_is_wiped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    value = VALUE[:30].copy()
    expected = add_noise(value, 1.5, test_key(85))
    seen, asked = blocks_seen(monkeypatch, UnsureKernel), []
    further_words = NoiseStream.further_words

    def watched_words(stream: NoiseStream, element: int) -> Callable[[int], int]:
        asked.append(element)
        return further_words(stream, element)

    monkeypatch.setattr(NoiseStream, "further_words", watched_words)
    prepared = PreparedNoise.of(value.shape, value.dtype, np.array(1.5))
    noisy = prepared.noisy_copy(value, test_key(85), threads=None)
    assert np.array_equal(noisy, expected)
    assert asked == list(marked(0, value.size))
    (block,) = seen
    assert not block.words.any()
    assert not block.undecided.any()


class FailingKernel(NumpyKernel):
    """A kernel that fails when all of its work space has been used."""

    def __call__(self, block: Block, grid_bits: int) -> int:
        super().__call__(block, grid_bits)
        assert self._floats.any()
        assert block.words.any()
        raise MemoryError


def test_the_work_space_is_wiped_after_an_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = FailingKernel(load_table())
    spaces: list[WorkSpace] = []

    def allocate(length: int) -> WorkSpace:
        spaces.append(WorkSpace(length))
        return spaces[-1]

    monkeypatch.setattr("matrixdp.noise.application.filling.WorkSpace", allocate)
    value = VALUE.copy()
    with pytest.raises(MemoryError):
        ExactNoise(watched(), 1.5, make_kernel=lambda: kernel).add(value, out=value)
    (space,) = spaces
    assert {"words", "values"} <= space.rooms.keys()
    assert not any(room.any() for room in space.rooms.values())
    assert not kernel._floats.any()
    assert not kernel._integers.any()


def test_one_block_is_wiped_after_an_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = blocks_seen(monkeypatch, FailingKernel)
    value = VALUE[:30].copy()
    prepared = PreparedNoise.of(value.shape, value.dtype, np.array(1.5))
    with pytest.raises(MemoryError):
        prepared.noisy_copy(value, test_key(86), threads=None)
    (block,) = seen
    assert not block.words.any()
    kernel = prepared.make_kernel()
    assert isinstance(kernel, NumpyKernel)
    assert not kernel._floats.any()
    assert not kernel._integers.any()


@pytest.mark.parametrize("make_kernel", available_kernels().values(), ids=available_kernels())
def test_floating_point_warnings_change_nothing_in_any_kernel(make_kernel: Any) -> None:
    value, scale = np.full(1000, 1e-300), 2.0**890
    context = NoiseContext.describe(shape=value.shape, dtype="float64", scale=scale)
    noise = ExactNoise(test_key(83).bind(context), scale, make_kernel=make_kernel)
    with np.errstate(all="raise"):
        noisy = noise.add(value)
    assert np.array_equal(noisy, noise.add(value))
