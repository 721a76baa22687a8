"""Non-negative estimates through operators alone: the optimum, whatever the measurements weigh."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import linalg, optimize

from matrixdp.errors import CalibrationError
from matrixdp.postprocess import nonnegative
from matrixdp.postprocess.nonnegative import nearest_nonnegative, searched_nonnegative
from matrixdp.workloads import (
    Prefix,
    Product,
    ProductStrategy,
    Ranges,
    Strategy,
    Workload,
    marginals,
    optimal_strategy,
)

FloatArray = NDArray[np.float64]


def estimated(strategy: Strategy, noise: float, most: int = 10) -> FloatArray:
    """Return the least-squares estimate of sparse counts from noisy measurements."""
    rng = np.random.default_rng(most)
    cells = strategy.shape[1]
    counts = np.where(rng.random(cells) < 0.2, rng.integers(0, most, cells), 0).astype(float)
    noisy = strategy.apply(counts) + noise * rng.standard_normal(strategy.layout)
    return strategy.reconstruct(noisy)


def optimal(workload: Workload) -> Strategy:
    return optimal_strategy(workload, neighbouring="add-remove").strategy


def with_total(cells: int, weight: float) -> Strategy:
    return ProductStrategy([np.concatenate([np.eye(cells), np.full((1, cells), weight)])])


def with_weights(sizes: tuple[int, ...], total: float, largest: float) -> Strategy:
    """Return orthonormal contrasts of some different weights, and a total of its own."""
    weights = np.random.default_rng(0).choice([1.0, largest**0.5, largest], sizes)
    weights[(0,) * len(sizes)] = total
    return ProductStrategy([linalg.helmert(size, full=True) for size in sizes], weights)


SMALL = {
    "prefixes": optimal(Prefix(300)),
    "product": optimal(Product([Prefix(20), Ranges(20)])),
    "total": with_total(300, 1.0),
    "heavy total": with_total(300, 2.0**20),
    "heavy total of a product": with_weights((15, 20), 2.0**20, 1.0),
    "weights": with_weights((15, 20), 1.0, 30.0),
    "columns of many sizes": ProductStrategy([np.eye(300)], np.logspace(-3, 3, 300)),
    "mixed columns": ProductStrategy([np.tril(np.ones((90, 90))) * np.logspace(-3, 3, 90)]),
}


@pytest.mark.parametrize("most", [1, 10, 10**6])
@pytest.mark.parametrize("name", SMALL)
def test_it_is_the_solution_of_the_whole_matrix(name: str, most: int) -> None:
    strategy, noise = SMALL[name], 3.0
    free = estimated(strategy, noise, most)
    assert free.min() < 0
    found = searched_nonnegative(strategy, free, noise)
    assert found.min() >= 0
    matrix = strategy.written_out()
    expected = nearest_nonnegative(matrix, free)
    if expected is None:
        expected = optimize.nnls(matrix, matrix @ free, maxiter=10**4)[0]
    # Hence no answer is further off than 1 % of its own standard error.
    assert np.linalg.norm(matrix @ (found - expected)) <= 1e-2 * noise


LARGE: dict[str, tuple[Callable[[], Strategy], int | None]] = {
    "prefixes": (lambda: optimal(Product([Prefix(100), Prefix(100)])), None),
    "ranges": (lambda: optimal(Product([Ranges(20), Ranges(20), Ranges(20)])), None),
    "marginals": (lambda: optimal(marginals([24] * 3, [(0, 1, 2), (1, 2), (0,)])), None),
    "heavy total": (lambda: with_total(600, 2.0**20), 600),
    "heavy total of a product": (lambda: with_weights((100, 100), 2.0**20, 1.0), 0),
    "weights": (lambda: with_weights((50, 50), 1.0, 30.0), None),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_estimates_are_optimal(name: str) -> None:
    make, heavy = LARGE[name]
    strategy, noise = make(), 3.0
    free = estimated(strategy, noise)
    found = searched_nonnegative(strategy, free, noise)
    assert found.min() >= 0
    assert np.any(found == 0)
    image = strategy.apply(found - free).ravel()
    residual, positive = image.copy(), found > 0
    if heavy is not None:
        # What x says of a heavy row is rounded; a residual within that makes the slopes vanish.
        only = (np.arange(len(image)) == heavy).astype(float)
        row = strategy.apply_transpose(only).ravel()[positive]
        slope = strategy.apply_transpose(residual).ravel()[positive]
        residual[heavy] -= row @ slope / (row @ row)
    # For a residual r with A^T r >= 0, ||A (x - x*)||^2 <= ||A (x - x0) - r||^2 + 2 x^T A^T r.
    slope = strategy.apply_transpose(residual).ravel()
    size = float(np.linalg.norm(strategy.apply(np.eye(1, len(found)).ravel())[..., None]))
    size = size if heavy is None else 1.0
    assert np.linalg.norm(image - residual) <= 1e-3 * noise
    assert np.max(np.abs(slope[positive])) <= 1e-2 * noise * size
    assert np.min(slope) >= -1e-2 * noise * size
    assert np.max(slope) > 0.1 * noise * size  # so that a slope of 1 % is one of nothing


# Whether a badly scaled search converges depends on the last digits that a processor computes. So
# each way of failing is brought about by the limit that detects it, on any processor.
@pytest.mark.parametrize(
    ("limit", "value"),
    [
        ("_MOST_STEPS", 5),  # fewer steps than the stopping rule looks back on
        ("_NEGLIGIBLE", -1.0),  # no slope is small enough
        ("exchanged", lambda *_: None),  # the exchanges go in circles
    ],
)
def test_a_search_that_does_not_converge_raises(
    limit: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = with_weights((6, 10), 1.0, 30.0)
    free = estimated(strategy, 1.0)
    assert np.all(searched_nonnegative(strategy, free, 1.0) >= 0.0)
    monkeypatch.setattr(nonnegative, limit, value)
    with pytest.raises(CalibrationError, match="too many different weights"):
        searched_nonnegative(strategy, free, 1.0)


def test_a_slope_that_is_left_is_seen() -> None:
    """A search that stops early is not optimal, whatever its exchanges say."""
    strategy, noise = with_weights((6, 10), 1.0, 30.0), 1.0
    free = estimated(strategy, noise)
    search = nonnegative._Search(strategy, free, noise)
    positive = free > 0.0
    trial = search.attempt(positive)
    assert search.is_optimal(positive, trial)
    assert not search.is_optimal(positive, trial._replace(slope=trial.slope + 10.0 * noise))
    assert not search.is_optimal(positive, trial._replace(moved=trial.moved + 10.0 * noise))
