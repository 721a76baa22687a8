"""A tally of the cells that were asked for, in numbers and in a sentence."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from matrixdp_experiments.grid.outcomes import AnyRun
from matrixdp_experiments.grid.runs import run_key

__all__ = ["Tally", "tally_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How many runs were made, and how many cells needed none.

    Attributes
    ----------
    made, failed : int
        Runs. Cells with the same numbers share one.
    finished : int
        Cells whose run was finished before.
    inapplicable : int
        Cells whose mechanism has no rule for them.
    refusals : tuple of str
        Why, a sentence for all seeds of a cell.
    """

    made: int
    failed: int
    finished: int
    inapplicable: int = 0
    refusals: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return one line for the end of a command."""
        return (
            f"{self.made} runs made, {self.failed} failed; {self.finished} cells were finished "
            f"already, {self.inapplicable} do not apply"
        )


def tally_of(
    wanted: Iterable[AnyRun | None],
    left: Sequence[AnyRun],
    failed: int,
    refusals: Iterable[str] = (),
) -> Tally:
    """Return the tally of a grid.

    Parameters
    ----------
    wanted : iterable of run or None
        The run of each cell; None where its mechanism does not apply.
    left : sequence of run
        Those that were not finished, each once.
    failed : int
        How many of these failed.
    refusals : iterable of str
        Why mechanisms do not apply, in any number of copies.
    """
    keys = {run_key(run) for run in left}
    found = [None if run is None else run_key(run) for run in wanted]
    inapplicable = found.count(None)
    return Tally(
        made=len(left) - failed,
        failed=failed,
        finished=len(found) - inapplicable - sum(key in keys for key in found),
        inapplicable=inapplicable,
        refusals=tuple(dict.fromkeys(refusals)),
    )
