"""The coarse table is the proven one, and the proof can fail."""

from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx

from matrixdp.errors import MatrixDPError
from matrixdp.noise.proofs.coarse_certificate import (
    COARSE_CUT,
    implied_quadratic,
    make_coarse_table,
    prove_coarse_table,
)
from matrixdp.noise.proofs.segments import Segment
from matrixdp.noise.specification import coarse_table as coarse_module
from matrixdp.noise.specification.coarse_table import (
    COARSE_CENTRE,
    COARSE_DIGEST,
    COARSE_FIRST_COLUMN,
    COARSE_FRACTION_MASK,
    COARSE_SEGMENT_BITS,
    COARSE_STEP_ERROR,
    ROOT_TWO,
    load_coarse_table,
    unpacked,
)
from matrixdp.noise.specification.table import (
    BINADES,
    GRID_BITS,
    ONE_BITS,
    UNIFORM_BITS,
    table_digest,
)
from reference.noise import inverse_tail

LAST = (1 << COARSE_SEGMENT_BITS) - 1
SOME_SEGMENTS = [Segment(COARSE_CUT, *segment) for segment in [(-BINADES, 0), (-5, 77), (-1, LAST)]]


def test_the_script_makes_the_shipped_table() -> None:
    made = make_coarse_table()
    assert table_digest(made) == COARSE_DIGEST
    assert np.array_equal(made, load_coarse_table())


def test_the_bound_is_proved_and_not_wasteful() -> None:
    bound = prove_coarse_table(load_coarse_table())
    assert 0.99 * COARSE_STEP_ERROR < bound <= COARSE_STEP_ERROR


@pytest.mark.parametrize("segment", SOME_SEGMENTS)
@pytest.mark.parametrize("bit", [35, 24])  # of c0, and of a
def test_a_wrong_number_is_not_proved(segment: Segment, bit: int) -> None:
    table = load_coarse_table()
    assert prove_coarse_table(table, [segment]) <= COARSE_STEP_ERROR
    wrong = table.copy()
    wrong[segment.column] ^= np.int64(1) << bit
    assert prove_coarse_table(wrong, [segment]) > COARSE_STEP_ERROR


@pytest.mark.parametrize("column", [0, -1])
def test_a_missing_sentinel_is_refused(column: int) -> None:
    wrong = load_coarse_table().copy()
    wrong[column] = wrong[1]
    with pytest.raises(MatrixDPError, match="must be NaN"):
        prove_coarse_table(wrong)


def test_a_damaged_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coarse_module, "COARSE_DIGEST", "0" * 64)
    with pytest.raises(MatrixDPError, match=r"coarse\.bin of this installation is not the proven"):
        coarse_module.load_coarse_table.__wrapped__()


def evaluations(c0: float, a: float, t: float) -> tuple[Fraction, float, float]:
    """Evaluate the polynomial exactly, with a rounding each time, and fused where possible."""
    q = a * t
    exact = Fraction(a) * Fraction(t)
    exact = Fraction(c0) * exact**2 - Fraction(ROOT_TWO) * exact + Fraction(c0)
    inner = float(Fraction(c0) * Fraction(q) - Fraction(ROOT_TWO))
    fused = float(Fraction(inner) * Fraction(q) + Fraction(c0))
    return exact, (c0 * q - ROOT_TWO) * q + c0, fused


def worst_rounding(share: Fraction) -> Fraction:
    """Return the largest rounding error of the polynomial as a part of a share of its bound."""
    rng = np.random.default_rng(9)
    worst = Fraction(0)
    heights, factors = unpacked(load_coarse_table())
    for column in rng.integers(1, heights.size - 1, 200):
        c0, a = float(heights[column]), float(factors[column])
        with ctx.workprec(200):
            computed = implied_quadratic(c0, a).computed
            error = Fraction(float(computed.error.mid()))
            magnitude = Fraction(float(computed.magnitude.mid()))
        low_bits = [0, COARSE_FRACTION_MASK, *(int(k) for k in rng.integers(0, 1 << 44, 40))]
        for bits in low_bits:
            t = float(np.int64(bits | ONE_BITS).view(np.float64)) - COARSE_CENTRE
            exact, plain, fused = evaluations(c0, a, t)
            assert max(abs(plain), abs(fused)) <= magnitude
            found = max(abs(Fraction(plain) - exact), abs(Fraction(fused) - exact))
            worst = max(worst, found / (error * share))
    return worst


def test_rounding_stays_within_its_bound() -> None:
    assert worst_rounding(Fraction(1)) <= 1
    assert worst_rounding(Fraction(1, 4)) > 1


def coarse_normal(uniform: int) -> float:
    """Evaluate the table in plain Python floats, independently of the kernel."""
    bits = int(np.float64(uniform).view(np.int64))
    column = max((bits >> (52 - COARSE_SEGMENT_BITS)) - COARSE_FIRST_COLUMN, 0)
    t = float(np.int64((bits & COARSE_FRACTION_MASK) | ONE_BITS).view(np.float64)) - COARSE_CENTRE
    c0, a = (float(numbers[column]) for numbers in unpacked(load_coarse_table()))
    return (c0 * (a * t) - ROOT_TWO) * (a * t) + c0


def test_the_bound_holds_against_ball_arithmetic() -> None:
    # Independent of the proof: the polynomial at edges and centres against w.
    rng = np.random.default_rng(4)
    worst = 0.0
    for segment in COARSE_CUT.segments():
        if segment.index not in {0, LAST} and rng.random() > 0.02:
            continue
        width = 1 << (UNIFORM_BITS + segment.exponent - COARSE_SEGMENT_BITS)
        left = width * ((1 << COARSE_SEGMENT_BITS) + segment.index)
        for uniform in {left, left + width // 2, left + width - max(1, width >> 45)}:
            error = abs(float(inverse_tail(uniform, UNIFORM_BITS, 160) - coarse_normal(uniform)))
            worst = max(worst, error * 2 ** (GRID_BITS + 1))
    assert 0.5 * COARSE_STEP_ERROR < worst < COARSE_STEP_ERROR


def test_the_derivatives_make_the_third_coefficient() -> None:
    # w'' = w w'**2, by differences of w in ball arithmetic.
    with ctx.workprec(400):
        for numerator in (1, 300, 700, 1000):
            below, here, above = (
                inverse_tail((numerator << 100) + shift, 110) for shift in (-1, 0, 1)
            )
            step = arb(2) ** -110
            first, second = (above - below) / (2 * step), (above - 2 * here + below) / step**2
            assert abs(float(second / (here * first**2)) - 1.0) < 1e-12
