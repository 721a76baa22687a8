"""The noise of one block of parameters: exact for real releases, simulated for experiments."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from matrixdp.covariance import Covariance, Diagonal, Isotropic, Kronecker
from matrixdp.errors import InvalidParameterError
from matrixdp.mechanisms.imgm import IMGM
from matrixdp.noise.kernels import prepare_fastest

__all__ = ["ExactNoise", "SimulatedNoise"]


class ExactNoise:
    """Exact noise under a fresh key each time, on the CPU in float64, rounded afterwards.

    Parameters
    ----------
    mechanism : IMGM
        Whose ``release`` draws it.
    """

    def __init__(self, mechanism: IMGM) -> None:
        self._mechanism = mechanism
        # Compiling takes long, and may fail or be interrupted: before a step is spent.
        prepare_fastest(torch.float64.itemsize)

    def added(self, matrix: Tensor, step: int) -> Tensor:  # noqa: ARG002
        """Return what the mechanism releases; it does not depend on the step."""
        release = self._mechanism.release(matrix.to("cpu", torch.float64).numpy())
        # Rounding what was released is post-processing.
        return torch.from_numpy(release.value).to(matrix.device, matrix.dtype)


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

    def added(self, matrix: Tensor, step: int) -> Tensor:
        """Add noise to the matrix that depends on seed, step and index alone; return it."""
        # Indices count from 1: the words with 0 are those that lots are drawn by.
        words = np.random.SeedSequence([self._seed, step, 1 + self._index])
        self._generator.manual_seed(int(words.generate_state(1, np.uint64)[0] >> np.uint64(1)))
        # In float32, which is enough for experiments.
        standard = torch.empty_like(matrix, dtype=torch.float32).normal_(generator=self._generator)
        return matrix.add_(self._colour(standard))


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
