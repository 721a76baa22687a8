"""The shipped table is the proven one, and the proof can fail."""

import hashlib
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from flint import arb, ctx

from matrixdp.errors import MatrixDPError
from matrixdp.noise.proofs import shipped as shipped_module
from matrixdp.noise.proofs.certificate import FINE_CUT, horner, make_table, prove_table
from matrixdp.noise.proofs.segments import Segment
from matrixdp.noise.proofs.shipped import SHIPPED, main
from matrixdp.noise.specification import table as table_module
from matrixdp.noise.specification.table import (
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
    content = files("matrixdp.noise.specification").joinpath("table.bin").read_bytes()
    assert hashlib.sha256(content).hexdigest() == TABLE_DIGEST


def test_the_bound_is_proved_and_not_wasteful() -> None:
    bound = prove_table(load_table())
    assert bound <= STEP_ERROR
    assert bound > 0.99 * STEP_ERROR


@pytest.mark.thorough  # the tables are made and proved by other tests
def test_the_script_writes_what_it_proves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["make", str(tmp_path)])
    told = capsys.readouterr().out
    for shipped in SHIPPED:
        digest = table_digest(shipped.load())
        assert hashlib.sha256((tmp_path / shipped.file).read_bytes()).hexdigest() == digest
        assert f"{shipped.file}: SHA-256 {digest}" in told


@pytest.mark.parametrize("number", range(len(SHIPPED)))
def test_the_script_says_when_nothing_is_proved(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    unproven = replace(SHIPPED[number], bound=SHIPPED[number].bound / 2)
    monkeypatch.setattr(shipped_module, "SHIPPED", (unproven,))
    with pytest.raises(SystemExit, match=f"NOT PROVEN: the bound of {unproven.file}"):
        main([])


SOME_SEGMENTS = [Segment(FINE_CUT, -BINADES, 0), Segment(FINE_CUT, -5, 77)]
SOME_SEGMENTS += [Segment(FINE_CUT, -1, (1 << SEGMENT_BITS) - 1)]


@pytest.mark.parametrize("row", [0, 1, 2])
@pytest.mark.parametrize("segment", SOME_SEGMENTS)
def test_a_wrong_coefficient_is_not_proved(row: int, segment: Segment) -> None:
    wrong = load_table().copy()
    assert prove_table(wrong, [segment]) <= STEP_ERROR
    # A relative error of about 1e-9 in c0, 1e-6 in c1, 1e-4 in c2: small, but beyond the bound.
    wrong[row, segment.column] += np.int64(1) << (30 if row == 0 else 38 if row == 1 else 46)
    assert prove_table(wrong, [segment]) > STEP_ERROR


def test_a_wrong_c3_is_not_proved() -> None:
    wrong = load_table().copy()
    segment = Segment(FINE_CUT, -1, 200)
    wrong[2, segment.column] ^= 1 << 20
    assert prove_table(wrong, [segment]) > STEP_ERROR


def test_columns_in_the_wrong_order_are_not_proved() -> None:
    wrong = load_table().copy()
    exchanged = [segment for segment in FINE_CUT.segments() if segment.column in {1000, 1001}]
    assert prove_table(wrong, exchanged) <= STEP_ERROR
    wrong[:, [1000, 1001]] = wrong[:, [1001, 1000]]
    assert prove_table(wrong, exchanged) > STEP_ERROR


def test_a_missing_sentinel_is_refused() -> None:
    wrong = load_table().copy()
    wrong[:, -1] = wrong[:, -2]
    with pytest.raises(MatrixDPError, match="must be NaN"):
        prove_table(wrong)


def test_a_damaged_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "TABLE_DIGEST", "0" * 64)
    with pytest.raises(MatrixDPError, match="not the proven one"):
        table_module.load_table.__wrapped__()


def coordinates(rng: np.random.Generator) -> list[float]:
    """Return coordinates t as the fast path makes them: both ends, the centre, and random ones."""
    low_bits = [0, FRACTION_MASK, 1 << 43, *(int(k) for k in rng.integers(0, 1 << 44, 40))]
    return [float(np.int64(k | ONE_BITS).view(np.float64)) - CENTRE for k in low_bits]


def evaluations(column: list[float], t: float) -> tuple[Fraction, float, float]:
    """Evaluate a polynomial exactly, with two roundings a step, and with one (fused)."""
    exact, plain, fused = Fraction(column[-1]), column[-1], column[-1]
    for c in reversed(column[:-1]):
        exact = exact * Fraction(t) + Fraction(c)
        plain = plain * t + c
        fused = float(Fraction(fused) * Fraction(t) + Fraction(c))
    return exact, plain, fused


def worst_rounding(share: Fraction) -> Fraction:
    """Return the largest rounding error of Horner's rule as a part of a share of its bound."""
    rng = np.random.default_rng(8)
    table, worst = coefficients(load_table()), Fraction(0)
    for column in rng.integers(1, table.shape[1] - 1, 200):
        powers = [float(c) for c in table[:, column]]
        # With more bits than a float has: the lower end of a ball must not be below its bound.
        with ctx.workprec(200):
            bounds = horner([arb(c) for c in powers]).computed
            error = Fraction(float(bounds.error.mid()))
            magnitude = Fraction(float(bounds.magnitude.mid()))
        for t in coordinates(rng):
            exact, plain, fused = evaluations(powers, t)
            assert max(abs(plain), abs(fused)) <= magnitude
            found = max(abs(Fraction(plain) - exact), abs(Fraction(fused) - exact))
            worst = max(worst, found / (error * share))
    return worst


def test_horners_rule_stays_within_its_bound() -> None:
    assert worst_rounding(Fraction(1)) <= 1
    assert worst_rounding(Fraction(2, 5)) > 1


@pytest.mark.parametrize("exponent", range(-BINADES, 0))
def test_the_distance_of_a_segment_is_reached_at_ties(exponent: int) -> None:
    spacing = 1 << max(0, UNIFORM_BITS + exponent - 52)
    width = 1 << (UNIFORM_BITS + exponent - SEGMENT_BITS)
    for index in (0, 1, 77, 255):
        left = width * ((1 << SEGMENT_BITS) + index)
        uniforms = [left + k * spacing + spacing // 2 for k in (0, 1, 2, 1001)]
        conversion = max(abs(Fraction(u) - Fraction(float(u))) for u in uniforms)
        assert conversion == (Fraction(spacing, 2) if spacing > 1 else 0)
        distance = Segment(FINE_CUT, exponent, index).distance
        reached = (conversion + Fraction(1, 2)) / 2**UNIFORM_BITS
        assert Fraction(int(distance.p), int(distance.q)) == reached


WITHOUT_FLINT = """
import sys
sys.modules["flint"] = None
import matrixdp.noise.proofs.certificate
"""


def test_a_missing_flint_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_FLINT], check=False, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "pip install '.[dev]'" in done.stderr


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
    chosen = [s for s in FINE_CUT.segments() if s.index in {0, 255} or rng.random() < 0.02]
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
