"""Gradients as matrices: the blocks of parameters that noise is drawn for."""

import abc
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from matrixdp.errors import InvalidParameterError

__all__ = ["Block", "FlatBlock", "LayerBlock", "Sums"]

Sums = Mapping[nn.Parameter, Tensor]
"""The sum of clipped gradients for each parameter in float64; what is missing is zero."""


class Block(abc.ABC):
    """Some parameters of one device and type, whose gradients make up one matrix."""

    @property
    @abc.abstractmethod
    def device(self) -> torch.device:
        """Where they are."""

    @property
    @abc.abstractmethod
    def dtype(self) -> torch.dtype:
        """The type of their numbers."""

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, int]:
        """The shape of the matrix."""

    @abc.abstractmethod
    def gathered(self, sums: Sums) -> Tensor:
        """Return the gradients as a new matrix, in float64 as the sums are."""

    @abc.abstractmethod
    def scattered(self, matrix: Tensor) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """Return the columns of a matrix that belong to each parameter, in its shape."""


class _Piece(NamedTuple):
    """Where the elements of a parameter lie in a row, as they lie in memory."""

    shape: torch.Size
    strides: tuple[int, ...]
    start: int


class FlatBlock(Block):
    """Parameters one after another in a single row, so that one call draws all of their noise."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._pieces: dict[nn.Parameter, _Piece] = {}
        self._length = 0
        for parameter in parameters:
            strides = _dense_strides(parameter)
            self._pieces[parameter] = _Piece(parameter.shape, strides, self._length)
            self._length += parameter.numel()
        self._first = parameters[0]

    @property
    def device(self) -> torch.device:
        """The device of the first one."""
        return self._first.device

    @property
    def dtype(self) -> torch.dtype:
        """The type of the first one."""
        return self._first.dtype

    @property
    def shape(self) -> tuple[int, int]:
        """One row."""
        return (1, self._length)

    def gathered(self, sums: Sums) -> Tensor:
        """Return one row, parameters in their order and elements as they lie in memory."""
        row = torch.empty(self.shape, dtype=torch.float64, device=self.device)
        pairs = list(self.scattered(row))
        torch._foreach_copy_([part for _, part in pairs], [_sum_of(one, sums) for one, _ in pairs])
        return row

    def scattered(self, matrix: Tensor) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """Return views with the strides of the parameters, as optimisers like them best."""
        first = matrix.storage_offset()
        for parameter, (shape, strides, start) in self._pieces.items():
            yield parameter, matrix.as_strided(shape, strides, first + start)


class LayerBlock(Block):
    """The weight of a layer as a matrix, its bias as one more column.

    A kernel of a convolution is seen as outputs times (inputs times positions).
    """

    def __init__(self, layer: nn.Module, name: str) -> None:
        weight, bias = getattr(layer, "weight", None), getattr(layer, "bias", None)
        if not isinstance(weight, nn.Parameter) or weight.ndim < 2:
            raise InvalidParameterError(
                f"layer_covariances[{name!r}] has no matrix to shape: name a layer with a weight "
                "of two axes or more, such as nn.Linear or nn.Conv2d"
            )
        trained = bias if isinstance(bias, nn.Parameter) and bias.requires_grad else None
        if trained is not None and trained.shape != weight.shape[:1]:
            raise InvalidParameterError(
                f"layer_covariances[{name!r}] is for a layer whose bias has shape "
                f"{tuple(trained.shape)}, not one number for each of the {len(weight)} rows of its "
                "weight: leave it out"
            )
        self._weight = weight
        self._bias = trained
        self.parameters = (weight,) if trained is None else (weight, trained)

    @property
    def device(self) -> torch.device:
        """The device of the weight."""
        return self._weight.device

    @property
    def dtype(self) -> torch.dtype:
        """The type of the weight."""
        return self._weight.dtype

    @property
    def shape(self) -> tuple[int, int]:
        """The rows of the weight; its columns, and one for the bias if there is one."""
        return (len(self._weight), prod(self._weight.shape[1:]) + len(self.parameters) - 1)

    def gathered(self, sums: Sums) -> Tensor:
        """Return ``[weight, bias]``."""
        matrix = _sum_of(self._weight, sums).reshape(len(self._weight), -1)
        if self._bias is None:
            return matrix.clone()  # noise is added in place, and the sums are not to change
        return torch.cat([matrix, _sum_of(self._bias, sums)[:, None]], dim=1)

    def scattered(self, matrix: Tensor) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """Return the weight's columns, and the bias's."""
        columns = prod(self._weight.shape[1:])
        yield self._weight, matrix[:, :columns].unflatten(1, self._weight.shape[1:])
        if self._bias is not None:
            yield self._bias, matrix[:, columns]


def _sum_of(parameter: nn.Parameter, sums: Sums) -> Tensor:
    """Return a parameter's sum; one that no example used has noise alone."""
    # Noise is drawn for every parameter in every step: which ones an example uses may depend on it.
    if parameter in sums:
        return sums[parameter]
    return torch.zeros_like(parameter, dtype=torch.float64)


def _dense_strides(parameter: nn.Parameter) -> tuple[int, ...]:
    """Return the strides of a tensor without gaps whose axes lie in memory as the parameter's do.

    Other than usual if channels come last. So neither gathering nor scattering has to copy by
    strides.
    """
    given = parameter.stride()
    strides = [0] * parameter.ndim
    step = 1
    for axis in sorted(range(parameter.ndim), key=lambda axis: -given[axis])[::-1]:
        strides[axis] = step
        step *= parameter.shape[axis]
    return tuple(strides)
