"""Python integers, numpy and numba: the same bits, everywhere."""

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flint import arb
from numpy.typing import NDArray

from matrixdp.noise import ExactNoise, NoiseContext
from matrixdp.noise.kernels import KernelFactory
from matrixdp.noise.kernels import numpy_kernel as kernel_numpy_module
from matrixdp.noise.kernels.numpy_kernel import NumpyKernel
from matrixdp.noise.proofs.certificate import FINE_CUT
from matrixdp.noise.specification import exact as exact_module
from matrixdp.noise.specification.exact import exact_element, grid_exponent, grid_index
from matrixdp.noise.specification.normal_tail import tail_bounds
from matrixdp.noise.specification.table import (
    BINADES,
    GRID_BITS,
    SEGMENT_BITS,
    STEP_ERROR,
    UNIFORM_BITS,
    load_table,
)
from reference import gpu_kernels
from reference.noise import (
    ScriptedStream,
    by_pipeline,
    by_specification,
    empty_block,
    inverse_tail,
    test_key,
)

KERNELS = gpu_kernels.every_kernel()
every_kernel = pytest.mark.parametrize("make_kernel", KERNELS.values(), ids=KERNELS)


def random_words(seed: int, count: int) -> NDArray[np.uint64]:
    return np.random.default_rng(seed).integers(0, 2**64, count, dtype=np.uint64)


def assert_agreement(
    values: NDArray[Any], scale: Any, words: NDArray[np.uint64], make_kernel: KernelFactory
) -> None:
    fast, stream = by_pipeline(values, scale, words, make_kernel)
    exact = by_specification(values, scale, stream, words)
    assert fast.dtype == exact.dtype == values.dtype
    assert np.array_equal(fast.view(f"i{values.itemsize}"), exact.view(f"i{values.itemsize}"))


@every_kernel
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("scale", [3.7, 1.0, 0.001, 2.0**60, np.nextafter(4.0, 0.0)])
def test_random_elements(make_kernel: KernelFactory, dtype: type, scale: float) -> None:
    rng = np.random.default_rng(1)
    decades = rng.integers(-9, 9 if dtype == np.float64 else 6, 3000)
    values: NDArray[Any] = (rng.standard_normal(3000) * scale * 10.0**decades).astype(dtype)
    assert_agreement(values, scale, random_words(2, 3000), make_kernel)


@every_kernel
@pytest.mark.parametrize("scale", [1.0, 3.7])
@pytest.mark.parametrize("grid_bits", [0, 1, 2, 7, 19])
def test_coarse_grids(make_kernel: KernelFactory, grid_bits: int, scale: float) -> None:
    values = np.random.default_rng(16).uniform(-3.0, 3.0, 1500)
    context = NoiseContext.describe(
        shape=values.shape, dtype="float64", scale=scale, grid_bits=grid_bits
    )
    words = random_words(17, values.size)
    stream = ScriptedStream(context, words)
    fast = ExactNoise(stream, scale, make_kernel=make_kernel).add(values)
    exact = by_specification(values, scale, stream, words)
    assert np.array_equal(fast.view("i8"), exact.view("i8"))
    assert (fast % 2.0 ** grid_exponent(scale, grid_bits) == 0.0).all()


@pytest.mark.parametrize("grid_bits", [0, 1, 20])
@pytest.mark.parametrize("error", [-5.0, -1.0, 1.0, 2.0, 5.0])
def test_no_result_depends_on_the_guess(
    monkeypatch: pytest.MonkeyPatch, grid_bits: int, error: float
) -> None:
    values = np.random.default_rng(18).uniform(-3.0, 3.0, 200)
    words = [int(word) for word in random_words(19, values.size)]

    def indices() -> list[int]:
        return [
            grid_index(float(value), 1.25, word, lambda _: 0, grid_bits)
            for value, word in zip(values, words, strict=True)
        ]

    expected = indices()
    guess = exact_module.LazyUniform.guess
    shift = error / (1.25 * 2**grid_bits)
    monkeypatch.setattr(exact_module.LazyUniform, "guess", lambda self: guess(self) + shift)
    assert indices() == expected


def edge_uniforms() -> Iterator[int]:
    """Yield the uniforms at the edges of every segment, where the rounding of u matters too."""
    for segment in FINE_CUT.segments():
        width = 1 << (UNIFORM_BITS + segment.exponent - SEGMENT_BITS)
        left = width * ((1 << SEGMENT_BITS) + segment.index)
        half_spacing = max(1, 1 << max(0, UNIFORM_BITS + segment.exponent - 53))
        yield from (left - half_spacing - 1, left - half_spacing, left - 1, left, left + 1)
    top = 1 << UNIFORM_BITS
    yield from (top - 1, top - 2, top - 511, top - 512, top - 513, top - 1024, top - 1025)
    yield from range(1, 40)
    yield from (1 << k for k in range(UNIFORM_BITS - BINADES + 1))


@every_kernel
def test_every_segment_edge(make_kernel: KernelFactory) -> None:
    uniforms = np.fromiter(edge_uniforms(), dtype=np.uint64)
    signs = random_words(3, uniforms.size) & np.uint64(1 << UNIFORM_BITS)
    values = np.random.default_rng(5).standard_normal(uniforms.size)
    assert_agreement(values, 1.75, uniforms | signs, make_kernel)


SCALES = np.random.default_rng(6)
SCALE_SHAPES = {
    "one": 0.3,
    "per row": SCALES.uniform(0.01, 9.0, (30, 1)),
    "per column": SCALES.uniform(0.01, 9.0, (1, 40)),
    "per element": SCALES.uniform(0.01, 9.0, (30, 40)),
    "from end to end": np.ldexp(1.0, np.linspace(-100, 100, 30).astype(int))[:, None],
}


@every_kernel
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("scale", SCALE_SHAPES.values(), ids=SCALE_SHAPES)
def test_every_shape_of_scales(make_kernel: KernelFactory, dtype: type, scale: Any) -> None:
    values: NDArray[Any] = np.random.default_rng(7).uniform(-50, 50, (30, 40)).astype(dtype)
    values *= np.minimum(scale, 1.0).astype(dtype)
    context = NoiseContext.describe(shape=values.shape, dtype=dtype, scale=scale)
    with test_key(8).bind(context) as stream:
        fast = ExactNoise(stream, scale, make_kernel=make_kernel).add(values)
        exact = by_specification(values, scale, stream, stream.words(0, values.size))
    assert np.array_equal(fast, exact)


@every_kernel
@pytest.mark.parametrize("scale", [2.0**-900, 1.5 * 2.0**-899, 1.0, 1.9 * 2.0**899, 2.0**900])
def test_extreme_values(make_kernel: KernelFactory, scale: float) -> None:
    step = 2.0 ** grid_exponent(scale, GRID_BITS)
    limit = 2.0**72 * step
    tiny = np.finfo(np.float64).smallest_subnormal
    values = np.array(
        [
            *(0.0, -0.0, tiny, -tiny, 1e-310, limit, -limit, limit / 3, step, step / 2),
            *(3 * step / 2, -step / 2, 2.0**52 * step, (2.0**52 + 1) * step, 2.0**53 * step),
            *((2.0**53 + 2) * step, np.nextafter(step / 2, 0), 1e6 * step + step / 2),
            *(2.0**51 * step + step / 2, 2.0**60 * step, 2.0**70 * step),
        ]
    )
    words = random_words(9, values.size)
    assert_agreement(values, scale, words, make_kernel)
    assert_agreement(values, scale, words ^ np.uint64(1 << 63), make_kernel)


@every_kernel
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_zero_has_no_sign(make_kernel: KernelFactory, dtype: type) -> None:
    # Hardly any noise: the results are zeros, from values and noise of either sign.
    uniforms = np.uint64(1 << 63) - np.arange(1, 400, dtype=np.uint64) * np.uint64(1 << 30)
    words = np.concatenate([uniforms, uniforms | np.uint64(1 << 63)])
    values: NDArray[Any] = (np.linspace(-0.3, 0.3, words.size) * 2.0**-GRID_BITS).astype(dtype)
    fast, _ = by_pipeline(values, 1.0, words, make_kernel)
    assert not fast.any()
    assert not np.signbit(fast).any()
    assert_agreement(values, 1.0, words, make_kernel)


def undecided_case(word: int, scale: float) -> float:
    """Return a value for which the word's 63 bits leave open on which side of a half step it falls.

    The value is chosen so that ``(1/2 - value/g) / s`` is w of the middle of the word's interval.
    """
    uniform = word & (2**63 - 1)
    sign = -1 if word >> 63 else 1
    w = inverse_tail(2 * uniform + 1, UNIFORM_BITS + 1)
    exponent = grid_exponent(scale, GRID_BITS)
    in_steps = w * arb(scale) * arb(2) ** -exponent
    rest = arb(0.5) - (in_steps - in_steps.floor())
    return sign * float(rest) * 2.0**exponent


UNDECIDED_WORDS = [int(w) for w in random_words(10, 60)] + [
    int(w) >> 20 | (1 << 63) * (k % 2) for k, w in enumerate(random_words(11, 20))
]


@every_kernel
@pytest.mark.parametrize("scale", [1.0, 3.7])
def test_undecided_by_the_first_word(make_kernel: KernelFactory, scale: float) -> None:
    values = np.array([undecided_case(word, scale) for word in UNDECIDED_WORDS])
    words = np.array(UNDECIDED_WORDS, dtype=np.uint64)
    results = []
    for further in (0, 2**64 - 1):
        asked: list[int] = []

        def give(element: int, number: int, further: int = further) -> int:
            asked.append(element)  # noqa: B023 - used within this round
            return further if number == 0 else 0x5555555555555555

        fast, stream = by_pipeline(values, scale, words, make_kernel, give)
        assert set(asked) == set(range(values.size)), "every case needs further bits"
        assert np.array_equal(fast, by_specification(values, scale, stream, words))
        results.append(fast)
    # More bits make V larger, |z| smaller, and move the result by one step towards zero noise.
    step = 2.0 ** grid_exponent(scale, GRID_BITS)
    signs = np.where(words >> np.uint64(63), -1.0, 1.0)
    assert np.array_equal(results[0] - results[1], signs * step)


def assert_many_words_are_asked_for() -> None:
    # Feed the very bits of erfc(b / sqrt 2) for the bound b of a half step, then deviate.
    value, scale, k = 0.3, 1.0, 700_000
    in_steps = Fraction(value) * 2**GRID_BITS
    bound = (Fraction(2 * k + 1, 2) - (in_steps - round(in_steps))) / 2**GRID_BITS
    low, high = tail_bounds(bound.numerator, bound.denominator, UNIFORM_BITS + 64 * 4)
    assert high - low <= 1
    words = [(low >> (64 * (3 - j))) % 2**64 for j in range(4)]
    asked = []

    def further(last: int) -> Callable[[int], int]:
        def give(number: int) -> int:
            asked.append(number)
            return words[number] if number < 3 else last

        return give

    first = low >> (64 * 4)
    below = grid_index(value, scale, first, further(max(words[3] - 100, 0)), GRID_BITS)
    beyond = grid_index(value, scale, first, further(min(words[3] + 100, 2**64 - 1)), GRID_BITS)
    assert max(asked, default=-1) == 3
    assert below - beyond == 1


def test_a_decision_may_need_many_words() -> None:
    assert_many_words_are_asked_for()


def test_a_tail_without_bounds_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    # A decision by the floating-point value of erfc instead of proven bounds of it.
    def approximate(numerator: int, denominator: int, precision: int) -> tuple[int, int]:
        tail = int(Fraction(math.erfc(numerator / denominator / math.sqrt(2))) * 2**precision)
        return tail, tail

    monkeypatch.setattr(exact_module, "tail_bounds", approximate)
    with pytest.raises(AssertionError):
        assert_many_words_are_asked_for()


def test_a_tail_with_the_wrong_series_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def shifted(numerator: int, denominator: int, precision: int) -> tuple[int, int]:
        low, high = tail_bounds(numerator, denominator, precision)
        error = 1 << (precision - 40)
        return low + error, high + error

    # What the fast path decides does not depend on the series, and finds the exact path out.
    values, words = near_half_steps(3000, 2 * STEP_ERROR)
    assert_agreement(values, 1.0, words, KERNELS["numpy"])
    monkeypatch.setattr(exact_module, "tail_bounds", shifted)
    with pytest.raises(AssertionError):
        assert_agreement(values, 1.0, words, KERNELS["numpy"])


@every_kernel
def test_far_in_the_tail(make_kernel: KernelFactory) -> None:
    # 63 zero bits, then more zeros: beyond 9 sigma, where only the exact path goes.
    words = np.array([0, 1 << 63, 1, 3, (1 << 63) | 1], dtype=np.uint64)
    values = np.linspace(-1.0, 1.0, 5)
    fast, stream = by_pipeline(values, 1.0, words, make_kernel, lambda _, n: 0 if n < 2 else 2**50)
    assert np.array_equal(fast, by_specification(values, 1.0, stream, words))
    assert 15.0 < fast[0] < 20.0
    assert -20.0 < fast[1] < -15.0


def near_half_steps(count: int, distance: float) -> tuple[NDArray[np.float64], NDArray[np.uint64]]:
    """Return values and words whose exact result lies within a small distance of a half step."""
    words = random_words(12, count)
    rng = np.random.default_rng(13)
    shift = distance * rng.uniform(-1.0, 1.0, count) * 2.0**-GRID_BITS
    centred = np.array([undecided_case(int(word), 1.0) for word in words])
    return centred + shift, words


@every_kernel
def test_close_to_half_steps(make_kernel: KernelFactory) -> None:
    values, words = near_half_steps(1500, 2 * STEP_ERROR)
    assert_agreement(values, 1.0, words, make_kernel)


def test_a_missing_error_bound_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    values, words = near_half_steps(1500, 0.2 * STEP_ERROR)
    assert_agreement(values, 1.0, words, KERNELS["numpy"])
    monkeypatch.setattr(kernel_numpy_module, "DECIDED_BELOW", 0.5)
    with pytest.raises(AssertionError):
        assert_agreement(values, 1.0, words, KERNELS["numpy"])


def test_a_wrong_table_is_caught() -> None:
    wrong = load_table().copy()
    wrong[0, 5000] += np.int64(1) << 33  # about 1e-6 of one coefficient of one segment in 5888
    words = np.fromiter(edge_uniforms(), dtype=np.uint64)
    values = np.zeros(words.size)
    assert_agreement(values, 1.75, words, KERNELS["numpy"])
    with pytest.raises(AssertionError):
        assert_agreement(values, 1.75, words, lambda: NumpyKernel(wrong))


def test_the_fast_path_decides_nearly_everything() -> None:
    words = random_words(14, NumpyKernel.block_length)
    for make_kernel in KERNELS.values():
        block = empty_block(NumpyKernel.block_length)
        block.values.fill(0.25)
        block.words[:] = words
        block.scales.fill(1.99)
        undecided = make_kernel()(block, GRID_BITS)
        assert undecided == np.count_nonzero(block.undecided) <= 2


def test_what_the_table_does_not_cover_is_undecided() -> None:
    outside = [(1 << (63 - BINADES)) - 1, 1, (1 << 63) - 1, (1 << 63) - 512]
    for make_kernel in KERNELS.values():
        block = empty_block(len(outside))
        block.values.fill(0.0)
        block.words[:] = np.array(outside, dtype=np.uint64)
        block.scales.fill(1.0)
        assert make_kernel()(block, GRID_BITS) == len(outside)


def test_a_value_on_a_half_step_follows_the_sign() -> None:
    # |z| > 0 strictly, so the sign alone decides between the two neighbours when z is tiny.
    nearly_zero = (1 << 63) - 1
    step = 2.0**-GRID_BITS
    up = exact_element(step / 2, 1.0, nearly_zero, lambda _: 2**64 - 1, GRID_BITS)
    down = exact_element(step / 2, 1.0, nearly_zero | 1 << 63, lambda _: 2**64 - 1, GRID_BITS)
    assert (up, down) == (step, 0.0)


def test_the_smallest_kernel_call_works() -> None:
    kernel = NumpyKernel(load_table())
    block = empty_block(1)
    block.values[:], block.words[:], block.scales[:] = 2.0, 1 << 62, 1.0
    assert kernel(block, GRID_BITS) == 0
    assert block.noisy[0] == exact_element(2.0, 1.0, 1 << 62, lambda _: 0, GRID_BITS)


def test_the_scripted_stream_is_what_is_read() -> None:
    words = random_words(15, 10)
    context = NoiseContext.describe(shape=(10,), dtype="f8", scale=1.0)
    stream = ScriptedStream(context, words)
    got = np.empty(4, dtype=np.uint64)
    stream.reader(3).read_into(got)
    assert np.array_equal(got, words[3:7])
