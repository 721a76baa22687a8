"""Lower bounds hold in exact arithmetic, and are close to what they bound."""

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from scipy import linalg

from matrixdp.spectra import nuclear_norm_lower_bound
from matrixdp.workloads import Dense, Identity, Prefix, Product, Ranges, Total, Union, Workload
from matrixdp.workloads.optimal import optimal_strategy
from matrixdp.workloads.solve.certificate import (
    _balanced,
    _image,
    _largest_distance_squared,
    bound_from_pairs,
    bound_from_spectra,
    certified_bound,
    certified_bound_from_queries,
)
from matrixdp.workloads.solve.dual import Problem, dual_point
from matrixdp.workloads.solve.searches import ExplicitQueries
from reference import workloads as oracle


@pytest.mark.parametrize("seed", range(6))
def test_nuclear_norms_from_below(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 9)), int(rng.integers(1, 9)))
    matrix = rng.standard_normal(shape) * 10.0 ** rng.uniform(-5, 5, shape)
    left, _, right = linalg.svd(matrix, full_matrices=False)
    truth = oracle.nuclear_norm(matrix)
    bound = nuclear_norm_lower_bound(matrix, left, right)
    assert bool(truth > bound)
    assert bool(truth * (1 - 1e-12) < bound)
    # Whatever it is given for singular vectors, it does not claim more; nor, turned, anything.
    for wrong in (1.5, 0.5, -1.0):
        assert bool(truth > nuclear_norm_lower_bound(matrix, wrong * left, right))
    assert nuclear_norm_lower_bound(matrix, -left, right) == 0.0


@pytest.mark.parametrize("seed", range(4))
def test_bounds_from_queries_see_what_squares_hide(seed: int) -> None:
    rng = np.random.default_rng(seed)
    queries = rng.integers(-3, 4, (6, 5)) * 10.0 ** rng.integers(0, 7, (6, 1)) + np.eye(6, 5)
    weights = 10.0 ** rng.uniform(-6, 0, 5)
    truth = oracle.dual_value(queries.T @ queries, np.square(np.sqrt(weights)))
    bound = certified_bound_from_queries(queries, weights)
    assert bool(truth > bound)
    assert bool(truth * (1 - 1e-10) < bound)
    point = dual_point(Problem.of(queries.T @ queries), weights)
    assert bool(oracle.dual_value(queries.T @ queries, point.weights) > 0)
    assert certified_bound(queries.T @ queries, 0.0, point) <= bound * (1 + 1e-9)


REPLACED: list[Workload] = [
    Prefix(6),
    Ranges(5),
    Dense([[1.0, 0.5, 0.0], [0.0, 0.25, -1.0]]),
    Dense([[1e5, 1e5 + 1, 1e5 - 2], [3.0, 1e-3, 0.0]]),
    Dense(np.random.default_rng(5).standard_normal((9, 4))),
    Union([Prefix(4), Ranges(4, longest=2)]),
]


SUMS = Union([Product([Prefix(2), Total(3)]), Product([Total(2), Ranges(3)])])


@pytest.mark.parametrize("workload", REPLACED, ids=repr)
def test_bounds_from_pairs(workload: Workload) -> None:
    rng = np.random.default_rng(1)
    cells = workload.cells
    pairs = np.triu(rng.uniform(0.1, 1.0, (cells, cells)), 1)
    pairs += pairs.T
    laplacian = np.diag(pairs.sum(axis=1)) - pairs
    truth = oracle.replacement_dual_value(oracle.dense(workload), pairs)
    bound = bound_from_pairs(ExplicitQueries.of(workload), laplacian)
    # The weights are rounded to a grid, so that it is the bound at a point next to the one given.
    assert bool(truth * (1 + 1e-10) > bound)
    assert bool(truth * (1 - 1e-6) < bound)
    # Weights that were wrong would give another bound, still a true one.
    best = optimal_strategy(workload, neighbouring="replace").certificate
    assert bound <= best.value
    assert bound_from_pairs(ExplicitQueries.of(workload), 3.0 * laplacian) == pytest.approx(bound)
    assert bound_from_pairs(ExplicitQueries.of(workload), laplacian + np.eye(cells)) <= best.value


@pytest.mark.parametrize("workload", [*REPLACED, Identity(7), SUMS, Product([Total(3), Prefix(3)])])
def test_bounds_from_spectra_are_below_the_optimum(workload: Workload) -> None:
    best = optimal_strategy(workload, neighbouring="replace").certificate
    bound = bound_from_spectra(workload)
    assert 0.0 < bound <= best.value
    assert bound_from_spectra(Dense([[1.0, 4.0, 2.0]])) == pytest.approx(9.0, rel=1e-9)
    assert bound_from_spectra(Identity(7)) == pytest.approx(12.0, rel=1e-9)


@pytest.mark.parametrize("largest", [4.0, 2.0**18, 2.0**40])
def test_products_with_a_whole_gram_matrix_are_off_by_no_more_than_is_said(largest: float) -> None:
    rng = np.random.default_rng(int(math.log2(largest)))
    side = _balanced(rng.standard_normal((9, 6)))
    gram = np.rint(rng.uniform(-largest, largest, (9, 9)))
    image, error = _image(gram, side)
    exact = [
        [
            sum(Fraction(float(gram[row, k])) * Fraction(float(side[k, column])) for k in range(9))
            for column in range(6)
        ]
        for row in range(9)
    ]
    for row, column in np.ndindex(9, 6):
        off = abs(Fraction(float(image[row, column])) - exact[row][column])
        assert off <= Fraction(float(error[row, column])) * (1 + Fraction(1, 2**40))
    # Small entries make exact products, whose sum alone rounds.
    assert bool(np.all(error <= 2.0**-53 * np.abs(image))) == (largest < 2.0**30)


@pytest.mark.parametrize("seed", range(12))
def test_largest_distances_of_columns_that_nearly_agree_are_not_overstated(seed: int) -> None:
    matrix = np.random.default_rng(seed).uniform(300.3, 301.3, (3, 40))
    columns = [[Fraction(float(entry)) for entry in column] for column in matrix.T]
    exact = max(
        sum((x - y) ** 2 for x, y in zip(one, other, strict=True))
        for one, other in combinations(columns, 2)
    )
    assert Fraction(_largest_distance_squared(Dense(matrix))) <= exact
