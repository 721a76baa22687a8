"""The parameters and buffers of a model, which computing the losses must leave as they are."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from matrixdp.errors import InvalidParameterError

__all__ = ["TensorState", "address_of", "tensors_of"]


class TensorState:
    """Each parameter and buffer, where it lies, and how often it was changed there.

    Frozen ones may be a codebook or an average, and those that are trained change in a step only.
    Writing through ``.data`` is noticed in a check only, in the mode ``fast``.

    Parameters
    ----------
    model : nn.Module
        The model.

    Raises
    ------
    InvalidParameterError
        For a tensor that does not tell when it is changed.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        # The tensors themselves, so that nothing else can be put where they are meanwhile.
        self._state = _state(model)

    def check(self) -> None:
        """Raise if a buffer or a parameter was changed since.

        The change has no noise, and what follows depends on it: on the records themselves, or on
        how many of them there were.
        """
        now, before = _state(self._model), self._state
        for name in sorted(now.keys() | before.keys()):
            old, new = before.get(name), now.get(name)
            if old is None or new is None:
                raise InvalidParameterError(
                    f"{name} was {'added' if old is None else 'removed'} while the losses were "
                    "computed: change the model first, then make its optimiser and PrivateTraining"
                )
            if old[0] is not new[0] or old[1:] != new[1:]:
                raise InvalidParameterError(
                    f"{name} was changed by the forward or backward pass, and would carry "
                    "something from these records to others without noise: switch its layer to "
                    "eval(), leave the layer, the hook or flatten_parameters() out, or fill it "
                    "before training"
                )


def tensors_of(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Go through all parameters and buffers of a model: in one go, as every batch does it."""
    for name, module in model.named_modules():
        prefix = f"{name}." if name else ""
        for kind, tensors in (("parameter", module._parameters), ("buffer", module._buffers)):  # noqa: SLF001
            for own, tensor in tensors.items():
                if tensor is not None:
                    yield f"{kind} {prefix + own!r}", tensor


def address_of(tensor: Tensor) -> int:
    """Return where a strided tensor lies; that of a sparse one moves, but its version tells."""
    return tensor.data_ptr() if tensor.layout is torch.strided else 0


def _state(model: nn.Module) -> dict[str, tuple[Tensor, int, int]]:
    return {
        name: (tensor, address_of(tensor), _version(name, tensor))
        for name, tensor in tensors_of(model)
    }


def _version(name: str, tensor: Tensor) -> int:
    if tensor.is_inference():
        raise InvalidParameterError(
            f"{name} was made within torch.inference_mode(), and does not tell when it is changed: "
            "make it outside, or put a clone() in its place"
        )
    return tensor._version  # noqa: SLF001
