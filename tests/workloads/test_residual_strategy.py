"""Tables measured set by set: against dense matrices, exact rationals and closed forms."""

import copy
import math
import pickle
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matrixdp import InvalidParameterError
from matrixdp.errors import ShapeError
from matrixdp.workloads import (
    Dense,
    Prefix,
    Product,
    Ranges,
    ResidualStrategy,
    Total,
    Union,
    Workload,
    marginals,
)
from matrixdp.workloads.strategies import set_distances
from matrixdp.workloads.strategies.residual_answers import (
    contrast_scales,
    spread_contrasts,
    whole_contrasts,
)
from matrixdp.workloads.strategies.set_distances import SetDistances, diameter_squared
from reference import workloads as oracle

RNG = np.random.default_rng(5)


@st.composite
def strategies(draw: st.DrawFn) -> ResidualStrategy:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    varied = [index for index, size in enumerate(sizes) if size > 1]
    subsets = [kept for many in range(len(varied) + 1) for kept in combinations(varied, many)]
    sets = draw(st.lists(st.sampled_from(subsets), min_size=1, unique=True))
    weights = [draw(st.floats(2.0**-8, 2.0**8)) for _ in sets]
    return ResidualStrategy(sizes, sets, weights)


@given(strategies())
@settings(max_examples=60)
def test_every_operator_is_that_of_the_dense_matrix(strategy: ResidualStrategy) -> None:
    dense = oracle.dense_strategy(strategy)
    assert strategy.shape == dense.shape
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 1000, strategy.dimensions).astype(float)
    values = rng.standard_normal(strategy.dimensions)
    noise = rng.standard_normal(strategy.shape[0])
    for found, expected in (
        (strategy.written_out(), dense),
        (strategy.apply(values), dense @ values.ravel()),
        (strategy.apply_transpose(noise).ravel(), dense.T @ noise),
        (strategy.measure(counts), dense @ counts.ravel()),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-7)
    # The rows are orthogonal, so that the pseudo-inverse is the transpose over the squared norms.
    inverse = dense.T / np.sum(np.square(dense), axis=1)
    np.testing.assert_allclose(dense @ inverse, np.eye(len(dense)), atol=1e-9)
    np.testing.assert_allclose(strategy.reconstruct(noise), inverse @ noise, rtol=1e-9, atol=1e-9)


@given(strategies())
@settings(max_examples=40)
def test_sensitivities_cover_the_exact_ones_and_no_more(strategy: ResidualStrategy) -> None:
    columns = oracle.exact_columns(strategy)
    norms = [oracle.norm_squared(column) for column in columns]
    claimed = Fraction(strategy.sensitivity("add-remove")) ** 2
    assert max(norms) <= claimed <= min(norms) * (1 + Fraction(1, 2**40))
    distance = oracle.diameter_squared(columns) if len(columns) > 1 else Fraction(0)
    if distance == 0:
        with pytest.raises(InvalidParameterError, match="public"):
            strategy.sensitivity("replace")
    else:
        claimed = Fraction(strategy.sensitivity("replace")) ** 2
        assert distance <= claimed <= distance * (1 + Fraction(1, 2**36))


def test_distances_are_those_of_records_that_differ_in_a_set() -> None:
    sizes, sets = (2, 3, 5), [0b001, 0b011, 0b110, 0b111]
    found = SetDistances(np.array(sets), sizes)
    for differing in product((0, 1), repeat=3):
        index = sum(bit << at for at, bit in enumerate(differing))
        for at, members in enumerate(sets):
            shared = [sizes[i] for i in range(3) if members >> i & 1 and differing[i]]
            expected = 1 - math.prod(Fraction(-1, size - 1) for size in shared)
            unit = np.eye(len(sets))[at]
            assert found.apply(unit)[index] == pytest.approx(float(expected), abs=1e-14)
            chosen = np.eye(8)[index]
            assert found.apply_transpose(chosen)[at] == pytest.approx(float(expected), abs=1e-14)


def test_beyond_twenty_attributes_the_diameter_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    sets = np.array([0b001, 0b011, 0b110, 0b111])
    precisions = np.array([1.0, 2.0, 0.5, 3.0])
    exact = diameter_squared(sets, precisions, (2, 3, 5))
    monkeypatch.setattr(set_distances, "MOST_VARIED", 2)
    bound = diameter_squared(sets, precisions, (2, 3, 5))
    assert exact <= bound <= 2 * exact  # never more than 1 + 1 / (n - 1) times the mean distance
    many = ResidualStrategy([3] * 30, [(at,) for at in range(30)], np.ones(30))
    # Records that differ everywhere: 30 times 2 (1 - 1/3) (1 + 1/2), which is 2 for each attribute.
    assert many.diameter**2 == pytest.approx(60.0, rel=1e-12)


@pytest.mark.parametrize("cells", [2, 3, 7, 100])
def test_contrasts_are_an_orthonormal_basis(cells: int) -> None:
    rows = whole_contrasts(np.eye(cells, dtype=np.int64), [0])
    assert rows.dtype == np.int64
    assert not rows.sum(axis=1).any()
    gram = rows @ rows.T
    np.testing.assert_array_equal(gram, np.diag([j * (j + 1) for j in range(1, cells)]))
    basis = contrast_scales(cells)[:, None] * rows
    np.testing.assert_allclose(spread_contrasts(np.eye(cells - 1), [0]), basis.T, atol=1e-14)
    for row, scale in enumerate(contrast_scales(cells).tolist()):
        off = Fraction(scale) ** 2 * (row + 1) * (row + 2) - 1
        assert abs(off) <= 5 * Fraction(1, 2**53)


def test_contrasts_of_the_most_records_are_exact() -> None:
    # 2**26 cells times 2**30 records are 2**56; so are 2**20 cells times 2**36.
    table = np.zeros((2**10, 2**10), dtype=np.int64)
    table[-1, -1] = 2**36 - 1
    found = whole_contrasts(table, [0, 1])
    assert found[-1, -1] == (2**10 - 1) ** 2 * (2**36 - 1)
    assert np.count_nonzero(found) == 1


@pytest.mark.parametrize(
    "workload",
    [
        Product([Prefix(3), Total(1), Ranges(4)]),
        Union([Product([Dense([[1.0, -2.0, 0.5]]), Total(1), Total(4)])] * 2),
        marginals([3, 1, 4], [(0, 2), (), (1,)]),
    ],
    ids=repr,
)
def test_other_queries_are_answered_from_the_components(workload: Workload) -> None:
    strategy = ResidualStrategy([3, 1, 4], [(), (2,), (0,), (0, 2)], [0.5, 2.0, 0.75, 1.0])
    response = oracle.dense(workload) @ np.linalg.pinv(oracle.dense_strategy(strategy))
    noise = RNG.standard_normal(strategy.shape[0])
    np.testing.assert_allclose(strategy.answers(workload, noise), response @ noise, atol=1e-12)
    variances = np.sum(np.square(response), axis=1)
    np.testing.assert_allclose(strategy.query_variances(workload), variances, rtol=1e-11)
    assert strategy.squared_error(workload) == pytest.approx(variances.sum(), rel=1e-11)


def test_measurements_are_rounded_by_no_more_than_is_claimed() -> None:
    strategy = ResidualStrategy([3, 7], [(), (0,), (1,), (0, 1)], [0.3, 0.7, 1.1, 0.9])
    counts = RNG.multinomial(2**30, RNG.dirichlet(np.ones(21))).reshape(3, 7)
    measured = strategy.measure(counts.astype(float)).tolist()
    worst = Fraction(0)
    for row, found in zip(zip(*oracle.exact_columns(strategy), strict=True), measured, strict=True):
        terms = [entry * count for entry, count in zip(row, counts.ravel().tolist(), strict=True)]
        allowed = sum(map(abs, terms), Fraction(0))
        worst = max(worst, abs(Fraction(found) - sum(terms, Fraction(0))) / allowed)
    assert 0 < worst <= Fraction(strategy.measurement_error)


def test_the_total_is_exact_with_a_power_of_two_only() -> None:
    assert ResidualStrategy([4], [()], [0.25]).rounded_norm == 0.0
    assert ResidualStrategy([4], [()], [0.3]).rounded_norm >= 0.3
    both = ResidualStrategy([4], [(), (0,)], [64.0, 1.0])
    assert both.rounded_norm == pytest.approx(math.sqrt(0.75), rel=1e-12)


@pytest.mark.parametrize(
    ("sizes", "sets", "weights", "message"),
    [
        ([], [()], [1.0], "from 1 to 62"),
        ([2] * 63, [()], [1.0], "from 1 to 62"),
        ([0], [()], [1.0], "dimensions=0"),
        ([2, 3], [], [], "at least one"),
        ([2, 3], [(0, 1), (1, 0)], [1.0, 1.0], "each of them once"),
        ([2, 3], [(0, 0)], [1.0], "every attribute once"),
        ([2, 3], [(2,)], [1.0], "from 0 to 1"),
        ([2, 3], [(True,)], [1.0], "from 0 to 1"),
        ([2, 1], [(1,)], [1.0], "two or more cells"),
        ([2, 3], [(0,)], [0.0], "positive"),
        ([2, 3], [(0,)], [2.0**21], "scale them"),
        ([2, 3], [(0,)], [1.0, 2.0], "pass 1 numbers"),
        ([8192, 8192, 2], [(0, 1, 2)], [1.0], "merge their cells"),
        ([4096] * 8, [*combinations(range(8), 2)], np.ones(28), "fewer attributes"),
    ],
)
def test_strategies_that_cannot_be_are_refused(
    sizes: list[int], sets: list[tuple[int, ...]], weights: list[float], message: str
) -> None:
    with pytest.raises((InvalidParameterError, ShapeError), match=message):
        ResidualStrategy(sizes, sets, weights)


def test_copies_stay_read_only() -> None:
    strategy = ResidualStrategy([2, 3], [(), (1,)], [1.0, 0.5])
    for again in (copy.deepcopy(strategy), pickle.loads(pickle.dumps(strategy))):  # noqa: S301
        assert (again.dimensions, again.sets) == (strategy.dimensions, strategy.sets)
        assert not again.weights.flags.writeable
        assert again.sensitivity("replace") == strategy.sensitivity("replace")


def test_what_is_not_measured_is_not_answered() -> None:
    strategy = ResidualStrategy([2, 3], [(), (0,), (1,)], [1.0, 1.0, 1.0])
    strategy.check_supports(marginals([2, 3], [(0,), (1,)]))
    with pytest.raises(InvalidParameterError, match=r"attributes \(0, 1\) together"):
        strategy.check_supports(marginals([2, 3], [(0, 1)]))
    with pytest.raises(ShapeError, match="laid out"):
        strategy.check_supports(marginals([3, 2], [(0,)]))
    with pytest.raises(InvalidParameterError, match="together"):
        strategy.query_variances(Product([Prefix(2), Prefix(3)]))


def test_tables_must_be_whole_and_of_the_right_shape() -> None:
    strategy = ResidualStrategy([2, 3], [(0,), (1,)], [1.0, 1.0])
    first, second = np.array([1, 2]), np.array([0, 1, 2])
    assert strategy.measure_tables({(0,): first, (1,): second}).shape == (3,)
    with pytest.raises(ShapeError, match=r"shape \(3,\)"):
        strategy.measure_tables({(0,): first})
    with pytest.raises(InvalidParameterError, match="int64"):
        strategy.measure_tables({(0,): first, (1,): second.astype(float)})


def test_a_histogram_that_does_not_fit_in_memory_is_not_estimated() -> None:
    strategy = ResidualStrategy([1000] * 4, [(), (0,)], [1.0, 1.0])
    with pytest.raises(InvalidParameterError, match="ask for tables"):
        strategy.reconstruct(np.zeros(1000))
