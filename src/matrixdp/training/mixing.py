"""Calls of layers that are not recorded, and may have mixed the rows of a batch all the same."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from matrixdp.errors import ShapeError
from matrixdp.training.layers.batch_statistics import refuse_batch_statistics
from matrixdp.training.layers.rows import would_mix

__all__ = ["MixingCalls"]


class MixingCalls:
    """Layers that may mix rows, in a model or beside it, and how they were called.

    They are looked at when losses are accumulated: until then they may as well have been called for
    something else.

    Parameters
    ----------
    model : nn.Module
        Whose layers have names.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._normalising: dict[nn.Module, None] = {}
        self._shapes: dict[tuple[nn.Module, tuple[int, ...]], None] = {}

    def add_normalising(self, module: nn.Module) -> None:
        """Remember a layer that normalises over the batch."""
        self._normalising[module] = None

    def add(self, module: nn.Module, arguments: Iterable[Any]) -> None:
        """Remember what a layer that `may_mix_rows` got."""
        self._shapes[module, _first_shape(arguments)] = None

    def check(self, rows: int) -> None:
        """Raise if a layer has mixed the rows of a batch of so many.

        Raises
        ------
        InvalidParameterError, ShapeError
            Which names the layer.
        """
        for module in self._normalising:
            refuse_batch_statistics(self._described(module))
        for module, shape in self._shapes:
            if would_mix(module, shape, rows):
                raise ShapeError(
                    f"{self._described(module)} got an input of shape {shape}, and would mix its "
                    f"{rows} rows: keep the batch as the first axis of every layer's input, before "
                    "those of a single example, and let no layer work along it; give what all "
                    "records share a first axis by [None]"
                )

    def forget(self) -> None:
        """Let go of all calls."""
        self._normalising, self._shapes = {}, {}

    def _described(self, module: nn.Module) -> str:
        """Name a layer of the model, or the kind of another one."""
        # Looked for anew: it may have been added since.
        for name, part in self._model.named_modules():
            if part is module:
                return f"layer {name!r}"
        return f"a {type(module).__name__} outside of the model"


def _first_shape(arguments: Iterable[Any]) -> tuple[int, ...]:
    """Return the shape of the first tensor that a layer got; of none it has no axes."""
    return next((tuple(part.shape) for part in arguments if isinstance(part, Tensor)), ())
