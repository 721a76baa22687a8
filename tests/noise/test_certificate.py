"""The shipped table is the proven one, and the proof can fail."""

import hashlib
from importlib.resources import files

import numpy as np
import pytest

from matrixdp.errors import MatrixDPError
from matrixdp.noise import table as table_module
from matrixdp.noise.certificate import Segment, make_table, prove_table, segments
from matrixdp.noise.table import (
    BINADES,
    CENTRE,
    FIRST_COLUMN,
    FRACTION_MASK,
    GRID_BITS,
    ONE_BITS,
    SEGMENT_BITS,
    STEP_ERROR,
    TABLE_DIGEST,
    UNIFORM_BITS,
    coefficients,
    load_table,
    table_digest,
)
from reference.noise import inverse_tail


def test_the_script_makes_the_shipped_table() -> None:
    made = make_table()
    assert table_digest(made) == TABLE_DIGEST
    assert np.array_equal(made, load_table())
    content = files("matrixdp.noise").joinpath("table.bin").read_bytes()
    assert hashlib.sha256(content).hexdigest() == TABLE_DIGEST


def test_the_bound_is_proved_and_not_wasteful() -> None:
    bound = prove_table(load_table())
    assert bound <= STEP_ERROR
    assert bound > 0.99 * STEP_ERROR


@pytest.mark.parametrize("row", [0, 1, 2])
@pytest.mark.parametrize("segment", [Segment(-BINADES, 0), Segment(-5, 77), Segment(-1, 255)])
def test_a_wrong_coefficient_is_not_proved(row: int, segment: Segment) -> None:
    wrong = load_table().copy()
    # A relative error of about 1e-9 in c0, 1e-6 in c1, 1e-4 in c2: small, but beyond the bound.
    wrong[row, segment.column] += np.int64(1) << (30 if row == 0 else 38 if row == 1 else 46)
    assert prove_table(wrong) > STEP_ERROR


def test_a_wrong_c3_is_not_proved() -> None:
    wrong = load_table().copy()
    wrong[2, Segment(-1, 200).column] ^= 1 << 20
    assert prove_table(wrong) > STEP_ERROR


def test_columns_in_the_wrong_order_are_not_proved() -> None:
    wrong = load_table().copy()
    wrong[:, [1000, 1001]] = wrong[:, [1001, 1000]]
    assert prove_table(wrong) > STEP_ERROR


def test_a_missing_sentinel_is_refused() -> None:
    wrong = load_table().copy()
    wrong[:, -1] = wrong[:, -2]
    with pytest.raises(MatrixDPError, match="must be NaN"):
        prove_table(wrong)


def test_a_damaged_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "TABLE_DIGEST", "0" * 64)
    with pytest.raises(MatrixDPError, match="not the proven one"):
        table_module.load_table.__wrapped__()


def fast_normal(uniform: int) -> float:
    """Evaluate the table in plain Python floats, independently of the kernels."""
    bits = int(np.float64(uniform).view(np.int64))
    column = max((bits >> (52 - SEGMENT_BITS)) - FIRST_COLUMN, 0)
    t = float(np.int64((bits & FRACTION_MASK) | ONE_BITS).view(np.float64)) - CENTRE
    c0, c1, c2, c3 = (float(c) for c in coefficients(load_table())[:, column])
    return ((c3 * t + c2) * t + c1) * t + c0


def test_the_bound_holds_against_ball_arithmetic() -> None:
    # Independent of the proof: the polynomial at the edges and the centre of segments from
    # everywhere, against w at both ends of the interval that the 63 bits leave open.
    rng = np.random.default_rng(4)
    chosen = [s for s in segments() if s.index in {0, 255} or rng.random() < 0.02]
    worst = 0.0
    for segment in chosen:
        width = 1 << (UNIFORM_BITS + segment.exponent - SEGMENT_BITS)
        left = width * ((1 << SEGMENT_BITS) + segment.index)
        for uniform in {left, left + width // 2, left + width - max(1, width >> 45)}:
            for end in (uniform, uniform + 1):
                true = inverse_tail(end, UNIFORM_BITS, 160)
                error = abs(float(true - fast_normal(uniform)))
                worst = max(worst, error * 2 ** (GRID_BITS + 1))
    assert 0.5 * STEP_ERROR < worst < STEP_ERROR
