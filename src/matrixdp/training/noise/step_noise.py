"""The noise of a whole step: every trained parameter belongs to one block, each drawn by itself."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from matrixdp.covariance import Covariance, Diagonal, Isotropic, Kronecker
from matrixdp.errors import InvalidParameterError
from matrixdp.mechanisms.imgm import IMGM
from matrixdp.training.guarantee import Noise
from matrixdp.training.noise.block_noise import BlockNoise, ExactNoise, SimulatedNoise
from matrixdp.training.noise.blocks import Block, FlatBlock, LayerBlock, Sums
from matrixdp.training.noise.shards import NoiseInShards
from matrixdp.training.plan import TrainingPlan

__all__ = ["StepNoise"]

_SHAPES = (Isotropic, Diagonal, Kronecker)
# More than the rounding of the factor and of each product takes or adds.
_ROUNDING_MARGIN = 1.0 - 2.0**-21


class StepNoise:
    """Draws the noise of steps: one i.i.d. scale, or a covariance of its own for some layers.

    Every block's noise is at least the plan's in every direction, and blocks are independent. So
    the noise of a step is the plan's i.i.d. noise plus more of it in some directions, which is
    post-processing and needs no account.

    Parameters
    ----------
    model : nn.Module
        Where the names of layers are looked up.
    parameters : iterable of Parameter
        All that are trained.
    plan : TrainingPlan
        Says how much noise there must be.
    shapes : mapping of str to Covariance
        The covariance of the noise of a layer; other layers have i.i.d. noise.
    seed : int or None
        Of simulated noise; None is exact noise.
    shards : callable, optional
        Returns the noise of a block, given its noise, itself and its index, where its sum is spread
        over ranks.

    Raises
    ------
    InvalidParameterError, ShapeError
        If a name or a covariance does not fit the model.
    BudgetExceededError
        If a covariance is too small; the message says by how much.
    """

    def __init__(
        self,
        model: nn.Module,
        parameters: Iterable[nn.Parameter],
        plan: TrainingPlan,
        shapes: Mapping[str, Covariance],
        seed: int | None,
        *,
        shards: Callable[..., NoiseInShards] | None = None,
    ) -> None:
        self._seed = seed
        self._sum_norm = plan.sum_norm
        self.shaped_layers = tuple(shapes)
        flat = plan.step_mechanism
        rest = dict.fromkeys(parameters)
        blocks: list[tuple[Block, IMGM]] = []
        for name, covariance in shapes.items():
            layer = _layer_block(model, name, rest)
            blocks.append((layer, _shaped_mechanism(name, covariance, layer.shape, flat)))
            # A set, which compares tensors by identity; a tuple would compare their elements.
            taken = set(layer.parameters)
            rest = {parameter: None for parameter in rest if parameter not in taken}
        # One row for each device and type, so that a step takes one draw for nearly all parameters.
        alike: dict[tuple[torch.device, torch.dtype], list[nn.Parameter]] = {}
        for parameter in rest:
            alike.setdefault((parameter.device, parameter.dtype), []).append(parameter)
        blocks += [(FlatBlock(together), flat) for together in alike.values()]
        self._blocks = [block for block, _ in blocks]
        self._noises: list[BlockNoise | NoiseInShards] = []
        for index, (block, mechanism) in enumerate(blocks):
            where: Any = {"shape": block.shape, "device": block.device}
            noise: BlockNoise = (
                ExactNoise(mechanism, **where)
                if seed is None
                else SimulatedNoise(mechanism, seed, index, **where)
            )
            self._noises.append(noise if shards is None else shards(noise, block, index=index))

    @property
    def kind(self) -> Noise:
        """What the guarantee says about it."""
        return "exact" if self._seed is None else "simulated"

    @property
    def shards(self) -> list[list[int]]:
        """How many elements of each block every rank has, where sums are spread over ranks."""
        return [noise.sizes for noise in self._noises if isinstance(noise, NoiseInShards)]

    def gathered(self, sums: Sums) -> list[Tensor]:
        """Return the sums of all blocks as new matrices, together within the plan's bound."""
        matrices = [block.gathered(sums) for block in self._blocks]
        if self._sum_norm is not None:
            _project(matrices, self._sum_norm)
        return matrices

    def noisy_means(
        self, matrices: Sequence[Tensor], step: int, divisor: float
    ) -> list[tuple[nn.Parameter, Tensor]]:
        """Draw the noise of a step; return every parameter with its noisy sum over a divisor.

        Parameters
        ----------
        matrices : sequence of Tensor
            What `gathered` returned; they may be changed.
        step : int
            The number of the step.
        divisor : float
            By which the sums are divided once they have their noise.
        """
        found: list[tuple[nn.Parameter, Tensor]] = []
        for block, noise, matrix in zip(self._blocks, self._noises, matrices, strict=True):
            found += block.scattered(noise.mean(matrix, step, divisor, block.dtype))
        return found


def _project(matrices: Sequence[Tensor], bound: float) -> None:
    """Shorten matrices in place so that the norm of all of them together is within a bound.

    This is the projection on a ball, which is 1-Lipschitz: sums that differ by one record are no
    further apart afterwards, so that the sensitivity stays. The factor depends on the norm of the
    sum alone. One that depended on the drawn number of records would not have this property.
    """
    device = matrices[0].device
    # In float64, where no square overflows. Nothing here waits for the device.
    norms = [
        torch.linalg.vector_norm(tensor, dtype=torch.float64).to(device) for tensor in matrices
    ]
    whole = torch.linalg.vector_norm(torch.stack(norms))
    # A slightly smaller ball instead of a smaller factor: a factor that jumped at the bound would
    # move neighbours apart. A norm of 0 gives infinity, which is clamped.
    factor = (bound * _ROUNDING_MARGIN / whole).clamp(max=1.0)
    for matrix in matrices:
        matrix.mul_(factor.to(matrix.device))


def _layer_block(model: nn.Module, name: str, free: Mapping[nn.Parameter, None]) -> LayerBlock:
    """Return the matrix of a named layer, whose parameters must be trained and not yet taken."""
    try:
        layer = model.get_submodule(name)
    except AttributeError:
        raise InvalidParameterError(
            f"layer_covariances names {name!r}, but the model has no such layer: use the names of "
            "model.named_modules()"
        ) from None
    block = LayerBlock(layer, name)
    if not all(parameter in free for parameter in block.parameters):
        raise InvalidParameterError(
            f"layer_covariances[{name!r}] is for a layer that is frozen, or that shares its "
            "parameters with another layer that is named: leave it out"
        )
    return block


def _shaped_mechanism(name: str, covariance: object, shape: tuple[int, int], flat: IMGM) -> IMGM:
    """Return the mechanism of a layer, proven to have enough noise in every direction."""
    if not isinstance(covariance, _SHAPES):
        raise InvalidParameterError(
            f"layer_covariances[{name!r}] is a {type(covariance).__name__}: pass Isotropic, "
            "Diagonal or Kronecker; of a mechanism, its covariance"
        )
    covariance.check_shape(shape)
    # Judged as if this layer alone could use up the whole clip norm, as an example's gradient may.
    return IMGM(sensitivity=flat.sensitivity, budget=flat.budget, covariance=covariance)
