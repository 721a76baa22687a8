"""The results of released features: one table with a row for each cell.

Claimed and true epsilon are side by side.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matrixdp.rounding import shown_exactly, shown_up
from matrixdp_experiments.grid.outcomes import Outcome, read_outcomes
from matrixdp_experiments.grid.runs import DELTA, Run, run_key
from matrixdp_experiments.released_features.accounts import MECHANISMS
from matrixdp_experiments.released_features.cells import (
    CLIPS,
    METHODS,
    NETWORKS,
    PROTOCOLS,
    FeatureCell,
    FeatureRun,
    Selection,
    account_of,
    feature_run,
    network_run,
    selected_cells,
)
from matrixdp_experiments.released_features.settings import FEATURE_SETTINGS, feature_setting_of
from matrixdp_experiments.report.tables import outcome_columns, rows_of_cells

__all__ = ["FeatureRow", "gathered_feature_rows"]

Outcomes = dict[str, Outcome[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureRow:
    """A cell as text, ready to be written; what does not exist is empty.

    ``epsilon`` is what is claimed and ``true_epsilon`` what is spent, both at ``delta``. ``covers``
    says what of a record the guarantee is about.
    """

    dataset: str
    network: str
    protocol: str
    clip: str
    method: str
    mechanism: str
    epsilon: str = ""
    true_epsilon: str = ""
    delta: str = ""
    covers: str = ""
    seed: str = ""
    noise_multiplier: str = ""
    largest_multiplier: str = ""
    accuracy: str = ""
    run: str = ""
    seconds: str = ""
    commit: str = ""
    device: str = ""
    torch: str = ""
    note: str = ""


def gathered_feature_rows(folder: Path, kept: Sequence[FeatureRow] = ()) -> list[FeatureRow]:
    """Return a row for each finished cell, and one for each cell that no seed was run for.

    Parameters
    ----------
    folder : Path
        Of the experiment's results.
    kept : sequence of FeatureRow
        An earlier table: its rows stay for data sets of which there are no files of runs.
    """
    heads: Outcomes = dict(read_outcomes(folder, FeatureRun))
    outcomes = heads | dict(read_outcomes(folder / "networks", Run))
    rows: list[FeatureRow] = []
    for dataset in FEATURE_SETTINGS:  # in this order, whichever was run first
        seeds = sorted({one.run.seed for one in heads.values() if one.run.dataset == dataset})
        if seeds:
            rows += _rows_of(dataset, seeds, outcomes)
        else:
            rows += [row for row in kept if row.dataset == dataset]
    return rows


def _rows_of(dataset: str, seeds: Sequence[int], outcomes: Outcomes) -> list[FeatureRow]:
    cells = selected_cells(Selection(datasets=[dataset], seeds=seeds))
    cells.sort(key=_order)
    return rows_of_cells(
        {cell: outcomes.get(_key(cell)) for cell in cells},
        apart_from_seed=_order_without_seed,
        finished=_finished_row,
        missing=_missing_row,
    )


def _key(cell: FeatureCell) -> str:
    if cell.mechanism == "public":
        return run_key(network_run(feature_setting_of(cell.dataset), cell.seed))
    run = feature_run(cell)
    return "" if run is None else run_key(run)


def _order(cell: FeatureCell) -> tuple[Any, ...]:
    """Return the key that sorts a cell in the table: runs are made in another order."""
    return (*_order_without_seed(cell), cell.seed)


def _order_without_seed(cell: FeatureCell) -> tuple[Any, ...]:
    return (
        PROTOCOLS.index(cell.protocol),
        NETWORKS.index(cell.network),
        list(METHODS).index(cell.method),
        CLIPS.index(cell.clip),
        list(MECHANISMS).index(cell.mechanism),
        cell.epsilon or 0.0,
    )


def _finished_row(cell: FeatureCell, outcome: Outcome[Any]) -> FeatureRow:
    return FeatureRow(
        **_known_columns(cell),
        seed=str(cell.seed),
        **outcome_columns(outcome),
    )


def _missing_row(cell: FeatureCell) -> FeatureRow:
    columns = _known_columns(cell)
    if cell.epsilon is not None and (refusal := account_of(cell).refusal) is not None:
        return FeatureRow(**columns, note=f"does not apply: {refusal}")
    return FeatureRow(**columns, note="not run")


def _known_columns(cell: FeatureCell) -> dict[str, str]:
    """Return what is known of a cell before it is run."""
    columns = {
        "dataset": cell.dataset,
        "network": cell.network,
        "protocol": cell.protocol,
        "clip": cell.clip,
        "method": cell.method,
        "mechanism": cell.mechanism,
    }
    if cell.epsilon is None:
        return columns
    account = account_of(cell)
    scales = (account.noise_multiplier, account.last_block_multiplier)
    known = [one for one in scales if one is not None]
    return columns | {
        "epsilon": shown_exactly(cell.epsilon),
        # Rounded up: a reader who takes the number from the table claims nothing too small.
        "true_epsilon": "" if account.true_epsilon is None else shown_up(account.true_epsilon),
        "delta": shown_exactly(DELTA),
        "covers": "features and label" if cell.method == "moments" else "features; label in clear",
        "noise_multiplier": shown_up(min(known)) if known else "",
        "largest_multiplier": shown_up(max(known)) if known else "",
    }
