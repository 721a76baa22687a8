"""Cells of the grid, and the runs behind them: equal runs are made once.

A cell is a row of the results: data set, mechanism, epsilon, seed. What is trained depends only on
the noise multiplier and the hyper-parameters, so that cells with the same numbers share a run.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from matrixdp.errors import InvalidParameterError
from matrixdp_experiments.gradients.account_book import AccountBook, promise_of
from matrixdp_experiments.gradients.accounts import MECHANISMS
from matrixdp_experiments.gradients.settings import (
    EPSILONS,
    MOMENTUM,
    WEIGHT_DECAY,
    Setting,
    setting_of,
)
from matrixdp_experiments.grid.runs import Run, Split
from matrixdp_experiments.options import check_known

__all__ = ["Cell", "Hyperparameters", "grid", "plain_run", "private_run"]


@dataclass(frozen=True, slots=True)
class Cell:
    """A row of the results; without noise there is no epsilon."""

    dataset: str
    mechanism: str
    epsilon: float | None
    seed: int


class Hyperparameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is chosen for a data set and a family of mechanisms.

    The learning rate is that of the reference cell; see `private_run`. Without noise nothing is
    clipped.
    """

    learning_rate: float
    clip_norm: float | None


def grid(
    datasets: Iterable[str],
    mechanisms: Sequence[str] = tuple(MECHANISMS),
    epsilons: Sequence[float] = EPSILONS,
    seeds: Sequence[int] | None = None,
) -> list[Cell]:
    """Return the cells of a grid: data sets one after another, and one seed after another.

    Seeds are the outer loop, so that a grid that is cut short has every mechanism with fewer seeds.
    """
    for name in mechanisms:
        check_known(name, MECHANISMS, "mechanism")
    cells = []
    for setting in map(setting_of, datasets):
        for seed in setting.seeds if seeds is None else seeds:
            for mechanism in mechanisms:
                # Without noise there is one cell for all epsilons.
                if mechanism == "none":
                    cells.append(Cell(setting.name, mechanism, None, seed))
                elif mechanism != "matrix" or setting.with_matrix_mechanism:
                    cells += [Cell(setting.name, mechanism, one, seed) for one in epsilons]
    return cells


def plain_run(setting: Setting, split: Split, seed: int, learning_rate: float) -> Run:
    """Return ordinary training, with the lot and the epochs of the private one."""
    return Run(
        dataset=setting.name,
        split=split,
        seed=seed,
        records=setting.records_of(split),
        lot_size=setting.lot_size,
        steps=setting.steps_of(split),
        learning_rate=learning_rate,
        momentum=MOMENTUM,
        weight_decay=WEIGHT_DECAY,
        augmented=setting.augmented,
        half=setting.half or msgspec.UNSET,
    )


def private_run(
    setting: Setting,
    split: Split,
    cell: Cell,
    chosen: Hyperparameters,
    book: AccountBook,
) -> Run | None:
    """Return private training with a mechanism's noise; None where its rule does not apply.

    The learning rate is ``learning_rate * min(1, reference / multiplier)``, with the largest
    multiplier of any layer: noise moves no weight further in a step than it does at the reference
    cell. The rule is public, so it costs nothing.
    """
    if cell.epsilon is None or chosen.clip_norm is None:
        raise InvalidParameterError(f"mechanism={cell.mechanism!r} adds no noise: use plain_run")
    promise = promise_of(setting, split, cell.mechanism, cell.epsilon)
    account = book.account(cell.mechanism, promise)
    # A true epsilon may be missing as well, but without a multiplier there is nothing to train.
    if account.noise_multiplier is None:
        return None
    # Of the same split: other numbers of records need other noise.
    reference = book.reference_multiplier(setting, split)
    largest = max([account.noise_multiplier, *account.layers.values()])
    return Run(
        dataset=setting.name,
        split=split,
        seed=cell.seed,
        records=setting.records_of(split),
        lot_size=setting.lot_size,
        steps=promise.steps,
        learning_rate=chosen.learning_rate * min(1.0, reference / largest),
        momentum=MOMENTUM,
        clip_norm=chosen.clip_norm,
        noise_multiplier=account.noise_multiplier,
        layers=account.layers,
        half=setting.half or msgspec.UNSET,
        # MVG alone has noise of its own for each layer, and its theorem needs a bound of the sum.
        # Only lots above the expected size can exceed this one.
        sum_norm=setting.lot_size * chosen.clip_norm if account.layers else msgspec.UNSET,
    )
