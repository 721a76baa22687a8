"""Elements that a GPU decides in integers: those of the specification, whatever they are."""

import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("torch")

import torch

from matrixdp.noise import NoiseContext
from matrixdp.noise.application.tensors import cuda_kernel
from matrixdp.noise.kernels.cuda.kernel import ScaleTensor, TensorKernel, UndecidedList
from matrixdp.noise.kernels.cuda.source import kernel_source
from matrixdp.noise.specification.exact import exact_element
from matrixdp.noise.specification.normal_tail import root_two_over_pi
from reference.gpu_kernels import has_gpu, host_kernel
from reference.noise import test_key

RNG = np.random.default_rng(5)
SIGN = 1 << 63
WORDS = RNG.integers(0, 2**64, 40, dtype=np.uint64).tolist()
# Beyond the table: uniforms of 40, 30, 24 and 23 bits, and the two that are nearest to 0 and 1.
TAILS = [1 << 23, 5 << 30, 3 << 38, 1 << 40, (1 << 40) - 1, SIGN | 77 << 33, 4 << 10, 1 << 5]
# Of |z| around 9 and beyond: there nearly all bits are those of the further word.
FAR_TAILS = [9, 4, 3, 2, 1, 0, SIGN, SIGN | 1]
NEAR_ONE = [SIGN - 1, SIGN - 2, 2 * SIGN - 1, SIGN - (1 << 9)]
VALUES = [
    *(0.0, -0.0, 1.0, -1.0, 0.5, 2.0**-21, -(2.0**-21), 3 * 2.0**-21, 1e-300, -1e-300, 5e-324),
    *(2.0**-22, 2.0**-21 + 2.0**-74, 2.0**30 + 2.0**-21, -(2.0**31) - 2.0**-22, 1234.56789),
    *RNG.normal(size=20).tolist(),
]


@pytest.fixture(params=["host", *(["gpu"] if has_gpu() else [])])
def kernel(request: pytest.FixtureRequest) -> TensorKernel:
    return cuda_kernel(0) if request.param == "gpu" else host_kernel()


def decided(
    cases: list[tuple[float, float, int]], kernel: TensorKernel, grid_bits: int
) -> tuple[NDArray[np.float64], list[float]]:
    """Return the elements of some values, scales and words: of the kernel, and as specified."""
    values, scales = np.array([case[:2] for case in cases]).T.copy()
    words = np.array([word for *_, word in cases], dtype=np.uint64)
    context = NoiseContext.describe(
        shape=(len(cases),), dtype="float64", scale=scales, grid_bits=grid_bits
    )
    undecided = UndecidedList(len(cases) << 18, kernel.device)
    entries = np.stack([np.arange(len(cases)), values.view(np.int64), words.view(np.int64)], axis=1)
    undecided.tensor[0] = len(cases)
    undecided.tensor[3 : 3 + entries.size] = torch.from_numpy(entries.reshape(-1))
    out = torch.empty(len(cases), dtype=torch.float64, device=kernel.device)
    with test_key(30).bind(context) as stream:
        kernel.decide(out, ScaleTensor(scales, context.shape, kernel.device), stream, undecided)
        undecided.check()
        expected = [
            exact_element(value, scale, word, stream.further_words(element), grid_bits)
            for element, (value, scale, word) in enumerate(cases)
        ]
    return out.cpu().numpy(), expected


def assert_as_specified(cases: Any, kernel: TensorKernel, grid_bits: int = 20) -> None:
    found, expected = decided(
        [(float(value), float(scale), int(word)) for value, scale, word in cases], kernel, grid_bits
    )
    assert found.tobytes() == np.array(expected).tobytes()


@pytest.mark.parametrize("scale", [1.0, 1.9999, 3.7, 1e-3, 1e10])
def test_words_and_values(kernel: TensorKernel, scale: float) -> None:
    words = [*WORDS[:6], *TAILS, *FAR_TAILS, *NEAR_ONE]
    assert_as_specified(
        ((value * scale, scale, word) for value in VALUES for word in words), kernel
    )


@pytest.mark.parametrize("grid_bits", [0, 1, 7, 19])
def test_coarser_grids(kernel: TensorKernel, grid_bits: int) -> None:
    words = np.array([*WORDS, *TAILS, *FAR_TAILS], dtype=np.uint64)
    values = np.ldexp(RNG.normal(size=words.size), RNG.integers(-8, 8, words.size))
    assert_as_specified(
        zip(values, np.full(words.size, 1.3), words, strict=True), kernel, grid_bits
    )


def test_values_that_only_the_further_words_decide(kernel: TensorKernel) -> None:
    """The bound that is nearest to the noise, to within some units of the word's last bit.

    The value is changed until the specification asks for a further word.
    """
    context = NoiseContext.describe(shape=(12,), dtype="float64", scale=1.0)
    cases = []
    with test_key(30).bind(context) as stream:
        for element, word in enumerate(RNG.integers(1 << 50, SIGN, 12).tolist()):
            asked: list[int] = []

            def further(number: int, element: int = element, asked: list[int] = asked) -> int:
                asked.append(number)
                return stream.further_words(element)(number)

            low, high = 0.0, 2.0**-20
            start = exact_element(0.0, 1.0, word, further, 20)
            for _ in range(200):
                middle = (low + high) / 2
                asked.clear()
                same = exact_element(middle, 1.0, word, further, 20) == start
                if asked:
                    break
                low, high = (middle, high) if same else (low, middle)
            cases.append((middle if asked else high, 1.0, word))
    assert_as_specified(cases, kernel)


@pytest.mark.thorough
def test_many(kernel: TensorKernel) -> None:
    rng = np.random.default_rng(6)
    count = 20_000
    words = rng.integers(0, 2**64, count, dtype=np.uint64)
    words[::4] >>= rng.integers(1, 50, count // 4, dtype=np.uint64)
    values = np.ldexp(rng.normal(size=count), rng.integers(-30, 30, count))
    scales = np.exp(rng.uniform(-30, 30, count))
    assert_as_specified(zip(values * np.minimum(scales, 1), scales, words, strict=True), kernel)


def test_the_factor_of_the_tail_is_too_small_by_less_than_a_unit() -> None:
    limbs = re.findall(r"#define ROOT_TWO_OVER_PI_\d (\d+)U", kernel_source(four_tables=True))
    factor = sum(int(limb) << 32 * i for i, limb in enumerate(limbs))
    low, high = root_two_over_pi(400)
    for bits in (256, 128):
        in_units = factor >> 256 - bits
        assert in_units << 400 - bits <= low
        assert high <= in_units + 1 << 400 - bits
