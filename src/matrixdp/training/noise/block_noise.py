"""The noise of one block of parameters: exact for real releases, simulated for experiments."""

import warnings
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from matrixdp.covariance import Covariance, Diagonal, Isotropic, Kronecker
from matrixdp.errors import InvalidParameterError, MatrixDPError
from matrixdp.mechanisms.drawing import drawing_for
from matrixdp.mechanisms.imgm import IMGM
from matrixdp.noise import ReleaseKey
from matrixdp.noise.application.tensors import TensorNoise, cuda_kernel
from matrixdp.noise.kernels import prepare_fastest
from matrixdp.noise.kernels.cuda.kernel import TensorKernel

__all__ = ["ExactNoise", "NoisyMatrix", "SimulatedNoise"]


class NoisyMatrix(Protocol):
    """A matrix that is getting its noise: without waiting, as other matrices may get theirs."""

    def finish(self) -> Tensor:
        """Return it with its noise."""
        ...

    def close(self) -> None:
        """Forget the secrets of what is not finished."""
        ...


class _Finished(NamedTuple):
    """A matrix that has its noise."""

    matrix: Tensor

    def finish(self) -> Tensor:
        """Return the matrix."""
        return self.matrix

    def close(self) -> None:
        """Do nothing."""


class ExactNoise:
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
        # Compiling takes long, and may fail or be interrupted: before a step is spent.
        self._there = _noise_on(device, mechanism, shape)
        if self._there is None:
            prepare_fastest(torch.float64.itemsize)

    def begin(self, matrix: Tensor, step: int) -> NoisyMatrix:  # noqa: ARG002
        """Begin to draw noise, which does not depend on the step; the matrix may be changed."""
        # No entry is looked at: sums of clipped gradients are finite, and each of their entries is
        # far below the limit of the noise, which is 2**52 times its scale.
        if self._there is not None:
            return self._there.begin(matrix, ReleaseKey.generate(), in_place=True)
        release = self._mechanism.release(matrix.cpu().numpy())
        return _Finished(torch.from_numpy(release.value).to(matrix.device))


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


class SimulatedNoise:
    """Seeded noise of the same covariance for experiments, which protects nothing.

    Parameters
    ----------
    mechanism : IMGM
        Says which covariance.
    seed, index : int
        What the noise depends on, besides the step; each block has an index of its own.
    device : torch.device
        Where it is drawn.
    """

    def __init__(self, mechanism: IMGM, seed: int, index: int, device: torch.device) -> None:
        self._colour = _colouring(mechanism.covariance, device)
        self._seed = seed
        self._index = index
        self._generator = torch.Generator(device)

    def begin(self, matrix: Tensor, step: int) -> NoisyMatrix:
        """Add noise to the matrix that depends on seed, step and index alone."""
        # Indices count from 1: the words with 0 are those that lots are drawn by.
        words = np.random.SeedSequence([self._seed, step, 1 + self._index])
        self._generator.manual_seed(int(words.generate_state(1, np.uint64)[0] >> np.uint64(1)))
        # In float32, which is enough for experiments.
        standard = torch.empty_like(matrix, dtype=torch.float32).normal_(generator=self._generator)
        return _Finished(matrix.add_(self._colour(standard)))


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
