"""No allowance for rounding may be missing: each is shown by an input that it is there for."""

import math
from fractions import Fraction

import numpy as np
import pytest
from flint import acb_mat, arb, arb_mat, ctx
from numpy.typing import NDArray
from scipy import linalg

from matrixdp import InvalidParameterError
from matrixdp.mechanisms.matrix_mechanism import measured_sensitivity
from matrixdp.spectra import semidefinite_root
from matrixdp.workloads import (
    Dense,
    Identity,
    Prefix,
    Product,
    ProductStrategy,
    Ranges,
    Union,
    optimal,
    optimal_strategy,
)
from matrixdp.workloads.solve import certificate
from matrixdp.workloads.solve.certificate import certified_bound, certified_bound_from_queries
from matrixdp.workloads.solve.dual import DualPoint, Problem, dual_point
from matrixdp.workloads.solve.searches import ExplicitQueries, Found, FoundMatrix
from matrixdp.workloads.strategies.measuring import compensated_error
from matrixdp.workloads.strategies.strategy import LARGEST_TOTAL
from matrixdp.workloads.unions import bound as union_bound
from matrixdp.workloads.unions import search as unions
from reference import workloads as oracle

FloatArray = NDArray[np.float64]
UNIT = Fraction(1, 2**53)


@pytest.mark.parametrize("share", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("seed", range(4))
def test_a_gram_matrix_may_be_as_far_off_as_it_says(share: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = 10.0 ** rng.permutation([-4.0, -3.0, -2.0, 0.0])
    vectors = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    given = vectors @ np.diag([1.0, 2.0, 3.0, 4.0]) @ vectors.T
    given = (given + given.T) / 2
    # The worst error is at the cell of the largest weight.
    cell = int(np.argmax(weights))
    true = given.copy()
    true[cell, cell] -= share * np.trace(given) * 0.999
    point = dual_point(Problem(given, None), weights)
    truth = oracle.dual_value(true, point.weights)
    assert bool(certified_bound(given, 0.0, point) > truth)
    bound = certified_bound(given, share, point)
    assert bool(bound < truth)
    assert bool(truth * (1 - 1e5 * share - 1e-9) < bound)


@pytest.mark.parametrize("wrong", [1.001, 2.0, 1e3])
def test_a_point_that_is_wrong_proves_nothing_wrong(wrong: float) -> None:
    gram = Prefix(6).gram()
    right = dual_point(Problem.of(gram), np.linspace(0.5, 2.0, 6))
    truth = oracle.dual_value(gram, right.weights)
    turned = np.roll(right.vectors, 1, axis=1)
    points: list[DualPoint] = [
        right._replace(roots=right.roots * wrong),
        right._replace(vectors=right.vectors * wrong),
        right._replace(vectors=turned),
        right._replace(diagonal=right.diagonal * wrong),
    ]
    for point in points:
        assert bool(certified_bound(gram, 0.0, point) < truth)


@pytest.mark.parametrize("seed", range(20))
def test_roundings_of_the_scaled_matrix_are_allowed_for(seed: int) -> None:
    rng = np.random.default_rng(seed)
    queries = rng.standard_normal((3, 2)) / 3.0
    gram = queries.T @ queries
    point = dual_point(Problem(gram, None), rng.uniform(0.1, 1.0, 2))
    sides = [Fraction(math.sqrt(weight)) for weight in point.weights]
    # K as the floats of sides and Gram matrix say, without a rounding.
    exact = [
        [one * Fraction(float(gram[j, k])) * other for k, other in enumerate(sides)]
        for j, one in enumerate(sides)
    ]
    (a, b), (_, c) = exact
    ctx_saved, ctx.prec = ctx.prec, 300
    try:
        trace, determinant = (
            arb(part.numerator) / part.denominator for part in (a + c, a * c - b * b)
        )
        total = sum(side**2 for side in sides)
        truth = (trace + 2 * determinant.sqrt()) * total.denominator / total.numerator
    finally:
        ctx.prec = ctx_saved
    assert bool(truth > certified_bound(gram, 0.0, point))


@pytest.mark.parametrize("terms", [*range(1, 300), 1000, 4096, 8192, 2**20])
def test_compensated_errors_are_those_of_ogita_rump_and_oishi(terms: int) -> None:
    steps = (terms + 1) * UNIT
    exact = UNIT + (steps / (1 - steps)) ** 2
    bound = Fraction(compensated_error(terms))
    assert exact <= bound <= exact * (1 + 32 * UNIT)


@pytest.mark.parametrize("neighbouring", ["add-remove", "replace"])
def test_measured_sensitivities_are_rounded_up(neighbouring: str) -> None:
    rng = np.random.default_rng(7)
    for _ in range(40):
        strategy = ProductStrategy([rng.standard_normal((3, 3)), rng.standard_normal((2, 3))])
        relation = "replace" if neighbouring == "replace" else "add-remove"
        sensitivity = Fraction(strategy.sensitivity(relation))  # type: ignore[arg-type]
        error = 2 * Fraction(strategy.measurement_error) * LARGEST_TOTAL
        exact = sensitivity + error * Fraction(strategy.rounded_norm)
        found = Fraction(measured_sensitivity(strategy, relation))  # type: ignore[arg-type]
        assert exact <= found <= exact * (1 + Fraction(1, 2**48))


@pytest.mark.parametrize("lost", [1e-8, 1e-6, 1e-4])
def test_a_little_that_is_not_measured_is_seen(lost: float) -> None:
    workload, strategy = Dense([[1.0, 0.0]]), ProductStrategy([[[1.0, lost]]])
    with pytest.raises(InvalidParameterError, match="does not answer"):
        strategy.check_supports(workload)
    weighted = ProductStrategy([np.array([[1.0, lost], [0.0, 1.0]])], np.array([1.0, 0.0]))
    with pytest.raises(InvalidParameterError, match="leave out measurements"):
        weighted.check_supports(workload)
    ProductStrategy([np.eye(2)]).check_supports(workload)


@pytest.mark.parametrize("seed", range(8))
def test_products_of_bounds_are_rounded_down(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound that is exact on every attribute is one on their product, and so are sums of them."""
    rng = np.random.default_rng(seed)
    bounds = {size: 1.0 + rng.random() for size in (2, 3, 4, 5)}

    def exact(factor: Prefix, _: object) -> FoundMatrix:
        return Found(np.eye(factor.cells), bounds[factor.cells])

    monkeypatch.setattr(optimal, "certified_factor", exact)
    monkeypatch.setattr(unions, "certified_factor", exact)
    product = Product([Prefix(size) for size in bounds])
    truth = math.prod(Fraction(bound) for bound in bounds.values())
    found = optimal_strategy(product, neighbouring="add-remove").certificate.lower_bound
    assert truth * (1 - Fraction(1, 2**47)) <= Fraction(found) <= truth
    monkeypatch.setattr(optimal, "_MOST_CELLS_OF_A_UNION", 1)
    monkeypatch.setattr(unions, "weighted_strategies", lambda *_: Found((), 0.0))
    union = Union([product, Product([Prefix(2), Prefix(3), Ranges(4), Prefix(5)])])
    found = optimal_strategy(union, neighbouring="add-remove").certificate.lower_bound
    assert 2 * truth * (1 - Fraction(1, 2**47)) <= Fraction(found) <= 2 * truth


class Doubtful(Identity):
    """Cells whose Gram matrix may be off by a share of its trace, and says so."""

    @property
    def gram_error(self) -> float:
        return 1e-3


def test_spectra_allow_for_a_gram_matrix_that_is_off() -> None:
    roots, largest = certificate._sum_and_largest(Doubtful(5))
    error = 1e-3 * 5
    low, high = np.eye(5), np.eye(5)
    low[0, 0], high[0, 0] = 1.0 - error, 1.0 + error
    assert roots <= float(np.sum(np.sqrt(np.diag(low))))
    assert largest >= math.sqrt(1.0 + error)
    assert certificate._sum_and_largest(Doubtful(1))[1] >= math.sqrt(1.0 + 1e-3)
    roots, largest = certificate._sum_and_largest(Identity(5))
    assert roots == pytest.approx(5.0)
    assert largest == pytest.approx(1.0)


@pytest.fixture
def sides(monkeypatch: pytest.MonkeyPatch) -> list[FloatArray]:
    """Keep every F that a bound is proven with."""
    kept: list[FloatArray] = []
    balanced = certificate._balanced

    def keep(side: FloatArray) -> FloatArray:
        kept.append(balanced(side))
        return kept[-1]

    monkeypatch.setattr(certificate, "_balanced", keep)
    return kept


def exact_pair_bound(root_of: arb_mat, side: FloatArray) -> arb:
    """Return ``(tr M^(1/2))^2`` over the sum of positive weights on the pairs, for M positive."""
    values = acb_mat(root_of).eig(nonstop=True)
    roots = sum((oracle.root(value.real) for value in values), start=arb(0))
    rows = [[Fraction(entry) for entry in row] for row in side.tolist()]
    pair_weight = sum(
        max(-sum((a * b for a, b in zip(rows[j], rows[k], strict=True)), Fraction(0)), Fraction(0))
        for j in range(len(rows))
        for k in range(j)
    )
    return roots**2 * pair_weight.denominator / pair_weight.numerator


def laplacian(pairs: FloatArray) -> FloatArray:
    weights = np.triu(pairs, 1) + np.triu(pairs, 1).T
    return np.asarray(np.diag(weights.sum(axis=1)) - weights)


@pytest.mark.parametrize("seed", range(10))
def test_what_all_cells_share_is_lost_in_rounding_and_allowed_for(
    seed: int, sides: list[FloatArray]
) -> None:
    rng = np.random.default_rng(seed)
    gram = 2.0**36 * np.ones((5, 5)) + np.diag([1.0, 2.0, 3.0, 4.0, 5.0])
    bound = certificate.bound_from_pairs(
        ExplicitQueries(gram, 0.0, None), laplacian(rng.uniform(0.1, 1.0, (5, 5)))
    )
    saved, ctx.prec = ctx.prec, 600
    try:
        side = arb_mat(sides[0].tolist())
        truth = exact_pair_bound(side.transpose() * arb_mat(gram.tolist()) * side, sides[0])
        assert bool(truth > bound)
        assert bool(truth * 0.99 < bound)
    finally:
        ctx.prec = saved


@pytest.mark.parametrize("seed", range(10))
def test_answers_that_cancel_are_allowed_for(seed: int, sides: list[FloatArray]) -> None:
    rng = np.random.default_rng(seed)
    pairs = rng.uniform(0.1, 1.0, (6, 6))
    pairs[:3, 3:] = 0.0  # two halves that no pair joins
    queries = np.vstack([np.eye(6), [[0.0] * 3 + [2.0**40 / 3.0] * 3]])
    explicit = ExplicitQueries(queries.T @ queries, 0.0, lambda: queries)
    bound = certificate.bound_from_pairs(explicit, laplacian(pairs))
    saved, ctx.prec = ctx.prec, 600
    try:
        used = sides[0][:, sides[0].any(axis=0)]
        image = arb_mat((queries - queries[:, :1]).tolist()) * arb_mat(used.tolist())
        truth = exact_pair_bound(image.transpose() * image, sides[0])
        assert bool(truth > bound)
        assert bool(truth * 0.99 < bound)
    finally:
        ctx.prec = saved


class Adverse(np.ndarray):
    """Numbers whose products come out too large by all that rounding may do in some order."""

    def __matmul__(self, other: FloatArray) -> FloatArray:  # type: ignore[override]
        left, right = np.asarray(self), np.asarray(other)
        worst = left.shape[1] * 2.0**-53 * (np.abs(left) @ np.abs(right))
        return np.asarray(left @ right + worst)


def test_weights_on_pairs_are_never_taken_for_less(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = 64
    side = linalg.hadamard(cells)[:, 1:].astype(
        float
    )  # every column sums to 0, every two rows have the product -1
    assert np.array_equal(side @ side.T, cells * np.eye(cells) - 1.0)
    monkeypatch.setattr(certificate, "_balanced", lambda _: side.view(Adverse))
    monkeypatch.setattr(certificate, "_roots", lambda *_: 1.0)
    explicit = ExplicitQueries(np.eye(cells), 0.0, None)
    bound = certificate.bound_from_pairs(explicit, np.eye(cells))
    pair_weight = cells * (cells - 1) // 2
    assert Fraction(bound) <= Fraction(1, pair_weight)
    assert bound == pytest.approx(1 / pair_weight, rel=1e-10)


@pytest.mark.parametrize("stretch", [1.0 + 1e-6, 1.5])
def test_singular_vectors_that_are_too_long_prove_nothing_wrong(
    stretch: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = np.random.default_rng(3).standard_normal((5, 4))
    weights = np.linspace(0.5, 2.0, 4)
    values = np.linalg.svd(queries * np.sqrt(weights), compute_uv=False)
    truth = float(values.sum() ** 2 / weights.sum())
    decomposed = linalg.svd

    def wrong(*arguments: object, **options: object) -> tuple[FloatArray, FloatArray, FloatArray]:
        left, middle, right = decomposed(*arguments, **options)
        return left * stretch, middle * stretch, right

    monkeypatch.setattr(linalg, "svd", wrong)
    found = certified_bound_from_queries(queries, weights)
    assert 0.0 < found <= truth * (1 + 1e-12)


@pytest.mark.parametrize("off", [1e-9, 1e-6, 1e-3])
def test_roots_that_are_off_as_they_say_prove_nothing_wrong(
    off: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound of a union may not grow by what the roots of its Gram matrices are off."""
    workload = Union([Product([Prefix(5), Identity(4)]), Product([Identity(5), Ranges(4)])])
    weights = [np.full(5, 0.2), np.full(4, 0.25)]
    whole = np.multiply.outer(*weights).ravel()
    values = np.linalg.svd(workload.written_out() * np.sqrt(whole), compute_uv=False)
    truth = float(values.sum() ** 2)
    exact = semidefinite_root

    def wrong(matrix: FloatArray, error: float) -> tuple[FloatArray, float]:
        root, distance = exact(matrix, error)
        return root + off * np.eye(len(root)), distance + off * np.sqrt(len(root))

    before = union_bound.union_bound(workload, weights)
    monkeypatch.setattr(union_bound, "semidefinite_root", wrong)
    assert union_bound.union_bound(workload, weights) <= before * (1 + 1e-12) <= truth * (1 + 1e-9)
