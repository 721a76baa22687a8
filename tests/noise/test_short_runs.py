"""Tiles with many short rows: the same words and bits as the whole, whatever the tiling."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixdp.noise import ExactNoise, NoiseContext, NoiseStream, add_noise
from matrixdp.noise.application.tiles import run_length, run_starts, runs_of_tile
from matrixdp.noise.kernels import KernelFactory, available_kernels
from matrixdp.noise.keys.short_runs import read_short_runs
from matrixdp.noise.keys.stream import RANGE_ELEMENTS
from reference.noise import test_key


def stream_for(shape: tuple[int, ...]) -> NoiseStream:
    context = NoiseContext.describe(shape=shape, dtype="float64", scale=1.0)
    return test_key(8).bind(context)


# Odd and even lengths and starts, within one range, from one into the next, and far out.
@given(
    start=st.sampled_from([0, 1, RANGE_ELEMENTS - 40, RANGE_ELEMENTS - 7, 2**64 - 2000]),
    length=st.integers(1, 9),
    gaps=st.lists(st.integers(0, 30), min_size=1, max_size=20),
)
def test_words_of_runs_are_those_of_their_elements(
    start: int, length: int, gaps: list[int]
) -> None:
    starts = [start]
    for gap in gaps:
        starts.append(starts[-1] + length + gap)
    words = np.empty((len(starts), length), dtype=np.uint64)
    with stream_for((1 << 32, (1 << 32) - 1)) as stream:
        read_short_runs(stream, np.array(starts, dtype=np.uint64), words)
        expected = [stream.words(first, length) for first in starts]
    assert np.array_equal(words, expected)


def test_each_run_may_lie_in_a_range_of_its_own() -> None:
    starts = np.arange(5, dtype=np.uint64) * np.uint64(3 * RANGE_ELEMENTS + 1)
    words = np.empty((5, 4), dtype=np.uint64)
    with stream_for((5, 3 * RANGE_ELEMENTS + 1)) as stream:
        read_short_runs(stream, starts, words)
        expected = [stream.words(int(first), 4) for first in starts]
    assert np.array_equal(words, expected)


SHAPES = st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple)


@st.composite
def tiles(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return a whole shape, and the origin and shape of a tile of it."""
    whole = draw(SHAPES)
    origin = tuple(draw(st.integers(0, length - 1)) for length in whole)
    tile = tuple(
        draw(st.integers(1, length - first)) for length, first in zip(whole, origin, strict=True)
    )
    return whole, origin, tile


@given(tiles())
def test_runs_begin_where_their_elements_are(
    tiled: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
) -> None:
    whole, origin, tile = tiled
    numbers = np.arange(np.prod(whole), dtype=np.uint64).reshape(whole)
    part = numbers[tuple(slice(a, a + n) for a, n in zip(origin, tile, strict=True))].ravel()
    length = run_length(whole, tile)
    starts = run_starts(whole, origin, tile, 0, part.size // length)
    assert np.array_equal(starts, part[::length])
    if tile != whole:
        runs = list(runs_of_tile(whole, origin, tile, 0, part.size))
        assert [first + offset for first, _, offset in runs] == starts.tolist()


@pytest.mark.parametrize("make_kernel", available_kernels().values(), ids=available_kernels())
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("threads", [1, 3])
def test_any_tiling_has_the_bits_of_the_whole(
    make_kernel: KernelFactory, dtype: str, threads: int
) -> None:
    random = np.random.default_rng(3)
    shape = (700, 301)
    value = random.normal(size=shape).astype(dtype) * 50
    scales = random.uniform(0.5, 9.0, size=(700, 1))
    whole = add_noise(value, scales, test_key(8))
    context = NoiseContext.describe(shape=shape, dtype=dtype, scale=scales)
    tiled = np.empty_like(value)
    with test_key(8).bind(context) as stream:
        noise = ExactNoise(stream, scales, make_kernel=make_kernel)
        rows = [0, *sorted(random.choice(699, 3, replace=False) + 1), 700]
        columns = [0, 1, 2, *sorted(random.choice(296, 4, replace=False) + 3), 301]
        for top, bottom in pairwise(rows):
            for left, right in pairwise(columns):
                part = value[top:bottom, left:right]
                tiled[top:bottom, left:right] = noise.add_tile(part, (top, left), threads=threads)
    assert np.array_equal(tiled, whole)


def test_undecided_elements_of_short_runs_take_the_exact_path() -> None:
    # So many that some are undecided: a wrong number would give them other further words.
    shape, value = (1 << 17, 20), np.zeros((1 << 17, 20))
    whole = add_noise(value, 1.0, test_key(8))
    with stream_for(shape) as stream:
        noise = ExactNoise(stream, 1.0)
        tiled = np.hstack([noise.add_tile(value[:, i : i + 10], (0, i)) for i in (0, 10)])
    assert np.array_equal(tiled, whole)
