"""Type II of the paper, private features: train the networks, then release and train the heads."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import matrixdp.training  # noqa: F401 (first: it says what to install where PyTorch is missing)
from matrixdp.errors import FileFormatError
from matrixdp_experiments.grid.folders import check_data, check_results
from matrixdp_experiments.grid.outcomes import outcome_path, read_outcomes, unfinished
from matrixdp_experiments.grid.runner import Work
from matrixdp_experiments.grid.runs import Run, run_key
from matrixdp_experiments.grid.tally import Tally, tally_of
from matrixdp_experiments.released_features.cells import (
    FeatureCell,
    FeatureRun,
    account_of,
    feature_run,
    network_run,
)
from matrixdp_experiments.released_features.heads import train_head
from matrixdp_experiments.released_features.networks import train_network, weights_path
from matrixdp_experiments.released_features.settings import feature_setting_of

__all__ = ["FOLDER", "run_grid"]

FOLDER = "type_two"
"""Within the folder of results."""


def run_grid(cells: Sequence[FeatureCell], work: Work) -> Tally:
    """Make the runs that cells need and that are not finished; return what was made.

    The networks come first, because heads are trained on what they compute.

    Raises
    ------
    FileFormatError
        If a network has to be trained anew, and there are heads of the earlier one.
    """
    check_results(work.folder)
    heads = {cell: feature_run(cell) for cell in cells if cell.mechanism != "public"}
    left = unfinished([run for run in heads.values() if run is not None], work.folder)
    missing = _missing_networks(cells, left, work.folder)
    _check_heads(missing, work.folder)
    check_data([*(run.dataset for run in missing), *(run.dataset for run in left)])
    networks = replace(work, folder=work.folder / "networks")
    failed = networks.perform(missing, partial(train_network, work.folder))
    failed += work.perform(left, partial(train_head, work.folder))
    public = [_network_of(cell) for cell in cells if cell.mechanism == "public"]
    refusals = [_refusal(cell) for cell, run in heads.items() if run is None]
    return tally_of([*heads.values(), *public], [*missing, *left], failed, refusals)


def _network_of(cell: FeatureCell) -> Run:
    return network_run(feature_setting_of(cell.dataset), cell.seed)


def _refusal(cell: FeatureCell) -> str:
    reason = account_of(cell).refusal
    return f"{cell.dataset}, {cell.mechanism}, epsilon {cell.epsilon:g} does not apply: {reason}"


def _missing_networks(
    cells: Sequence[FeatureCell], left: Sequence[FeatureRun], folder: Path
) -> list[Run]:
    """Return the networks that have no outcome yet, or no weights for a head that needs them.

    Weights are not kept with the results, so that they may be missing where an outcome is there.
    """
    wanted = {(cell.dataset, cell.seed) for cell in cells if cell.network == "public"}
    needed = {(run.dataset, run.seed) for run in left if run.network == "public"}
    missing = []
    for dataset, seed in sorted(wanted):
        run = network_run(feature_setting_of(dataset), seed)
        has_outcome = outcome_path(folder / "networks", run).exists()
        has_weights = weights_path(folder, run).exists()
        if not has_outcome or ((dataset, seed) in needed and not has_weights):
            missing.append(run)
    return missing


def _check_heads(missing: Sequence[Run], folder: Path) -> None:
    """Raise if a network is missing that there are heads of.

    On another device, and on a GPU even on the same one, training gives other weights. Heads of
    one seed would then have seen different features, and nothing in the table would show it.
    """
    trained = Counter(one.run.network_run for one in read_outcomes(folder, FeatureRun).values())
    for run in missing:
        key = run_key(run)
        if trained[key]:
            raise FileFormatError(
                f"{weights_path(folder, run)} or the outcome of this network is missing, and "
                f"{trained[key]} heads were trained on its features: put the file back, or delete "
                f"the files of {folder / 'runs'} that name {key} and make these heads anew"
            )
