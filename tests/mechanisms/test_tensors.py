"""Releases of tensors: their noise where they are, and everything else as for arrays of numpy.

On a machine without a GPU the processor plays one.
"""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("torch")

import torch
from torch import Tensor
from torch.testing._internal.two_tensor import TwoTensor

from matrixdp import IMGM, Budget, FrobeniusBall, PrivacyFilter, Release, ReleaseKey
from matrixdp.covariance import Diagonal, Kronecker
from matrixdp.errors import BudgetExceededError, InvalidParameterError, MatrixDPError, ShapeError
from matrixdp.mechanisms import gaussian, tensors
from matrixdp.mechanisms.other_arrays import is_on_gpu, is_other_array
from matrixdp.noise.application.tensors import TensorNoise
from matrixdp.sensitivity import RowBounds, RowBox, ScaledSymmetricBall, SymmetricBall
from reference.gpu_kernels import has_gpu, host_kernel

BUDGET = Budget(1.0, 1e-5)
BALL = FrobeniusBall(1.0, neighbouring="add-remove")
MATRIX = np.random.default_rng(1).standard_normal((12, 7))
SYMMETRIC = MATRIX.T @ MATRIX

Moved = Callable[[NDArray[Any]], Tensor]


def key(number: int) -> ReleaseKey:
    return ReleaseKey.from_bytes(bytes([number]) * 32)


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> Moved:
    """Return what moves arrays to the GPU, or to where the GPU is played."""
    if has_gpu():
        return lambda array: torch.from_numpy(array).cuda()
    monkeypatch.setattr(gaussian, "is_on_gpu", lambda value: isinstance(value, Tensor))
    monkeypatch.setattr(tensors, "cuda_kernel", lambda _index: host_kernel())
    return torch.from_numpy


SHAPES = {
    "isotropic": (IMGM(BALL, BUDGET), MATRIX),
    "diagonal": (
        IMGM(BALL, BUDGET, covariance=Diagonal(np.random.default_rng(2).uniform(5, 9, (12, 7)))),
        MATRIX,
    ),
    "rows": (IMGM(RowBounds(np.arange(1.0, 13.0), neighbouring="replace"), BUDGET), MATRIX),
    "box": (IMGM(RowBox(np.arange(1.0, 8.0), neighbouring="replace"), BUDGET), MATRIX),
    "symmetric": (IMGM(SymmetricBall(1.0, neighbouring="replace"), BUDGET), SYMMETRIC),
    "symmetric, of several scales": (
        IMGM(ScaledSymmetricBall(1.0, np.arange(1.0, 8.0), neighbouring="replace"), BUDGET),
        SYMMETRIC,
    ),
    "directional": (
        IMGM(BALL, BUDGET, covariance=Kronecker(rows=np.diag(np.arange(30.0, 42.0) ** 2))),
        MATRIX,
    ),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", SHAPES)
def test_a_tensor_is_released_with_the_same_bits(moved: Moved, name: str, dtype: type) -> None:
    mechanism, matrix = SHAPES[name]
    matrix = matrix.astype(dtype)
    tensor = moved(matrix)
    release = mechanism.release(tensor, key=key(3))
    expected = mechanism.release(matrix, key=key(3))
    assert isinstance(release.value, Tensor)
    assert (release.value.device, release.value.dtype) == (tensor.device, tensor.dtype)
    assert np.array_equal(np.asarray(release), expected.value)
    assert release.guarantee == expected.guarantee
    assert np.array_equal(release.confidence_bounds().lower, expected.confidence_bounds().lower)
    assert np.array_equal(tensor.cpu().numpy(), matrix)


def test_the_gpu_has_a_part_in_it(moved: Moved, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    begin = TensorNoise.begin

    def counted(*arguments: Any, **options: Any) -> Any:
        drawn.append(1)
        return begin(*arguments, **options)

    monkeypatch.setattr(TensorNoise, "begin", counted)
    for name, (mechanism, matrix) in SHAPES.items():
        before = len(drawn)
        mechanism.release(moved(matrix))
        assert len(drawn) - before == (name != "directional")


@pytest.mark.parametrize("suffix", ["npy", "csv", "parquet"])
def test_the_same_file_is_saved(moved: Moved, tmp_path: Path, suffix: str) -> None:
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    mechanism = IMGM(BALL, BUDGET)
    contents = []
    for name, matrix in (("numpy", MATRIX), ("tensor", moved(MATRIX))):
        path = tmp_path / name / f"sums.{suffix}"
        path.parent.mkdir()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            mechanism.release(matrix, key=key(4)).save(path)
        contents.append((path.read_bytes(), Path(f"{path}.json").read_bytes()))
        assert Release.verify(path) == mechanism.guarantee
    assert contents[0] == contents[1]


def test_a_tensor_is_released_to_a_file(moved: Moved, tmp_path: Path) -> None:
    mechanism, paying = (
        IMGM(BALL, Budget(0.5, 1e-5)),
        PrivacyFilter(BUDGET, neighbouring="add-remove"),
    )
    path = tmp_path / "sums.npy"
    release = mechanism.release_to(path, moved(MATRIX), privacy_filter=paying)
    assert np.array_equal(np.load(path), np.asarray(release))
    assert paying.spent == pytest.approx(mechanism.guarantee.mu)


def test_a_filter_pays_or_nothing_is_drawn(moved: Moved) -> None:
    mechanism, paying = IMGM(BALL, BUDGET), PrivacyFilter(BUDGET, neighbouring="add-remove")
    mechanism.release(moved(MATRIX), privacy_filter=paying)
    unbound = key(5)
    with pytest.raises(BudgetExceededError):
        mechanism.release(moved(MATRIX), privacy_filter=paying, key=unbound)
    unbound.check_unbound()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda one: one.fill_(float("nan")), InvalidParameterError, "must be finite"),
        (lambda one: one[0, 0].fill_(float("inf")) is None or one, InvalidParameterError, "finite"),
        (lambda one: one * 1e300, InvalidParameterError, r"2\*\*52|at most"),
        (lambda one: one.to(torch.float16), InvalidParameterError, "float16"),
        (lambda one: one.to(torch.int64), InvalidParameterError, "int64"),
        (lambda one: one[0], ShapeError, "two axes"),
        (lambda one: one[:0], ShapeError, "not empty"),
    ],
)
def test_what_may_not_be_released_is_refused_before_anything_is_drawn(
    moved: Moved, change: Callable[[Tensor], Tensor], error: type[Exception], message: str
) -> None:
    for mechanism in (IMGM(BALL, BUDGET), SHAPES["diagonal"][0]):
        unbound = key(6)
        with pytest.raises(error, match=message):
            mechanism.release(change(moved(MATRIX.copy())), key=unbound)
        unbound.check_unbound()


def test_a_matrix_that_is_not_symmetric_is_refused(moved: Moved) -> None:
    skewed = SYMMETRIC.copy()
    skewed[0, 1] += 1e-9
    with pytest.raises(InvalidParameterError, match="not symmetric"):
        SHAPES["symmetric"][0].release(moved(skewed))


def test_a_value_beyond_its_own_limit_is_refused(moved: Moved) -> None:
    scales = np.ones((12, 7)) * 2.0**20
    scales[3, 4] = 8.0
    mechanism = IMGM(BALL, BUDGET, covariance=Diagonal(scales))
    large = np.zeros((12, 7))
    large[3, 5] = 2.0**56
    mechanism.release(moved(large))
    with pytest.raises(InvalidParameterError, match="must be finite"):
        mechanism.release(moved(np.ascontiguousarray(large[:, [0, 1, 2, 3, 5, 4, 6]])))


def test_without_kernels_the_processor_draws_and_says_so(
    moved: Moved, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_index: int) -> None:
        raise MatrixDPError("NVRTC cannot be loaded")

    monkeypatch.setattr(tensors, "cuda_kernel", fail)
    mechanism = IMGM(BALL, BUDGET)
    with pytest.warns(RuntimeWarning, match=r"NVRTC .* drawn on the processor") as caught:
        release = mechanism.release(moved(MATRIX), key=key(7))
    assert caught[0].filename == __file__
    assert np.array_equal(np.asarray(release), mechanism.release(MATRIX, key=key(7)).value)
    assert isinstance(release.value, Tensor)


def test_tensors_on_the_processor_and_with_gradients() -> None:
    mechanism = IMGM(BALL, BUDGET)
    tensor = torch.from_numpy(MATRIX).requires_grad_()
    release = mechanism.release(tensor, key=key(8))
    assert isinstance(release.value, Tensor)
    assert not release.value.requires_grad
    assert np.array_equal(release.value.numpy(), mechanism.release(MATRIX, key=key(8)).value)
    with pytest.raises(InvalidParameterError, match="bfloat16"):
        mechanism.release(tensor.to(torch.bfloat16))


class Own(Tensor):
    """A tensor of a user's own class."""


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        lambda one: one.as_subclass(Own),
        lambda one: torch.complex(one, -one).conj().imag,
        lambda one: torch._neg_view(-one),
        lambda one: one.T.contiguous().T,
        lambda one: one.flip(0).flip(0),
    ],
    ids=["subclass", "imaginary", "negated", "strided", "flipped"],
)
def test_tensors_of_every_kind(
    request: pytest.FixtureRequest, change: Callable[[Tensor], Tensor], *, on_gpu: bool
) -> None:
    tensor = change((request.getfixturevalue("moved") if on_gpu else torch.from_numpy)(MATRIX))
    mechanism = IMGM(BALL, BUDGET)
    release = mechanism.release(tensor, key=key(10))
    assert np.array_equal(np.asarray(release), mechanism.release(MATRIX, key=key(10)).value)


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda one: one.to_sparse(), "sparse_coo.*to_dense"),
        (lambda one: one.to_sparse_csr(), "sparse_csr.*to_dense"),
        (lambda one: one.to("meta"), "on meta"),
        (lambda one: TwoTensor(one, one), "is a TwoTensor"),
        (lambda one: torch.complex(one, one).conj(), "complex|real numbers"),
    ],
    ids=["coo", "csr", "meta", "wrapper", "conjugate"],
)
@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_tensors_without_numbers_of_their_own_are_refused(
    request: pytest.FixtureRequest,
    change: Callable[[Tensor], Tensor],
    message: str,
    *,
    on_gpu: bool,
) -> None:
    tensor = change((request.getfixturevalue("moved") if on_gpu else torch.from_numpy)(MATRIX))
    unbound = key(11)
    with pytest.raises(InvalidParameterError, match=message):
        IMGM(BALL, BUDGET).release(tensor, key=unbound)
    unbound.check_unbound()


def test_memory_is_taken_before_the_payment(moved: Moved, monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism, matrix = SHAPES["symmetric"]
    paying = PrivacyFilter(BUDGET, neighbouring="replace")

    def lacking(tensor: Tensor) -> Tensor:
        assert tensor.ndim == 1 or paying.spent == 0.0
        return empty_like(tensor)

    empty_like = torch.empty_like
    monkeypatch.setattr(torch, "empty_like", lacking)
    mechanism.release(moved(matrix), privacy_filter=paying)
    assert paying.spent > 0.0


def test_arrays_of_other_libraries_are_told_from_numpys() -> None:
    assert is_other_array(torch.ones(2))
    assert not is_on_gpu(torch.ones(2))
    for known in (np.ones(2), np.float64(1.0), [1.0], "text", np.ma.ones(2)):
        assert not is_other_array(known)


@pytest.mark.skipif(not has_gpu(), reason="there is no GPU for CuPy and JAX")
@pytest.mark.parametrize("library", ["cupy", "jax.numpy"])
def test_cupy_and_jax(library: str) -> None:
    arrays = pytest.importorskip(library)
    single = MATRIX.astype(np.float32)
    mechanism = IMGM(BALL, BUDGET)
    release = mechanism.release(arrays.asarray(single), key=key(9))
    assert type(release.value) is type(arrays.asarray(single))
    expected = mechanism.release(single, key=key(9)).value
    assert np.array_equal(np.asarray(release), expected)
