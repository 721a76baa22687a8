"""The finished runs of Type I, by the keys of these runs."""

from pathlib import Path

from matrixdp_experiments.grid.outcomes import read_outcomes
from matrixdp_experiments.grid.runs import Run

__all__ = ["FOLDER", "OUTCOMES"]

FOLDER = Path(__file__).resolve().parents[3] / "results" / "type_one"
OUTCOMES = read_outcomes(FOLDER, Run)
