"""The check of a model and its losses, before a step is spent and after every change."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_map

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.training.checks.isolation import check_isolation
from matrixdp.training.checks.larger import LargerBatches
from matrixdp.training.checks.made_up import KINDS, Batches, Draw, Kind, imitation, template
from matrixdp.training.checks.program import RECORDS, Program
from matrixdp.training.checks.taken_apart import Chosen, first_right
from matrixdp.training.checks.untouched import untouched, written
from matrixdp.training.checks.weights import enlarge
from matrixdp.training.layers.table import rule_of
from matrixdp.training.lots.batch import Losses
from matrixdp.training.lots.by_layer import ByLayer
from matrixdp.training.lots.by_record import ByRecord
from matrixdp.training.lots.records import Collate, RecordSource
from matrixdp.training.model.compiled import uncompiled
from matrixdp.training.model.signature import signature_of
from matrixdp.training.model.tensors import tensors_of
from matrixdp.training.model.trainable import Trainable

__all__ = ["ModelCheck", "made_up_batches", "own_batches"]

# So many made-up records a large batch repeats.
_DISTINCT = 64
# And so many different rows a made-up record has.
_ROWS = 8

Signature = tuple[object, ...]
SharedCalls = dict[str, tuple[bool, ...]]


class ModelCheck:
    """Checks that records are kept apart, and finds how their gradients are formed.

    Parameters
    ----------
    model : nn.Module
        The model.
    trainable : Trainable
        Its parameters.
    views : int
        How many rows each record has.
    debug : bool
        Whether to raise if a loss or a gradient is not finite.
    """

    def __init__(self, model: nn.Module, trainable: Trainable, *, views: int, debug: bool) -> None:
        self._model = model
        self._trainable = trainable
        self._views = views
        self._debug = debug
        # The last one first, and the functions that they are for: their ids go to no others.
        self._chosen: list[tuple[Signature, Chosen]] = []
        self._functions: list[tuple[Losses, Collate | None]] = []
        self._last: Chosen | None = None

    def known(self, losses: Losses, collate: Collate | None) -> Chosen | None:
        """Return how gradients are formed, if all was checked as it is now."""
        signature = self._signature(losses, collate)
        return next((chosen for known, chosen in self._chosen if known == signature), None)

    def run(self, losses: Losses, draws: Sequence[Draw], collate: Collate | None = None) -> Chosen:
        """Check losses and model on made-up records; return how gradients are formed.

        Parameters
        ----------
        losses : callable
            The losses of a batch.
        draws : sequence of Draw
            The made-up records, in several draws.
        collate : callable, optional
            The user's own function by which they were collated.

        Raises
        ------
        InvalidParameterError
            If records are not kept apart, or losses cannot be computed or are not finite.
        """
        # At first, since the check itself may change attributes, which are then restored.
        signature = self._signature(losses, collate)
        with self._conditions():
            values = [
                (name, tensor, tensor.detach().clone()) for name, tensor in tensors_of(self._model)
            ]
            found = [self._program(losses, draw, turn) for turn, draw in enumerate(draws)]
            programs = [program for program in found if program is not None]
            for name, tensor, value in values:
                if written(tensor, value):
                    raise InvalidParameterError(
                        f"{name} was changed by the forward pass through its attribute data, and "
                        "would carry something from these records to others without noise: switch "
                        "its layer to eval(), or fill it before training"
                    )
            for program in programs:
                check_isolation(program)
            if not any(_shows(program) for program in programs):
                raise InvalidParameterError(
                    "losses or their gradients are not finite for made-up records, so that nothing "
                    "can be told from them: call training.check(rows) with records of your own "
                    "that are not private"
                )
            if not any(_depends(program) for program in programs):
                raise InvalidParameterError(
                    "losses do not depend on any parameter that is trained: compute them from the "
                    "model's outputs, not under torch.no_grad() and not detached. If only those of "
                    "made-up records do not, call training.check(rows) with records of your own "
                    "that are not private"
                )
            by_row = set[int].intersection(*(program.by_row for program in programs))
            shared = _shared_by_all(programs)
            layers: Any = {"shared": shared, "per_loss": programs[0].per_loss}
            ways = self._ways(losses, by_row, debug=False, **layers)
            chosen = first_right(ways, self._trainable, programs)
        if self._debug:
            chosen = chosen._replace(
                gradients=self._ways(losses, by_row, debug=True, **layers)[chosen.name]
            )
        for way in (ways[chosen.name], chosen.gradients):
            if isinstance(way, ByLayer):
                way.tracer.known = ways[chosen.name].tracer.known
                way.tracer.known.complete = True
                chosen = chosen._replace(larger=LargerBatches(programs[0]))
        if chosen.refused:
            warnings.warn(
                f"the model is run {chosen.name}, which takes more time and memory than layer by "
                "layer: training.explain() says why",
                stacklevel=4,
            )
        self._chosen.insert(0, (signature, chosen))
        self._functions.append((losses, collate))
        self._last = chosen
        return chosen

    def check_size(self, chosen: Chosen, size: int) -> None:
        """Check that losses are the same in a batch of so many records, before the first one.

        Raises
        ------
        InvalidParameterError
            If they are not. Nothing of real records was looked at.
        """
        if chosen.larger is not None and size > chosen.larger.size:
            with self._conditions():
                chosen.larger.check(size)

    @contextmanager
    def _conditions(self) -> Iterator[None]:
        """Let made-up records run so that mistakes show, and leave no trace."""
        with untouched(self._model), uncompiled(), _plainly(), torch.enable_grad(), _silent():
            enlarge(self._trainable)
            yield

    def _program(self, losses: Losses, draw: Draw, turn: int) -> Program | None:
        """Return the program of a draw, or None if it cannot be run, and need not."""
        options: Any = {"batches": draw.batches, "distinct": draw.distinct, "turn": turn}
        try:
            return Program(self._model, losses, self._trainable, self._views, **options)
        except (InvalidParameterError, ShapeError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            if not draw.needed:
                return None
            raise InvalidParameterError(
                f"losses cannot be computed for made-up records ({type(error).__name__}: {error}): "
                "call training.check(rows) with records of your own that are not private"
            ) from error

    def _ways(
        self, losses: Losses, by_row: set[int], *, debug: bool, **layers: Any
    ) -> dict[str, Any]:
        options: Any = {"views": self._views, "by_row": by_row, "debug": debug}
        arguments = self._model, losses, self._trainable
        return {
            "layer by layer": ByLayer(*arguments, **(options | layers)),
            "for all records at once by torch.func.vmap": ByRecord(
                *arguments, **options, at_once=True
            ),
            "for one record after another": ByRecord(*arguments, **options, at_once=False),
        }

    def explained(self) -> str:
        """Return a table of all layers: their names, their kinds, and how gradients are formed.

        Raises
        ------
        InvalidParameterError
            If nothing was checked yet.
        """
        if self._last is None:
            raise InvalidParameterError(
                "nothing was checked yet: call training.check(rows), or begin with training.lots"
            )
        if self._last.refused:
            reasons = "; not " + "; not ".join(
                f"{name}: {reason}" for name, reason in self._last.refused.items()
            )
            return _table([("", type(self._model).__name__, self._last.name + reasons)])
        gradients = self._last.gradients
        layers = gradients.tracer.layers if isinstance(gradients, ByLayer) else []
        return _table(
            [(layer.name, type(layer.module).__name__, rule_of(layer)) for layer in layers]
        )

    def _signature(self, losses: Losses, collate: Collate | None) -> Signature:
        """Return something that is equal as long as functions and modules are the same."""
        modules = (signature_of(module) for module in self._model.modules())
        return id(losses), id(collate), *modules


def _table(rows: list[tuple[str, str, str]]) -> str:
    rows = [("layer", "kind", "rule"), *rows]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = [f"{name:{widths[0]}}  {kind:{widths[1]}}  {rule}\n" for name, kind, rule in rows]
    return "".join(lines)


@contextmanager
def _silent() -> Iterator[None]:
    """Leave out warnings, which come again where they matter: with the records."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _shared_by_all(programs: Sequence[Program]) -> SharedCalls:
    """Return the calls of layers that return something without rows, whatever records there are."""
    first, *others = (program.shared for program in programs)
    return {
        name: calls
        for name, calls in first.items()
        if all(other.get(name) == calls for other in others)
    }


def _shows(program: Program) -> bool:
    """Return whether two records can be told apart: one that is not finite is never compared."""
    finite = [
        all(bool(tensor.isfinite().all()) for tensor in (one.loss, *one.gradients.values()))
        for one in program.alone
    ]
    return sum(finite) > 1


def _depends(program: Program) -> bool:
    return any(
        bool((tensor != 0).any()) for one in program.alone for tensor in one.gradients.values()
    )


@contextmanager
def _plainly() -> Iterator[None]:
    """Multiply in full float32, and let cuDNN try nothing out for a few small batches."""
    backends: list[Any] = [
        torch.backends.cuda.matmul,
        torch.backends.cudnn.conv,  # type: ignore[attr-defined]
        torch.backends.cudnn.rnn,
        torch.backends.mkldnn.matmul,  # type: ignore[attr-defined]
        torch.backends.mkldnn.conv,  # type: ignore[attr-defined]
        torch.backends.mkldnn.rnn,  # type: ignore[attr-defined]
    ]
    former = [backend.fp32_precision for backend in backends]
    benchmark = torch.backends.cudnn.benchmark
    try:
        torch.backends.cudnn.benchmark = False
        for backend in backends:
            backend.fp32_precision = "ieee"
        yield
    finally:
        torch.backends.cudnn.benchmark = benchmark
        for backend, precision in zip(backends, former, strict=True):
            backend.fp32_precision = precision


def made_up_batches(source: RecordSource, views: int) -> list[Draw]:
    """Return draws of made-up records of the shapes and types of real ones.

    Sequences of a data set that is collated end where padding would begin, if they can. Numbers
    below 0 and above 1 are not needed: pixels are none.
    """
    record, collated = template(source.first()), source.collated

    def batches(kind: Kind, *, cut: bool) -> Batches:
        def made(records: Sequence[int]) -> Any:
            several = min(views, _ROWS)
            rows = {
                (number, row): imitation(record, kind, number * several + row, number, cut=cut)
                for number in set(records)
                for row in range(several)
            }
            # Containers of their own, as a function of the user's may change them.
            # Of one kind all rows of a record are the same, as its views are where nothing augments
            # them. So the number of losses shows whether there is one per row or per record.
            kinds = 1 if kind == KINDS[0] else _ROWS
            items = (rows[number, view % kinds] for number in records for view in range(views))
            return collated([tree_map(_same, item) for item in items])

        return made

    found: list[Draw] = []
    for kind in KINDS:
        cut = kind.startswith("ends") and _collates(batches(kind, cut=True))
        needed = kind != "of both signs"
        found.append(Draw(batches(kind, cut=cut), needed, _DISTINCT))
    return found


def _same(leaf: Any) -> Any:
    return leaf


def _collates(batches: Batches) -> bool:
    try:
        batches(range(RECORDS))
    except Exception:  # noqa: BLE001 - whatever a function of the user's raises
        return False
    return True


def own_batches(source: RecordSource, views: int, unit: str) -> list[Draw]:
    """Return records of the user's own, as they are and in groups that overlap.

    Raises
    ------
    ShapeError
        If there are too few.
    """
    if len(source) < RECORDS:
        raise ShapeError(f"rows makes {len(source)} {unit}s: pass at least {RECORDS}")

    def batches(first: int) -> Callable[[Sequence[int]], Any]:
        def taken(records: Sequence[int]) -> Any:
            return next(iter(source.batches([np.array(records) + first], views)))

        return taken

    starts = range(0, len(source) - RECORDS + 1, RECORDS)
    # Three turns of random draws at least, if with the same records.
    turns = range(max(3, min(4, len(starts))))
    return [
        Draw(batches(starts[turn % len(starts)]), needed=True, distinct=RECORDS) for turn in turns
    ]
