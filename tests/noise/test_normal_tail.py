"""Bounds of the normal tail against ball arithmetic."""

from flint import arb, ctx, fmpq
from hypothesis import given
from hypothesis import strategies as st

from matrixdp.noise.specification.exact import LazyUniform
from matrixdp.noise.specification.normal_tail import tail_bounds


@given(
    st.fractions(min_value=0, max_value=14, max_denominator=2**80).filter(lambda b: b > 0),
    st.integers(min_value=1, max_value=400),
)
def test_the_truth_lies_between_and_the_bounds_are_close(b: object, precision: int) -> None:
    numerator, denominator = b.numerator, b.denominator  # type: ignore[attr-defined]
    low, high = tail_bounds(numerator, denominator, precision)
    ctx.prec = precision + 200
    true = (arb(fmpq(numerator, denominator)) / arb(2).sqrt()).erfc() * arb(2) ** precision
    assert true >= low
    assert true <= high
    assert high - low <= 2


def test_a_uniform_is_compared_from_both_sides() -> None:
    # erfc(1 / sqrt 2) = 0.3173..: the words just below and just above it.
    low, high = tail_bounds(1, 1, 63)
    assert LazyUniform(high + 1, lambda _: 0).exceeds_tail(1, 1)
    assert not LazyUniform(low - 1, lambda _: 0).exceeds_tail(1, 1)
    assert not LazyUniform(low, lambda _: 0).exceeds_tail(0, 1)
    assert not LazyUniform(low, lambda _: 0).exceeds_tail(-5, 1)


def test_more_bits_are_drawn_only_where_needed() -> None:
    low, _ = tail_bounds(1, 1, 63)
    asked = []

    def give(number: int) -> int:
        asked.append(number)
        return 0

    assert not LazyUniform(low, give).exceeds_tail(1, 1)
    assert asked == [0]
    LazyUniform(low + 10, give).exceeds_tail(1, 1)
    assert asked == [0]
