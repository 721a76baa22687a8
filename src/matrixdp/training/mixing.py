"""Calls of layers that are not recorded, and may have mixed the rows of a batch all the same."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from matrixdp.errors import ShapeError
from matrixdp.training.layers.batch_statistics import NormalisingCall, refuse_batch_statistics
from matrixdp.training.layers.rows import rows_axis, would_mix
from matrixdp.training.layers.trees import tensors_in

__all__ = ["MixingCalls"]


class _OddCall(NamedTuple):
    """A call of a layer that does not take the first axis of its input for rows."""

    module: nn.Module
    shape: tuple[int, ...]
    axis: int | None  # which it takes for rows


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
        self._normalising: dict[NormalisingCall, None] = {}
        self._odd: dict[_OddCall, None] = {}
        self._shared: set[Tensor] | None = None

    def add_normalising(self, call: NormalisingCall) -> None:
        """Remember a call of a layer that normalises over the batch."""
        self._normalising[call] = None

    def add(
        self, module: nn.Module, arguments: Sequence[Any], by_name: Mapping[str, Any] | None = None
    ) -> None:
        """Remember what a layer that `may_mix_rows` got, if it does not take it for rows."""
        by_name = by_name or {}
        for part in _inputs(module, arguments, by_name):
            # Now, since a setting may have been changed for this call alone.
            axis = rows_axis(module, part.ndim) if part.ndim else 0
            if axis != 0 and not self._are_shared(tensors_in((arguments, dict(by_name)))):
                self._odd[_OddCall(module, tuple(part.shape), axis)] = None

    def check(self, rows: int) -> None:
        """Raise if a layer has mixed the rows of a batch of so many.

        Raises
        ------
        InvalidParameterError, ShapeError
            Which names the layer.
        """
        for call in list(self._normalising):  # a copy: other threads may add to it
            if call.may_concern(rows):
                refuse_batch_statistics(self._described(call.module))
        for module, shape, axis in self._odd:
            if would_mix(shape, axis, rows):
                raise ShapeError(
                    f"{self._described(module)} got an input of shape {shape}, and would mix its "
                    f"{rows} rows: {_REMEDY if axis is None else _TIME_FIRST_REMEDY}"
                )

    def forget(self) -> None:
        """Let go of all calls."""
        self._normalising, self._odd, self._shared = {}, {}, None

    def _are_shared(self, parts: list[Tensor]) -> bool:
        """Return whether all tensors are parameters or buffers of the model, or views of them.

        Records are never in these: a pass that changes one is refused.
        """
        if self._shared is None:
            self._shared = {*self._model.parameters(), *self._model.buffers()}
        bases = (part if part._base is None else part._base for part in parts)  # noqa: SLF001
        return self._shared.issuperset(bases)

    def _described(self, module: nn.Module) -> str:
        """Name a layer of the model, or the kind of another one."""
        # Looked for anew: it may have been added since.
        for name, part in self._model.named_modules():
            if part is module:
                return f"layer {name!r}"
        return f"a {type(module).__name__} outside of the model"


_REMEDY = (
    "keep the batch as the first axis of every layer's input, before those of a single example, "
    "and let no layer work along it; give what all records share a first axis by [None]"
)
_TIME_FIRST_REMEDY = (
    "it takes the first axis for time or positions, and that seems to be the batch. Use "
    "batch_first=True, with the batch as the first axis"
)


def _inputs(
    module: nn.Module, arguments: Sequence[Any], by_name: Mapping[str, Any]
) -> list[Tensor]:
    """Return the tensors whose axes tell what a layer took for rows."""
    if isinstance(module, nn.MultiheadAttention):
        # Rows may be in the keys alone. Masks have other axes.
        named = (by_name.get(name) for name in ("query", "key", "value"))
        return [part for part in (*arguments[:3], *named) if isinstance(part, Tensor)]
    for part in (*arguments, by_name.get("input"), *by_name.values()):
        if isinstance(part, Tensor):
            return [part]
    return []
