"""The spending of a training on several ranks: the first one pays, and all count."""

from collections.abc import Callable

import msgspec

from matrixdp.privacy.payment import StepCounter
from matrixdp.training.ranks.group import Alone, Point, Ranks

__all__ = ["SharedCounter", "shared_counter"]


class SharedCounter:
    """Counts the steps of a run on every rank, after the first rank has counted them durably.

    Parameters
    ----------
    ranks : Ranks
        All ranks.
    run : str
        The name of the run.
    spent : int
        How many steps were spent.
    pay : callable
        Counts a step durably on the first rank, and does nothing on others.
    """

    def __init__(self, ranks: Ranks, run: str, spent: int, pay: Callable[[], None]) -> None:
        self.run = run
        self.spent = spent
        self._ranks = ranks
        self._pay = pay

    def spend(self) -> None:
        """Count one more step; nobody goes on before it is on the first rank's disk."""
        self._ranks.together(Point("spend", self.spent), self._pay)
        self.spent += 1


def shared_counter(ranks: Ranks, made: Callable[[], StepCounter | None]) -> StepCounter | None:
    """Return the counter of the first rank, as all ranks see it; None if it counts nowhere.

    Parameters
    ----------
    ranks : Ranks
        All ranks.
    made : callable
        Makes the counter; called on the first rank alone.
    """
    if isinstance(ranks, Alone):
        return made()
    own = ranks.together(Point("make", 0), made if ranks.number == 0 else _nothing)
    known = None if own is None else (own.run, own.spent)
    first = ranks.texts(Point("make", 0), msgspec.json.encode(known).decode())[0]
    found = msgspec.json.decode(first, type=tuple[str, int] | None)
    if found is None:
        return None
    run, spent = found
    return SharedCounter(ranks, run, spent, _nothing if own is None else own.spend)


def _nothing() -> None:
    """Leave it to the first rank."""
