"""Data sets and their models, ready to be trained: tensors on the device, losses, accuracy."""

import abc
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from matrixdp.training import Neighbourhoods
from matrixdp_experiments.datasets import load_dataset
from matrixdp_experiments.grid.digits import digits_model, load_digit_records
from matrixdp_experiments.grid.runs import Split
from matrixdp_experiments.models import model_for

__all__ = ["RecordsTask", "Task", "load_task", "this_device"]

_TESTED_AT_ONCE = 2048  # records; it limits memory and changes nothing


class Task(abc.ABC):
    """A model and the records that it is trained and judged on.

    Attributes
    ----------
    model : nn.Module
        On the device, with weights that depend on torch's seed.
    data : tuple of Tensor
        What is trained on; the first axis is the records.
    fixed_shapes : bool
        Whether batches of equal size have equal shapes, so that a step can be captured.
    """

    model: nn.Module
    data: tuple[Tensor, ...]
    fixed_shapes = True
    _judged: tuple[Tensor, ...]
    _judged_targets: Tensor

    @abc.abstractmethod
    def logits(self, *inputs: Tensor) -> Tensor:
        """Return the model's answers for some records."""

    def losses(self, *batch: Tensor) -> Tensor:
        """Return one loss for each record of a batch, whose last part are the targets."""
        *inputs, targets = batch
        return functional.cross_entropy(self.logits(*inputs), targets, reduction="none")

    def accuracy(self) -> float:
        """Return the share of right answers of the model as it is now."""
        self.model.eval()
        # In batches, as all test images at once may not fit beside other runs.
        with torch.no_grad():
            answers = torch.cat([self.logits(*part).argmax(1) for part in self._judged_batches()])
        return float((answers == self._judged_targets).double().mean())

    def _judged_batches(self) -> Iterator[tuple[Tensor, ...]]:
        return zip(*(part.split(_TESTED_AT_ONCE) for part in self._judged), strict=True)


class RecordsTask(Task):
    """Records that are independent of each other.

    Parameters
    ----------
    model : nn.Module
        On the device of the tensors.
    train, judged : tuple of Tensor and Tensor
        Inputs and targets: what is trained on, and what it is judged by.
    half : bool, optional
        Whether convolutions and products are in bfloat16, by autocast, with channels last.
    """

    def __init__(
        self,
        model: nn.Module,
        train: tuple[Tensor, Tensor],
        judged: tuple[Tensor, Tensor],
        *,
        half: bool = False,
    ) -> None:
        # torch declares the layout for tensors alone
        self.model = model.to(memory_format=torch.channels_last) if half else model  # type: ignore[call-overload]
        self._half = half
        self.data = train
        self._judged = judged[:1]
        self._judged_targets = judged[1]

    def logits(self, *inputs: Tensor) -> Tensor:
        """Return the model's answers for some inputs."""
        # Casts are not cached, since a captured graph would keep those of its first run.
        with torch.autocast(
            inputs[0].device.type, torch.bfloat16, enabled=self._half, cache_enabled=False
        ):
            answers: Tensor = self.model(*inputs)
        return answers.float()


class _NodesTask(Task):
    """Nodes of a public graph with public features, whose labels are private."""

    fixed_shapes = False  # a batch is as wide as its largest neighbourhood

    def __init__(self, found: Any, model: nn.Module, split: Split, device: torch.device) -> None:
        self.model = model
        # Dense: a few thousand nodes, once.
        adjacency = torch.from_numpy(found.adjacency.toarray()).float()
        self._near = Neighbourhoods(adjacency.to(device))
        self._features = _moved(found.features, device)
        targets, judged = _moved(found.targets, device), found.test
        if split == "choosing":
            judged = found.choosing
        nodes, judged_nodes = _moved(found.train, device), _moved(judged, device)
        self.data = (nodes, targets[nodes])
        self._judged = (judged_nodes,)
        self._judged_targets = targets[judged_nodes]

    def logits(self, *inputs: Tensor) -> Tensor:
        """Return the model's answers for the nodes with some numbers."""
        (nodes,) = inputs
        answers: Tensor = self.model(*self._near.rows(self._features, nodes))
        return answers


def this_device() -> torch.device:
    """Return the GPU if there is one, else the CPU."""
    if torch.cuda.is_available():
        torch.set_float32_matmul_precision("high")  # TF32, as convolutions have it by default
        return torch.device("cuda")
    return torch.device("cpu")


def load_task(dataset: str, split: Split, device: torch.device, *, half: bool = False) -> Task:
    """Return a data set and a new model on a device.

    The model's first weights come from torch's default generator: seed it before. They are drawn on
    the CPU, so that a seed means the same weights on every device.
    """
    found, model = _loaded(dataset), _model_for(dataset).to(device)
    if hasattr(found, "adjacency"):
        return _NodesTask(found, model, split, device)
    train, judged = (
        (found.train, found.test) if split == "test" else (found.choosing_train, found.choosing)
    )
    return RecordsTask(model, _on_device(train, device), _on_device(judged, device), half=half)


# A worker process makes one run after another, mostly on the same data set.
@lru_cache(maxsize=1)
def _loaded(dataset: str) -> Any:
    if dataset == "digits":
        return load_digit_records()
    return load_dataset(dataset)


def _model_for(dataset: str) -> nn.Module:
    if dataset == "digits":
        return digits_model()
    return model_for(dataset)


def _moved(array: Any, device: torch.device) -> Tensor:
    return torch.from_numpy(array).to(device)


def _on_device(records: Any, device: torch.device) -> tuple[Tensor, Tensor]:
    return _moved(records.inputs, device), _moved(records.targets, device)
