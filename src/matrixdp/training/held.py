"""Tensors held between the norms and the sums of layers, which must stay unchanged."""

from torch import Tensor

from matrixdp.errors import InvalidParameterError
from matrixdp.training.layers.use import LayerUse

__all__ = ["HeldTensors"]


class HeldTensors:
    """The tensors that uses hold, each with how often it had been changed in place.

    A hook or a backward function may write to an input or a gradient after its norm was taken, and
    the sum would be made of other numbers. Only what a use still holds matters: whatever it has let
    go, torch may write to as well.
    """

    def __init__(self) -> None:
        self._held: list[tuple[str, Tensor, int]] = []

    def add(self, name: str, use: LayerUse) -> None:
        """Remember what a use holds, by the name of its layer."""
        for part in vars(use).values():
            if isinstance(part, Tensor):
                self._held.append((name, part, part._version))  # noqa: SLF001

    def check_unchanged(self) -> None:
        """Raise if something was changed in place since.

        Raises
        ------
        InvalidParameterError
            Which names the layer.
        """
        for name, part, version in self._held:
            if part._version != version:  # noqa: SLF001
                raise InvalidParameterError(
                    f"an input or a gradient of layer {name!r} was changed in place during the "
                    "backward pass, after its norm was taken: let hooks and backward functions "
                    "return new tensors"
                )
