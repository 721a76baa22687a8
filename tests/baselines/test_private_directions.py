"""Private directions: what they cost, what they find, and how they compose."""

import tracemalloc

import numpy as np
import pytest
from scipy import linalg

from matrixdp import IMGM, Budget, FrobeniusBall, InvalidParameterError, ReleaseKey
from matrixdp.audit import exposed_difference
from matrixdp.baselines import MVG, binary_precision, private_directions
from matrixdp.privacy import composed_mu

BALL = FrobeniusBall(0.01, neighbouring="replace")
BUDGET = Budget(1.0, 1e-5)
STRONG = np.array([0.6, 0.0, 0.8, 0.0])
MATRIX = 5.0 * np.outer(STRONG, np.array([0.0, 1.0, 0.0]))


@pytest.mark.parametrize("side", ["rows", "columns"])
def test_they_are_the_singular_vectors_of_a_private_release(side: str) -> None:
    found = private_directions(
        MATRIX,
        BALL,
        BUDGET,
        side=side,  # type: ignore[arg-type]
        key=ReleaseKey.from_bytes(bytes(32)),
    )
    released = IMGM(BALL, BUDGET).release(MATRIX, key=ReleaseKey.from_bytes(bytes(32)))
    vectors = linalg.svd(released.value if side == "rows" else released.value.T)[0]
    np.testing.assert_array_equal(found.directions, vectors)
    assert found.guarantee == released.guarantee
    strongest = STRONG if side == "rows" else np.array([0.0, 1.0, 0.0])
    assert abs(found.directions[:, 0] @ strongest) > 0.99


def test_little_budget_hides_the_directions() -> None:
    # With a sensitivity as large as the matrix the direction must not be found: over 200 releases
    # the squared cosine with the true one averages 1/4 in four dimensions.
    wide = FrobeniusBall(5.0, neighbouring="replace")
    bits = np.random.default_rng(4)
    squares = []
    for _ in range(200):
        key = ReleaseKey.from_bytes(bits.bytes(32))
        found = private_directions(MATRIX, wide, Budget(0.01, 1e-5), key=key)
        squares.append(float(found.directions[:, 0] @ STRONG) ** 2)
    assert 0.18 < np.mean(squares) < 0.32


def test_both_parts_cost_the_whole_budget_and_no_more() -> None:
    first, second = BUDGET.split([1, 3])
    found = private_directions(MATRIX, BALL, first)
    mechanism = MVG(
        BALL,
        second,
        shape=MATRIX.shape,
        norm_bound=5.0,
        directions=found.directions,
        precision=binary_precision(4, important=[0], share=0.9),
    )
    together = composed_mu([found.guarantee.mu, mechanism.guarantee.mu])
    assert together <= BUDGET.mu
    mechanism.release(MATRIX)


def test_bad_side_costs_nothing() -> None:
    key = ReleaseKey.generate()
    with pytest.raises(InvalidParameterError, match="side='both'"):
        private_directions(MATRIX, BALL, BUDGET, side="both", key=key)  # type: ignore[arg-type]
    key.check_unbound()


@pytest.mark.parametrize("shape", [(2, 60_000), (60_000, 2)])
def test_a_long_side_is_never_squared(shape: tuple[int, int]) -> None:
    # A matrix of 60,000 by 60,000 takes 29 GB; the answer itself takes 1 MB.
    short, long = ("rows", "columns") if shape[0] == 2 else ("columns", "rows")
    matrix = np.zeros(shape)
    first, second = BUDGET.split(2)
    tracemalloc.start()
    try:
        found = private_directions(matrix, BALL, first, side=short)  # type: ignore[arg-type]
        mechanism = MVG(
            BALL,
            second,
            shape=shape,
            norm_bound=1.0,
            side=short,  # type: ignore[arg-type]
            directions=found.directions,
            precision=[0.7, 0.3],
        )
        release = mechanism.release(matrix)
        mechanism.simulate(matrix, np.random.default_rng(1))
        exposed_difference(mechanism, shape)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.directions.shape == (2, 2)
    assert np.shape(release.value) == shape
    assert peak < 60e6
    key = ReleaseKey.generate()
    with pytest.raises(InvalidParameterError, match=f"side='{long}' has 60000 directions"):
        private_directions(matrix, BALL, first, side=long, key=key)  # type: ignore[arg-type]
    key.check_unbound()
