"""Arrays of torch, CuPy and JAX: how they come to numpy, and results back to where they were.

All of them speak DLPack. The libraries are imported only where their user has done so.
"""

import sys
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError

__all__ = [
    "host_array",
    "is_in_chunks",
    "is_on_gpu",
    "is_other_array",
    "other_from_host",
    "other_from_tensor",
    "plain_tensor",
]

_CUDA = 2
"""The number of NVIDIA's GPUs in DLPack."""


def is_other_array(value: object) -> bool:
    """Return whether this is an array of a library other than numpy.

    Examples
    --------
    >>> is_other_array(np.eye(2)), is_other_array([[1.0]])
    (False, False)
    """
    return (
        type(value) is not np.ndarray
        and not isinstance(value, np.ndarray | np.generic)
        and (hasattr(value, "__dlpack_device__"))
    )


def is_in_chunks(value: object) -> bool:
    """Return whether this is an array of Dask."""
    # Its user has imported the library.
    dask = sys.modules.get("dask.array")
    return dask is not None and isinstance(value, dask.Array)


def is_on_gpu(value: Any) -> bool:
    """Return whether this is an array in the memory of an NVIDIA GPU."""
    if _is_tensor(value):
        # Also of kinds that DLPack does not know.
        return value.device.type == "cuda" and sys.modules["torch"].version.cuda is not None
    return is_other_array(value) and value.__dlpack_device__()[0] == _CUDA


def plain_tensor(tensor: Any) -> Any:
    """Return a tensor of torch's own kind, with its numbers in memory as they are.

    Raises
    ------
    InvalidParameterError
        If it is sparse, or numbers in a memory of its own are not what it is.
    """
    torch = sys.modules["torch"]
    own = type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
    if not own or tensor.layout is not torch.strided or tensor.is_meta or tensor.is_nested:
        raise InvalidParameterError(
            f"matrix is a {type(tensor).__name__} of layout {tensor.layout} on {tensor.device}: "
            "pass an ordinary dense tensor, for instance matrix.to_dense()"
        )
    return tensor.detach().as_subclass(torch.Tensor).resolve_conj().resolve_neg()


def host_array(value: Any) -> NDArray[Any]:
    """Return an array of another library as one of numpy, copied from its device if it has one.

    Raises
    ------
    InvalidParameterError
        If numpy has no such numbers.
    """
    try:
        if _is_tensor(value):
            array: NDArray[Any] = plain_tensor(value).cpu().numpy()
            return array
        return np.asarray(value.get() if is_on_gpu(value) and hasattr(value, "get") else value)
    except (TypeError, BufferError):
        raise InvalidParameterError(
            f"matrix is a {type(value).__name__} of {value.dtype}: cast it to float64 or float32"
        ) from None


def other_from_host(like: Any) -> Any:
    """Return a function that takes arrays of numpy to the library and device of an array.

    It keeps nothing of the numbers of that array.
    """
    if _is_tensor(like):
        return partial(_tensor_from_host, device=like.device)
    return _namespace(like).asarray


def other_from_tensor(like: Any) -> Any:
    """Return a function that takes tensors to the library of an array on the same device."""
    return _itself if _is_tensor(like) else _namespace(like).from_dlpack


def _is_tensor(value: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _namespace(array: Any) -> Any:
    """Return the module of an array's functions; the arrays of CuPy do not name theirs."""
    if hasattr(array, "__array_namespace__"):
        return array.__array_namespace__()
    return sys.modules[type(array).__module__.partition(".")[0]]


def _itself(tensor: Any) -> Any:
    return tensor


def _tensor_from_host(array: NDArray[Any], *, device: Any) -> Any:
    import torch  # noqa: PLC0415 - its user has imported it

    return torch.from_numpy(array).to(device)
