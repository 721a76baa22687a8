"""Check that a call of a layer keeps the rows of a batch apart, as far as shapes can tell."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.instancenorm import _InstanceNorm

from matrixdp.errors import ShapeError
from matrixdp.training.layers.trees import tensors_in
from matrixdp.training.layers.whole import runs_plainly

__all__ = ["check_rows", "may_mix_rows", "rows_axis", "would_mix"]


def check_rows(
    module: nn.Module,
    name: str,
    inputs: Sequence[Any],
    gradients: Mapping[int, Tensor],
    rows: int,
) -> None:
    """Raise unless the first axis of a layer's input and outputs is the rows of the batch.

    The states that torch's recurrent layers return have the rows on their second axis.

    torch takes an input that lacks an axis for a single example. Of a batch it would then take the
    rows for channels or for steps in time, and mix the examples.

    Raises
    ------
    ShapeError
        Which names the layer and the shape.
    """
    tensors = tensors_in(inputs)
    shape = tuple(tensors[0].shape) if tensors else None
    if shape is None or len(shape) not in _axes(module) or shape[0] != rows:
        raise ShapeError(
            f"layer {name!r} got an input of shape {shape}, but the batch has {rows} rows: keep "
            "the batch as the first axis of every layer's input, before those of a single example"
        )
    states = 1 if runs_plainly(module, nn.RNN, nn.GRU, nn.LSTM) else 0
    for place, gradient in gradients.items():
        axis = states if place else 0
        if gradient.ndim <= axis or gradient.shape[axis] != rows:
            raise ShapeError(
                f"layer {name!r} made an output of shape {tuple(gradient.shape)} of {rows} rows: "
                "keep the batch as the first axis of every layer's output"
            )


_SOFTMAX = nn.Softmax, nn.LogSoftmax, nn.Softmin, nn.GLU
_MAY_MIX = (
    *(_ConvNd, _InstanceNorm, nn.RNNBase, nn.MultiheadAttention, nn.Linear, nn.Bilinear),
    *(*_SOFTMAX, nn.Softmax2d),
)


def may_mix_rows(module: nn.Module) -> bool:
    """Return whether a layer mixes the rows of inputs that have too few axes, or all of them.

    torch takes an input that lacks an axis for a single example, and some layers have an axis that
    they work along.
    """
    return isinstance(module, _MAY_MIX)


def rows_axis(module: nn.Module, axes: int) -> int | None:
    """Return which axis of an input a layer, as it is now, takes for rows, if any.

    Parameters
    ----------
    module : nn.Module
        One that `may_mix_rows`.
    axes : int
        How many the input has, one at least.
    """
    if isinstance(module, _SOFTMAX):
        # As torch has it without a dim.
        dim = module.dim if module.dim is not None else 0 if axes in {1, 3} else 1
        return None if dim % axes == 0 else 0
    if isinstance(module, nn.Softmax2d):
        return 0 if axes == 4 else None
    if axes not in _axes(module):
        return None
    time_first = isinstance(module, nn.RNNBase | nn.MultiheadAttention) and not module.batch_first
    return 1 if time_first else 0


def would_mix(shape: tuple[int, ...], axis: int | None, rows: int) -> bool:
    """Return whether a layer whose gradients are not formed has mixed the rows of a batch.

    Nothing else looks at its rows. But it would mix the examples before they come to layers that
    are trained. What all records share has other lengths.

    Parameters
    ----------
    shape : tuple of int
        Of its input.
    axis : int or None
        Which the layer takes for rows; see `rows_axis`.
    rows : int
        How many rows the batch has.
    """
    # A multiple, since each record may have several rows by now, for instance its steps in time.
    if axis == 0 or rows < 2 or shape[0] % rows:
        return False
    # With as many steps in time as rows, no shape tells which axis is which.
    return axis is None or shape[axis] != rows or shape[0] == rows


def _axes(module: nn.Module) -> range:
    """Return how many axes the input of a layer has, the rows included."""
    many = 64  # as many as torch allows
    match module:
        case _ConvNd():
            fewest = most = 2 + len(module.kernel_size)
        case nn.InstanceNorm1d() | nn.RNNBase() | nn.MultiheadAttention():
            fewest = most = 3
        case nn.InstanceNorm2d():
            fewest = most = 4
        case nn.InstanceNorm3d():
            fewest = most = 5
        case nn.LayerNorm() | nn.RMSNorm():
            fewest, most = 1 + len(module.normalized_shape), many
        case nn.Linear() | nn.Bilinear() | nn.RNNCellBase():
            fewest, most = 2, many
        case _:
            fewest, most = 1, many
    return range(fewest, most + 1)
