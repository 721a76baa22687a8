"""Type II of the paper, private features: train the networks, then release and train the heads."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import matrixdp.training  # noqa: F401 (first: it says what to install where PyTorch is missing)
from matrixdp.experiments.outcomes import outcome_path, unfinished
from matrixdp.experiments.private_features.heads import train_head
from matrixdp.experiments.private_features.networks import train_network, weights_path
from matrixdp.experiments.private_features.release_cells import (
    FeatureCell,
    FeatureRun,
    feature_run,
    network_run,
)
from matrixdp.experiments.private_features.settings import feature_setting_of
from matrixdp.experiments.work import Work

__all__ = ["FOLDER", "run_grid"]

FOLDER = "type_two"
"""Within the folder of results."""


def run_grid(cells: Sequence[FeatureCell], work: Work) -> int:
    """Make the runs that cells need and that are not finished; return how many failed.

    The networks come first, because heads are trained on what they compute.
    """
    runs = [feature_run(cell) for cell in cells if cell.mechanism != "public"]
    # Cells whose mechanism does not apply have nothing to run; the report says why.
    left = unfinished([run for run in runs if run is not None], work.folder)
    failed = _train_networks(cells, left, work)
    return failed + work.perform(left, partial(train_head, work.folder))


def _train_networks(cells: Sequence[FeatureCell], left: Sequence[FeatureRun], work: Work) -> int:
    """Train the networks that have no outcome yet, or no weights for a head that needs them.

    Weights are not kept with the results, so that they may be missing where an outcome is there.
    """
    networks = replace(work, folder=work.folder / "networks")
    wanted = {(cell.dataset, cell.seed) for cell in cells if cell.network == "public"}
    needed = {(run.dataset, run.seed) for run in left if run.network == "public"}
    missing = []
    for dataset, seed in sorted(wanted):
        run = network_run(feature_setting_of(dataset), seed)
        has_outcome = outcome_path(networks.folder, run).exists()
        has_weights = weights_path(work.folder, run).exists()
        if not has_outcome or ((dataset, seed) in needed and not has_weights):
            missing.append(run)
    return networks.perform_all(missing, partial(train_network, work.folder))
