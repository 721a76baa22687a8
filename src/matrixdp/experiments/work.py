"""Where results go, how many runs are made at a time, and how progress is shown."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from matrixdp.experiments.outcomes import AnyRun, unfinished
from matrixdp.experiments.runner import Tell, perform

__all__ = ["Progress", "Work"]

R = TypeVar("R", bound=AnyRun)
Progress = Callable[[Sequence[AnyRun]], AbstractContextManager[Tell]]
"""Shows the progress of some runs: it yields a function to call as each of them ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The folder of an experiment's results, and how its runs are made."""

    folder: Path
    parallel: int
    progress: Progress

    def perform(self, runs: Sequence[R], make: Callable[[R], float]) -> int:
        """Make the runs that are not finished yet; return how many failed."""
        return self.perform_all(unfinished(runs, self.folder), make)

    def perform_all(self, runs: Sequence[R], make: Callable[[R], float]) -> int:
        """Make runs, whether they are finished or not; return how many failed."""
        with self.progress(runs) as tell:
            return perform(runs, make, self.folder, parallel=self.parallel, tell=tell)
