"""The losses of a model, run on made-up records with random draws that are fixed by record."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from matrixdp.training.checks.draws import FixedDraws
from matrixdp.training.checks.made_up import Batches
from matrixdp.training.checks.untouched import same_draws
from matrixdp.training.layers.hooks import hooked
from matrixdp.training.layers.instance_gradient import right_instance_gradients
from matrixdp.training.layers.trees import tensors_in
from matrixdp.training.lots.batch import Losses, called, gradients_of, losses_of
from matrixdp.training.model.tensors import TensorState
from matrixdp.training.model.trainable import Trainable

__all__ = ["RECORDS", "Alone", "Output", "Program", "Run"]

RECORDS = 4
"""How many made-up records are in a batch."""


class Output(NamedTuple):
    """What a layer returned in a run."""

    layer: str
    call: int
    tensor: Tensor

    @property
    def described(self) -> str:
        """The layer in words."""
        return f"layer {self.layer!r}" if self.layer else "the model"


class Run(NamedTuple):
    """One run of the losses, and what was computed on the way."""

    losses: Tensor
    outputs: Sequence[Output]
    inputs: Sequence[Tensor]  # the floating-point tensors of the batch
    draws: Sequence[tuple[int, ...]]


class Alone(NamedTuple):
    """The loss of a record alone, and its gradients by autograd."""

    loss: Tensor
    gradients: dict[nn.Parameter, Tensor]


class Program:
    """A program: model, losses, and some made-up records.

    Parameters
    ----------
    model : nn.Module
        The model.
    losses : callable
        The losses of a batch.
    trainable : Trainable
        The parameters.
    views : int
        How many rows each record has.
    batches : Batches
        The made-up records.
    distinct : int
        How many of them there are.
    turn : int
        Which random draws there are: three turns take both ways of nearly every coin.
    """

    def __init__(
        self,
        model: nn.Module,
        losses: Losses,
        trainable: Trainable,
        views: int,
        *,
        batches: Batches,
        distinct: int,
        turn: int,
    ) -> None:
        self._model = model
        self._losses = losses
        self._trainable = trainable
        self._views = views
        self.batch = batches
        self.distinct = distinct
        self._turn = turn
        self._like: tuple[Sequence[tuple[int, ...]], Sequence[tuple[int, ...]]] | None = None
        # By two sizes it is known where the records are in what is drawn and returned.
        whole, fewer = (self.run(range(number)) for number in (RECORDS, RECORDS - 1))
        self._like = whole.draws, fewer.draws
        self.batched = [
            one.tensor.shape != other.tensor.shape
            for one, other in zip(whole.outputs, fewer.outputs, strict=False)
        ]
        self.shared = _shared_calls(whole.outputs, self.batched)
        # At once, as some losses cannot be computed for a single record.
        self.alone = self._run_alone()

    @cached_property
    def whole(self) -> Run:
        """The run on all records, with gradients at the inputs where the losses allow that."""
        try:
            return self.run(range(RECORDS), follow=True)
        except torch.OutOfMemoryError:
            raise
        except Exception:  # noqa: BLE001 - such as numpy(), which takes no gradient
            return self.run(range(RECORDS))

    @property
    def per_loss(self) -> int:
        """Of how many rows each loss is: of one, or of all that belong to a record."""
        if self._views == 1:
            return 1
        # Losses that leave out rows keep all rows of a record or none, where its rows are equal.
        return self._views if 1 in map(self.number_alike, ([one] for one in range(RECORDS))) else 1

    def _run_alone(self) -> list[Alone]:
        """Run the records one by one."""
        found = []
        for record in range(RECORDS):
            with right_instance_gradients(self._model), self.draws([record]):
                loss = losses_of(self._losses, self.batch([record]), 1, self._views)
                gradients = gradients_of(loss, list(self._trainable))
            dense = (tensor.to_dense() if tensor.is_sparse else tensor for tensor in gradients)
            wide = [tensor.detach().double() for tensor in dense]
            found.append(Alone(loss.detach(), dict(zip(self._trainable, wide, strict=True))))
        return found

    @property
    def by_row(self) -> set[int]:
        """The indices of the tensors of a batch that have as many rows as it has, in two sizes."""
        sizes = (RECORDS, RECORDS - 1)
        return set[int].intersection(
            *(
                {
                    index
                    for index, tensor in enumerate(tree_leaves(self.batch(range(number))))
                    if isinstance(tensor, Tensor)
                    and tensor.ndim
                    and len(tensor) == number * self._views
                }
                for number in sizes
            )
        )

    @property
    def coarse(self) -> bool:
        """Whether anything of 16 bits is computed."""
        tensors = [self.whole.losses, *(output.tensor for output in self.whole.outputs)]
        return any(tensor.is_floating_point() and tensor.element_size() < 4 for tensor in tensors)

    def draws(self, records: Sequence[int]) -> FixedDraws:
        """Return the mode in which the random draws of some records are fixed."""
        same_draws(self._turn)
        return FixedDraws(records, self._turn, self._like)

    @property
    def losses_alike(self) -> Callable[[Sequence[int]], Tensor]:
        """A function of any records, some of them several times, which holds no results of runs."""
        losses, batches, views = self._losses, self.batch, self._views
        turn, like = self._turn, self._like

        def computed(records: Sequence[int]) -> Tensor:
            same_draws(turn)
            with FixedDraws(records, turn, like):
                found = losses_of(losses, batches(records), len(records), views)
            return found.detach().double()

        return computed

    @property
    def number_alike(self) -> Callable[[Sequence[int]], int]:
        """A function of any records that returns how many losses they have."""
        losses, batches, turn, like = self._losses, self.batch, self._turn, self._like

        def number(records: Sequence[int]) -> int:
            same_draws(turn)
            with FixedDraws(records, turn, like):
                return called(losses, batches(records)).numel()

        return number

    def run(self, records: Sequence[int], *, follow: bool = False) -> Run:
        """Return the losses of a batch, and what was computed on the way; ``follow`` its inputs."""
        inputs: list[Tensor] = []
        outputs: list[Output] = []

        def followed(tensor: Tensor) -> Tensor:
            if not (follow and tensor.is_floating_point()):
                return tensor
            inputs.append(tensor.detach().requires_grad_())
            return inputs[-1].clone()  # no leaf, so that it may be changed in place

        batch = tree_map_only(Tensor, followed, self.batch(records))
        state = TensorState(self._model)

        calls: Counter[str] = Counter()

        def keep(name: str, _module: Any, _arguments: Any, _named: Any, output: Any) -> None:
            outputs.extend(Output(name, calls[name], tensor) for tensor in tensors_in(output))
            calls[name] += 1

        hooks = [(module, partial(keep, name)) for name, module in self._model.named_modules()]
        with hooked(hooks), self.draws(records) as draws:
            losses = losses_of(self._losses, batch, len(records), self._views)
        state.check()
        return Run(losses, outputs, inputs, draws.shapes)


def _shared_calls(
    outputs: Sequence[Output], batched: Sequence[bool]
) -> dict[str, tuple[bool, ...]]:
    """Return for each layer whether what its calls returned had no rows: in any is True."""
    found: dict[str, dict[int, bool]] = {}
    for output, by_row in zip(outputs, batched, strict=False):
        calls = found.setdefault(output.layer, {})
        calls[output.call] = not by_row and calls.get(output.call, True)
    return {
        name: tuple(calls.get(call, False) for call in range(max(calls) + 1))
        for name, calls in found.items()
        if any(calls.values())
    }
