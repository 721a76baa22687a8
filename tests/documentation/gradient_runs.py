"""The finished runs of Type I, by the keys of these runs."""

from pathlib import Path

from matrixdp.experiments.cells import Run
from matrixdp.experiments.outcomes import read_outcomes

__all__ = ["FOLDER", "OUTCOMES"]

FOLDER = Path(__file__).resolve().parents[2] / "results" / "type_one"
OUTCOMES = read_outcomes(FOLDER, Run)
