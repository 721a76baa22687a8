"""Arrays as one row of numbered elements: ranges, tiles and views."""

import numpy as np
import pytest
from numpy.typing import NDArray

from matrixdp.noise.application.tiles import FlatView, rectangles, runs_of_tile


def numbers_of(shape: tuple[int, ...]) -> NDArray[np.int64]:
    return np.arange(int(np.prod(shape))).reshape(shape)


@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 3, 4), (1, 5, 1, 2)])
def test_rectangles_cover_every_range_in_order(shape: tuple[int, ...]) -> None:
    numbers = numbers_of(shape)
    for start in range(numbers.size + 1):
        for stop in range(start, numbers.size + 1):
            pieces = [numbers[piece].ravel() for piece in rectangles(shape, start, stop)]
            covered = np.concatenate([np.empty(0, dtype=int), *pieces])
            assert covered.tolist() == list(range(start, stop))


@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 3, 4)])
def test_runs_name_every_element_of_a_tile(shape: tuple[int, ...]) -> None:
    numbers = numbers_of(shape)
    for last in np.ndindex(*(n + 1 for n in shape)):
        for origin in np.ndindex(*(n + 1 for n in last)):
            part = tuple(slice(a, b) for a, b in zip(origin, last, strict=True))
            tile = numbers[part]
            for first, stop in [(0, tile.size), (1, tile.size), (tile.size // 2, tile.size - 1)]:
                found = np.full(tile.size, -1)
                for begin, end, offset in runs_of_tile(shape, origin, tile.shape, first, stop):
                    found[begin:end] = np.arange(begin + offset, end + offset)
                assert np.array_equal(found[first:stop], tile.ravel()[first:stop])
                assert (found[:first] == -1).all()


def test_flat_views_read_what_they_write() -> None:
    for array in (np.zeros((6, 5)), np.zeros((6, 5), order="F"), np.zeros((6, 10))[:, ::2]):
        flat = FlatView(array)
        flat.write(3, np.arange(20.0))
        back = np.empty(20)
        flat.read(3, back)
        assert np.array_equal(back, np.arange(20.0))
        assert np.array_equal(array.ravel()[3:23], back)
