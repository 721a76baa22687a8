"""Warnings of false claims that are about to be run, and of claims that no report shows."""

from collections.abc import Sequence

from matrixdp.rounding import shown_exactly, shown_up
from matrixdp_experiments.grid.runs import DELTA
from matrixdp_experiments.released_features.cells import FeatureCell, account_of
from matrixdp_experiments.released_features.settings import EPSILONS

__all__ = ["false_claims", "unreported_claims"]


def false_claims(cells: Sequence[FeatureCell]) -> list[str]:
    """Return a sentence for each claim of the protocol ``paper``, with what it really spends."""
    found: dict[tuple[str, str, float], str] = {}
    for cell in cells:
        if cell.protocol != "paper" or cell.epsilon is None:
            continue
        true = account_of(cell).true_epsilon
        # A claim may also hold, where a mechanism adds far more noise than it needs.
        if true is not None and true > cell.epsilon:
            found[cell.dataset, cell.mechanism, cell.epsilon] = (
                f"protocol paper, {cell.dataset}, {cell.mechanism}: the claimed epsilon of "
                f"{shown_exactly(cell.epsilon)} is false, its noise spends {shown_up(true, 3)} at "
                f"delta {shown_exactly(DELTA)}"
            )
    return list(found.values())


def unreported_claims(cells: Sequence[FeatureCell]) -> list[str]:
    """Return a sentence for each epsilon off the grid of its protocol.

    A run knows its noise alone, so that a report finds the runs of the epsilons it knows.
    """
    others = dict.fromkeys(
        (cell.protocol, cell.epsilon)
        for cell in cells
        if cell.epsilon is not None and cell.epsilon not in EPSILONS[cell.protocol]
    )
    return [
        f"protocol {protocol} has no epsilon of {shown_exactly(epsilon)} on its grid: its runs are "
        "made and kept, but no report shows them"
        for protocol, epsilon in others
    ]
