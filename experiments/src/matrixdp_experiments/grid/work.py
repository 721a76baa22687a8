"""The settings of a run of the grid: its results' folder, its parallel runs, its progress."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from matrixdp.parameters import positive_integer
from matrixdp_experiments.grid.outcomes import AnyRun
from matrixdp_experiments.grid.runner import Tell, perform

__all__ = ["Progress", "Work"]

R = TypeVar("R", bound=AnyRun)
Progress = Callable[[Sequence[AnyRun]], AbstractContextManager[Tell]]
"""Shows the progress of some runs: it yields a function to call as each of them ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The folder of an experiment's results, and how its runs are made.

    Raises
    ------
    InvalidParameterError
        If no run is to be made at a time.
    """

    folder: Path
    parallel: int
    progress: Progress

    def __post_init__(self) -> None:
        """Check the number of runs at a time."""
        positive_integer(self.parallel, "parallel")

    def perform(self, runs: Sequence[R], make: Callable[[R], float]) -> int:
        """Make runs, whether they are finished or not; return how many failed."""
        with self.progress(runs) as tell:
            return perform(runs, make, self.folder, parallel=self.parallel, tell=tell)
