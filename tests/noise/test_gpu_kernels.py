"""Noise on tensors: the bits of the processor, from the kernels of GPUs.

The kernels run on the processor, compiled from the same source, and on a GPU if there is one.
"""

import ctypes
import secrets
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("torch")

import torch

from matrixdp.errors import BudgetExceededError, KeyStateError, MatrixDPError
from matrixdp.noise import NoiseContext, ReleaseKey, add_noise
from matrixdp.noise.application import tensors
from matrixdp.noise.application.tensors import NoiseOnTheWay, TensorNoise, cuda_kernel
from matrixdp.noise.kernels.block import Block
from matrixdp.noise.kernels.cuda import kernel as kernel_module
from matrixdp.noise.kernels.cuda.kernel import TensorKernel
from matrixdp.noise.kernels.numpy_kernel import NumpyKernel
from matrixdp.noise.keys import stream as stream_module
from matrixdp.noise.specification.scales import fitted_scale
from matrixdp.noise.specification.table import GRID_BITS, load_table
from reference.gpu_kernels import (
    GivenWordsKernel,
    Undecided,
    entries_of,
    has_gpu,
    host_kernel,
)
from reference.noise import empty_block, test_key

if TYPE_CHECKING:
    from matrixdp.noise.keys.stream import NoiseStream

WAYS = ["four tables", "two tables", *(["gpu"] if has_gpu() else [])]
RNG = np.random.default_rng(1)
SCALES: dict[str, Any] = {
    "one": 0.3,
    "per row": RNG.uniform(0.01, 9.0, (60, 1)),
    "per column": RNG.uniform(0.01, 9.0, (1, 101)),
    "per element": RNG.uniform(0.01, 9.0, (60, 101)),
    "from end to end": np.ldexp(1.0, np.linspace(-100, 100, 60).astype(int))[:, None],
}


@pytest.fixture(params=WAYS)
def kernel(request: pytest.FixtureRequest) -> TensorKernel:
    if request.param == "gpu":
        return cuda_kernel(0)
    return host_kernel(four_tables=request.param == "four tables")


def begun(
    value: NDArray[Any], scale: Any, key: ReleaseKey, kernel: TensorKernel, **options: Any
) -> NoiseOnTheWay:
    scales = fitted_scale(np.asarray(scale, dtype=np.float64), value.shape, value.dtype)
    context = NoiseContext.of_scales(value.shape, value.dtype, scales)
    there = torch.from_numpy(value).to(kernel.device)
    return TensorNoise(context, scales, kernel).begin(there, key, **options)


def assert_same_bits(value: NDArray[Any], scale: Any, seed: int, kernel: TensorKernel) -> None:
    found = begun(value, scale, test_key(seed), kernel).finish().cpu().numpy()
    expected = add_noise(value, scale, test_key(seed))
    assert found.dtype == expected.dtype
    assert np.array_equal(found.view(f"i{value.itemsize}"), expected.view(f"i{value.itemsize}"))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", SCALES)
def test_every_shape_of_scales(kernel: TensorKernel, name: str, dtype: type) -> None:
    scale = SCALES[name]
    value = np.random.default_rng(2).uniform(-50, 50, (60, 101)) * np.minimum(scale, 1.0)
    assert_same_bits(value.astype(dtype), scale, 3, kernel)


@pytest.mark.parametrize("shape", [(1,), (2,), (7,), (1, 1), (3, 1), (1, 129), (2, 1000), (0, 4)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_every_size(kernel: TensorKernel, shape: tuple[int, ...], dtype: type) -> None:
    value: NDArray[Any] = np.random.default_rng(4).standard_normal(shape).astype(dtype)
    assert_same_bits(value, 1.25, 5, kernel)


def test_many_keys(kernel: TensorKernel) -> None:
    value = np.linspace(-3.0, 3.0, 301)
    for seed in range(100, 151):
        assert_same_bits(value, 3.7, seed, kernel)


def test_a_range_after_the_other(kernel: TensorKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (stream_module, kernel_module):
        monkeypatch.setattr(module, "RANGE_ELEMENTS", 1 << 9)
    scale = np.random.default_rng(6).uniform(0.5, 2.0, (1, 777))
    assert_same_bits(np.random.default_rng(7).standard_normal((3, 777)), scale, 8, kernel)


@pytest.mark.thorough
def test_more_than_one_range_and_a_million_keys_of_counters(kernel: TensorKernel) -> None:
    value = np.random.default_rng(9).standard_normal((1, (1 << 24) + 12345))
    assert_same_bits(value, 1.3e-5, 10, kernel)
    assert_same_bits(value.astype(np.float32), 7.0, 11, kernel)


def test_strided_tensors_are_read_in_c_order(kernel: TensorKernel) -> None:
    value = np.random.default_rng(12).standard_normal((40, 30))
    context = NoiseContext.of_scales((30, 40), value.dtype, np.array([[0.5]]))
    noise = TensorNoise(context, np.array([[0.5]]), kernel)
    found = noise.begin(torch.from_numpy(value).to(kernel.device).T, test_key(13)).finish()
    assert np.array_equal(found.cpu().numpy(), add_noise(value.T, 0.5, test_key(13)))


def test_the_undecided_elements_are_those_of_the_other_kernel(kernel: TensorKernel) -> None:
    value, words = open_values(14)
    block = Block(value, words, np.ones(1), np.empty(4000), np.empty(4000, np.bool_))
    expected = NumpyKernel(load_table())(block, GRID_BITS)
    assert expected > 50
    found: list[Undecided] = []

    class Watched(TensorKernel):
        def decide(self, *arguments: Any) -> None:
            found.extend(entries_of(arguments[3]))
            super().decide(*arguments)

    watched = Watched(kernel._launcher, kernel.device)
    noisy = begun(value, 1.0, test_key(14), watched).finish().cpu().numpy()
    assert [one.element for one in found] == block.undecided.nonzero()[0].tolist()
    assert [one.word for one in found] == words[block.undecided].tolist()
    assert [one.value for one in found] == value[block.undecided].tolist()
    assert np.array_equal(noisy, add_noise(value, 1.0, test_key(14)))


def open_values(number: int) -> tuple[NDArray[np.float64], NDArray[np.uint64]]:
    """Return values whose rounding the first word leaves open, one in twenty, and all first words.

    They are half a step beside the noise.
    """
    context = NoiseContext.describe(shape=(4000,), dtype="float64", scale=1.0)
    with test_key(number).bind(context) as stream:
        words = stream.words(0, 4000)
    zeros = add_noise(np.zeros(4000), 1.0, test_key(number))
    return np.where(np.arange(4000) % 20 == 0, _to_half_step(words, zeros), 0.1), words


def _to_half_step(words: NDArray[np.uint64], zeros: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return values that the noise takes to about half a step, by bisection on the fast path."""
    step = 2.0**-GRID_BITS
    low, high = np.full(words.size, -step), np.full(words.size, step)
    kernel = NumpyKernel(load_table())
    for _ in range(60):
        middle = (low + high) / 2
        block = empty_block(words.size)._replace(values=middle, words=words, scales=np.ones(1))
        kernel(block, GRID_BITS)
        above = (block.noisy > zeros) & ~block.undecided
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return low


def test_nothing_secret_is_left(kernel: TensorKernel) -> None:
    streams: list[NoiseStream] = []

    class Watched(TensorKernel):
        def decide(self, *arguments: Any) -> None:
            streams.append(arguments[2])
            assert arguments[3].tensor[3:].count_nonzero() > 100
            super().decide(*arguments)

    watched = Watched(kernel._launcher, kernel.device)
    undecided = begun(open_values(15)[0], 1.0, test_key(15), watched).undecided
    count, *others = undecided.tensor.tolist()
    assert count > 40
    assert not any(others)
    with pytest.raises(KeyStateError, match="closed"):
        streams[0].reader(0)


def test_a_list_that_is_never_decided_is_overwritten(kernel: TensorKernel) -> None:
    lists: list[torch.Tensor] = []

    class Interrupted(TensorKernel):
        def decide(self, *arguments: Any) -> None:
            lists.append(arguments[3].tensor)
            assert lists[0][3:].count_nonzero() > 100
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        begun(open_values(15)[0], 1.0, test_key(15), Interrupted(kernel._launcher, kernel.device))
    assert not lists[0].any()


def test_the_schedule_of_a_launch_is_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, kept = host_kernel(), []
    schedule_of = kernel_module._schedule_of

    def watched(*arguments: Any) -> Any:
        kept.append(schedule_of(*arguments))
        assert any(kept[-1].words)
        return kept[-1]

    monkeypatch.setattr(kernel_module, "_schedule_of", watched)
    begun(np.zeros(10), 1.0, test_key(16), kernel).finish()
    assert len(kept) == 2
    assert not any(kept[0].words)
    assert not any(kept[1].words)
    assert ctypes.sizeof(kept[0]) == 240


def test_too_many_undecided_elements_release_nothing(kernel: TensorKernel) -> None:
    # NaN is never decided. Callers refuse it; a value that is changed meanwhile would hold it.
    value = np.where(np.arange(5000) < 4000, np.nan, 1.0)
    on_the_way = begun(value, 1.0, test_key(17), kernel, in_place=True)
    with pytest.raises(MatrixDPError, match="4000 elements were undecided"):
        on_the_way.finish()
    assert on_the_way.out.isnan().all()
    assert not on_the_way.undecided.tensor[3:].any()


def test_an_element_that_cannot_be_decided_releases_nothing(kernel: TensorKernel) -> None:
    on_the_way = begun(np.array([0.0, np.nan, 1.0]), 1.0, test_key(17), kernel, in_place=True)
    with pytest.raises(MatrixDPError, match="1 elements were undecided, or one could not be"):
        on_the_way.finish()
    assert on_the_way.out.isnan().tolist() == [False, True, False]


def test_a_refused_payment_draws_nothing(kernel: TensorKernel) -> None:
    key = ReleaseKey.from_bytes(secrets.token_bytes(32))

    def refuse() -> None:
        raise BudgetExceededError("refused")

    with pytest.raises(BudgetExceededError):
        begun(np.zeros(4), 1.0, key, kernel, pay=refuse)
    key.check_unbound()
    begun(np.zeros(4), 1.0, key, kernel).finish()
    with pytest.raises(KeyStateError, match="bound"):
        begun(np.zeros(4), 1.0, key, kernel)


def test_a_cuda_graph_never_holds_noise(
    kernel: TensorKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = ReleaseKey.from_bytes(secrets.token_bytes(32))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(MatrixDPError, match="while a CUDA graph is captured"):
        begun(np.zeros(4), 1.0, key, kernel)
    key.check_unbound()


def test_a_failed_launch_closes_the_stream() -> None:
    kernel, streams = host_kernel(), []

    def fail(_name: str, _blocks: int, _arguments: Any) -> None:
        raise MatrixDPError("no launch")

    class Watched(TensorKernel):
        def __call__(self, *arguments: Any) -> None:
            streams.append(arguments[3])
            super().__call__(*arguments)

    broken = Watched(kernel._launcher, kernel.device)
    broken._launcher = type("Failing", (), {"most_blocks": 1, "__call__": staticmethod(fail)})()
    with pytest.raises(MatrixDPError, match="no launch"):
        begun(np.zeros(4), 1.0, test_key(18), broken)
    with pytest.raises(KeyStateError, match="closed"):
        streams[0].reader(0)


@pytest.mark.parametrize("table", [0, 1, 2], ids=["aes", "coarse", "fine"])
def test_a_wrong_table_is_noticed_before_a_kernel_is_used(table: int) -> None:
    kernel = host_kernel()
    tensors.try_known(kernel)
    # The fine table decides one element in a thousand, so many of its numbers must be wrong.
    kernel._numbers[table] ^= 1 << 13 if table else 1
    with pytest.raises(MatrixDPError, match="known noise comes out wrong"):
        tensors.try_known(kernel)


def test_an_unlisted_element_is_noticed_before_a_kernel_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decide = TensorKernel.decide
    listed = []

    def shortened(self: TensorKernel, *arguments: Any) -> None:
        listed.append(int(arguments[3].tensor[0]))
        arguments[3].tensor[0] -= 1
        decide(self, *arguments)

    monkeypatch.setattr(TensorKernel, "decide", shortened)
    with pytest.raises(MatrixDPError, match="known noise comes out wrong"):
        tensors.try_known(host_kernel())
    assert listed[0] > 0


def test_every_known_noise_has_an_undecided_element(monkeypatch: pytest.MonkeyPatch) -> None:
    decide = TensorKernel.decide
    listed = []

    def counted(self: TensorKernel, *arguments: Any) -> None:
        listed.append(int(arguments[3].tensor[0]))
        decide(self, *arguments)

    monkeypatch.setattr(TensorKernel, "decide", counted)
    tensors.try_known(host_kernel())
    assert len(listed) == 4
    assert all(listed)


def test_tensors_may_be_made_elsewhere_by_default() -> None:
    # As after torch.set_default_device("cuda").
    kernel = host_kernel()
    with torch.device("meta"):
        tensors.try_known(kernel)


def test_given_words_reach_the_kernel_of_the_tests() -> None:
    kernel = host_kernel()
    block = empty_block(64)._replace(scales=np.ones(1))
    block.values.fill(0.5)
    block.words[:] = np.random.default_rng(19).integers(0, 2**64, 64, dtype=np.uint64)
    other = block._replace(noisy=np.empty(64), undecided=np.empty(64, np.bool_))
    GivenWordsKernel(kernel._launcher, kernel.device)(block, GRID_BITS)
    NumpyKernel(load_table())(other, GRID_BITS)
    assert np.array_equal(block.noisy, other.noisy)
