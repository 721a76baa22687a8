"""The noise of one block of parameters: exact for real releases, simulated for experiments."""

import abc
import warnings
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from matrixdp.covariance import Covariance, Diagonal, Isotropic, Kronecker
from matrixdp.errors import InvalidParameterError, MatrixDPError
from matrixdp.mechanisms.drawing import Drawing, drawing_for
from matrixdp.mechanisms.imgm import IMGM
from matrixdp.noise import ExactNoise as ElementNoise
from matrixdp.noise import ReleaseKey
from matrixdp.noise.application.tensors import TensorNoise, cuda_kernel
from matrixdp.noise.kernels import prepare_fastest
from matrixdp.noise.kernels.cuda.kernel import TensorKernel

__all__ = ["BlockNoise", "ExactNoise", "SimulatedNoise"]


class BlockNoise(abc.ABC):
    """The noise of a block, for the whole of it or for the shard of a rank."""

    @abc.abstractmethod
    def added_to(self, matrix: Tensor, step: int) -> Tensor:
        """Return a matrix with the noise of a step; the matrix may be changed."""

    def mean(self, matrix: Tensor, step: int, divisor: float, dtype: torch.dtype) -> Tensor:
        """Return a matrix with the noise of a step, over a divisor and rounded to a type."""
        # Rounded to the type of the weights here, once and all together.
        mean = torch.empty(matrix.shape, dtype=dtype, device=matrix.device)
        return torch.div(self.added_to(matrix, step), divisor, out=mean)

    @abc.abstractmethod
    def prepare_shards(self) -> bool:
        """Prepare for shards; return whether one may be less than the whole."""

    @abc.abstractmethod
    def added_to_shard(self, values: Tensor, first: int, step: int, secret: bytes) -> Tensor:
        """Return consecutive elements with the noise that they have in the whole.

        Parameters
        ----------
        values : Tensor
            One axis, float64; they may be changed.
        first : int
            The number of the first one in the whole, by rows.
        step : int
            The number of the step.
        secret : bytes
            Of a key that no other step and no other block has, and no second shard of this one.
        """


class ExactNoise(BlockNoise):
    """Exact noise under a fresh key each time, in float64 as the sums are.

    It is drawn where the matrix is if that is a GPU and every entry has noise of its own, and on
    the processor otherwise: the same bits.

    Parameters
    ----------
    mechanism : IMGM
        What is drawn.
    shape : tuple of int
        Of the matrices.
    device : torch.device
        Where they are.
    """

    def __init__(self, mechanism: IMGM, shape: tuple[int, int], device: torch.device) -> None:
        self._mechanism = mechanism
        self._shape = shape
        # Compiling takes long, and may fail or be interrupted: before a step is spent.
        self._there = _noise_on(device, mechanism, shape)
        if self._there is None:
            prepare_fastest(torch.float64.itemsize)

    def added_to(self, matrix: Tensor, step: int) -> Tensor:  # noqa: ARG002
        """Return a matrix with noise, which does not depend on the step; it may be changed.

        A GPU is not waited for. Should its noise fail, which chance alone never does, all that
        follows is NaN.
        """
        # No entry is looked at: sums of clipped gradients are finite, and each of their entries is
        # far below the limit of the noise, which is 2**52 times its scale.
        if self._there is not None:
            return self._there.begin(matrix, ReleaseKey.generate(), in_place=True).out
        release = self._mechanism.release(matrix.cpu().numpy())
        return torch.from_numpy(release.value).to(matrix.device)

    def prepare_shards(self) -> bool:
        """Compile what draws; noise that is rotated is drawn at once."""
        return bool(self._drawing.noise) and self._drawing.by_element

    def added_to_shard(self, values: Tensor, first: int, step: int, secret: bytes) -> Tensor:  # noqa: ARG002
        """Return elements with the noise of a key, drawn on the processor."""
        drawing, key = self._drawing, ReleaseKey.from_bytes(secret)
        array, threads = values.cpu().numpy(), torch.get_num_threads()
        if drawing.by_element:
            with key.bind(drawing.noise.context) as stream:
                noise = ElementNoise(stream, drawing.noise.scales)
                found = noise.add_range(array, first, out=array, threads=threads)
        else:
            found = drawing.draw(array.reshape(self._shape), key, threads=threads).reshape(-1)
        return torch.from_numpy(found).to(values.device)

    @property
    def _drawing(self) -> Drawing:
        return drawing_for(self._mechanism.proof, self._shape, np.dtype(np.float64))


def _noise_on(device: torch.device, mechanism: IMGM, shape: tuple[int, int]) -> TensorNoise | None:
    """Return the noise of matrices on a GPU, or None if it is drawn on the processor."""
    if device.type != "cuda":
        return None
    drawing = drawing_for(mechanism.proof, shape, np.dtype(np.float64))
    if not drawing.by_element:
        return None
    try:
        kernel = _kernel_of(device)
    except MatrixDPError as error:
        warnings.warn(
            f"{error}. The noise of every step is drawn on the processor, which takes long",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    return TensorNoise(drawing.noise.context, drawing.noise.scales, kernel)


def _kernel_of(device: torch.device) -> TensorKernel:
    # A device without an index is the current one, as a tensor says.
    return cuda_kernel(torch.empty(0, device=device).get_device())


class SimulatedNoise(BlockNoise):
    """Seeded noise of the same covariance for experiments, which protects nothing.

    Parameters
    ----------
    mechanism : IMGM
        Says which covariance.
    seed, index : int
        What the noise depends on, besides the step; each block has an index of its own.
    shape : tuple of int
        Of the matrices.
    device : torch.device
        Where it is drawn.
    """

    def __init__(
        self,
        mechanism: IMGM,
        seed: int,
        index: int,
        *,
        shape: tuple[int, int],
        device: torch.device,
    ) -> None:
        self._colour = _colouring(mechanism.covariance, device)
        self._seed = seed
        self._index = index
        self._shape = shape
        self._generator = torch.Generator(device)

    def added_to(self, matrix: Tensor, step: int) -> Tensor:
        """Add noise to the matrix that depends on seed, step and index alone."""
        return matrix.add_(self._drawn(matrix, step))

    def prepare_shards(self) -> bool:
        """Return that shards are drawn by themselves: each as a part of the whole."""
        return True

    def added_to_shard(self, values: Tensor, first: int, step: int, secret: bytes) -> Tensor:  # noqa: ARG002
        """Add the noise that these elements have in the whole, which is drawn by every rank."""
        whole = self._drawn(values.new_empty(self._shape), step)
        return values.add_(whole.reshape(-1)[first : first + len(values)])

    def _drawn(self, like: Tensor, step: int) -> Tensor:
        """Return the noise of a step."""
        # Indices count from 1: the words with 0 are those that lots are drawn by.
        words = np.random.SeedSequence([self._seed, step, 1 + self._index])
        self._generator.manual_seed(int(words.generate_state(1, np.uint64)[0] >> np.uint64(1)))
        # In float32, which is enough for experiments.
        standard = torch.empty_like(like, dtype=torch.float32).normal_(generator=self._generator)
        return self._colour(standard)


def _colouring(covariance: Covariance, device: torch.device) -> Callable[[Tensor], Tensor]:
    """Return ``Covariance.colour`` for tensors, in float32."""

    def moved(array: NDArray[np.float64]) -> Tensor:
        return torch.tensor(array, dtype=torch.float32, device=device)

    match covariance:
        case Isotropic():
            return lambda standard: standard.mul_(covariance.scale)
        case Diagonal():
            scales = moved(covariance.scales)
            return lambda standard: standard.mul_(scales)
        case Kronecker():
            inner = moved(covariance.eigenbasis_scales)
            left, right = (
                None if side.vectors is None else moved(side.vectors) for side in covariance.sides
            )

            def rotated(standard: Tensor) -> Tensor:
                coloured = inner * standard if left is None else left @ (inner * standard)
                return coloured if right is None else coloured @ right.T

            return rotated
    raise InvalidParameterError(
        f"noise of a {type(covariance).__name__} does not go with gradients: pass Isotropic, "
        "Diagonal or Kronecker"
    )
