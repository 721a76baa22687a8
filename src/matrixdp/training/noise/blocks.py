"""Gradients as matrices: the blocks of parameters that noise is drawn for."""

import abc
from collections.abc import Iterator, Mapping, Sequence
from math import prod

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


class FlatBlock(Block):
    """Parameters one after another in a single row, so that one call draws all of their noise."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._parameters = tuple(parameters)
        self._orders = [_memory_order(parameter) for parameter in self._parameters]

    @property
    def device(self) -> torch.device:
        """The device of the first one."""
        return self._parameters[0].device

    @property
    def dtype(self) -> torch.dtype:
        """The type of the first one."""
        return self._parameters[0].dtype

    @property
    def shape(self) -> tuple[int, int]:
        """One row."""
        return (1, sum(part.numel() for part in self._parameters))

    def gathered(self, sums: Sums) -> Tensor:
        """Return one row, parameters in their order and elements as they lie in memory."""
        # In the order of memory, so that neither this nor the way back has to copy by strides.
        rows = [
            _sum_of(parameter, sums).permute(order).reshape(-1)
            for parameter, order in zip(self._parameters, self._orders, strict=True)
        ]
        return torch.cat(rows)[None]

    def scattered(self, matrix: Tensor) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """Return views with the strides of the parameters, as optimisers like them best."""
        pieces = matrix[0].split_with_sizes([parameter.numel() for parameter in self._parameters])
        for parameter, order, piece in zip(self._parameters, self._orders, pieces, strict=True):
            shape = [parameter.shape[axis] for axis in order]
            back = sorted(range(parameter.ndim), key=order.__getitem__)
            yield parameter, piece.view(shape).permute(back)


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


def _memory_order(parameter: nn.Parameter) -> list[int]:
    """Return the axes from the slowest to the fastest: other than usual if channels come last."""
    strides = parameter.stride()
    return sorted(range(parameter.ndim), key=lambda axis: -strides[axis])
