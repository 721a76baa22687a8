"""The options of the command ``run``, and the runs that they ask for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import matrixdp.training  # noqa: F401 (first: it says what to install where PyTorch is missing)
from matrixdp.errors import InvalidParameterError
from matrixdp_experiments.gradients import experiment as type_one
from matrixdp_experiments.gradients.accounts import MECHANISMS
from matrixdp_experiments.gradients.cells import Cell, grid
from matrixdp_experiments.gradients.settings import EPSILONS, PAPER_DATASETS
from matrixdp_experiments.grid.runner import Progress, Work
from matrixdp_experiments.grid.tally import Tally
from matrixdp_experiments.options import check_experiment, integers, listed, numbers, seeds
from matrixdp_experiments.released_features import experiment as type_two
from matrixdp_experiments.released_features.cells import (
    FeatureCell,
    Selection,
    false_claims,
    selected_cells,
    unreported_claims,
)
from matrixdp_experiments.released_features.settings import PAPER_DATASETS as FEATURE_DATASETS

__all__ = ["Asked", "run_experiment"]

Given = Sequence[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options of ``run``, as they were typed; None for those that were left out."""

    dataset: Given = None
    mechanism: Given = None
    epsilon: Given = None
    seed: Given = None
    network: Given = None
    protocol: Given = None
    clip: Given = None
    method: Given = None


_OF_TYPE_TWO = ("network", "protocol", "clip", "method")


def run_experiment(
    experiment: str,
    asked: Asked,
    results: Path,
    *,
    parallel: int,
    progress: Progress,
    warn: Callable[[str], None],
) -> Tally:
    """Make the runs that are asked for and not finished; return what was made.

    Raises
    ------
    InvalidParameterError
        If there is no such experiment, an option is wrong, or nothing is planned for the options.
    """
    check_experiment(experiment)

    def work(folder: str) -> Work:
        return Work(folder=results / folder, parallel=parallel, progress=progress)

    if experiment == "type-one":
        tally = type_one.run_grid(_cells_of_type_one(asked), work(type_one.FOLDER))
    else:
        features = _cells_of_type_two(asked)
        # Before anything is run: nobody should find a false claim only in a table, or none at all.
        for sentence in (*false_claims(features), *unreported_claims(features)):
            warn(sentence)
        tally = type_two.run_grid(features, work(type_two.FOLDER))
    for sentence in tally.refusals:
        warn(sentence)
    return tally


def _cells_of_type_one(asked: Asked) -> list[Cell]:
    for name in _OF_TYPE_TWO:
        if getattr(asked, name) is not None:
            raise InvalidParameterError(f"type-one has no option --{name}: leave it out")
    datasets = listed(asked.dataset, "dataset")
    cells = grid(
        datasets or list(PAPER_DATASETS),
        listed(asked.mechanism, "mechanism") or list(MECHANISMS),
        numbers(asked.epsilon, "epsilon") or EPSILONS,
        seeds(asked.seed),
    )
    # The Matrix Mechanism is planned for some data sets only; no others may be named for it.
    planned = {cell.dataset for cell in cells}
    for name in datasets or ():
        if name not in planned:
            raise InvalidParameterError(
                f"dataset={name!r} has no cells with these mechanisms: leave it out, or choose "
                "others from the grid in docs/experiments.md"
            )
    return cells


def _cells_of_type_two(asked: Asked) -> list[FeatureCell]:
    return selected_cells(
        Selection(
            datasets=listed(asked.dataset, "dataset") or list(FEATURE_DATASETS),
            networks=listed(asked.network, "network"),
            protocols=listed(asked.protocol, "protocol"),
            clips=listed(asked.clip, "clip"),
            methods=listed(asked.method, "method"),
            mechanisms=listed(asked.mechanism, "mechanism"),
            epsilons=numbers(asked.epsilon, "epsilon"),
            seeds=integers(asked.seed, "seed"),
        )
    )
