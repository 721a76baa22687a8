"""Facts that ranks must have in common, so that they take the same steps with the same model."""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Subset

import matrixdp
from matrixdp.training.lots.records import RecordSource, TensorRecords
from matrixdp.training.lots.unit_records import UnitRecords
from matrixdp.training.model.tensors import tensors_of
from matrixdp.training.plan import TrainingPlan

__all__ = ["facts_of_data", "facts_of_model", "facts_of_training"]


def facts_of_training(
    plan: TrainingPlan,
    model: nn.Module,
    *,
    covariances: Sequence[str],
    shards: Sequence[Sequence[int]],
    **options: Any,
) -> Mapping[str, object]:
    """Return what ranks must agree on before anything is made: everything but values of weights."""
    described = [
        (name, tuple(tensor.shape), _strides_of(tensor), str(tensor.dtype), tensor.requires_grad)
        for name, tensor in tensors_of(model)
    ]
    return {
        "plan": plan.digest,
        "model": hashlib.sha256(repr(described).encode()).hexdigest(),
        "list of layers with a covariance": tuple(covariances),
        "division of the noise into shards": shards,
        "version of matrixdp": matrixdp.__version__,
        "version of torch": torch.__version__,
        **options,
    }


def facts_of_model(model: nn.Module) -> Mapping[str, object]:
    """Return a digest of all parameters and buffers."""
    digest = hashlib.sha256()
    for name, tensor in tensors_of(model):
        digest.update(name.encode())
        digest.update(_bytes_of(tensor))
    return {"value of the parameters or buffers": digest.hexdigest()}


def facts_of_data(data: object, source: RecordSource, secret: bytes) -> Mapping[str, object]:
    """Return a digest of units, of the first record of tensors, and of the indices of a `Subset`.

    A record that has one number on one rank and another number on another would be counted twice.
    This notices data that each rank has shuffled, split or divided by itself, with few reads.

    Parameters
    ----------
    data : object
        What a user has passed.
    source : RecordSource
        Made of it.
    secret : bytes
        A fresh key that nobody keeps, so that a digest which is shown tells nothing of a record.
    """
    digest = hmac.new(secret, digestmod="sha256")
    if isinstance(source, UnitRecords):
        digest.update(source.order.tobytes() + source.starts.tobytes())
        source = source.source
    if isinstance(source, TensorRecords):
        for tensor in source.tensors:
            digest.update(_bytes_of(tensor[0]))
    while isinstance(data, Subset):
        digest.update(np.asarray(data.indices, dtype=np.int64).tobytes())
        data = data.dataset
    return {"order of the records": digest.hexdigest()}


def _strides_of(tensor: Tensor) -> tuple[int, ...]:
    """Return how a tensor lies in memory, since rows of sums are in that order."""
    return tensor.stride() if tensor.layout is torch.strided else ()


def _bytes_of(tensor: Tensor) -> memoryview:
    dense = tensor.detach().to_dense() if tensor.is_sparse else tensor.detach()
    plain = dense.cpu().contiguous().reshape(-1)
    return np.ascontiguousarray(plain.view(torch.uint8).numpy()).data
