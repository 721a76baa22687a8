"""The records of a rank, by their numbers, and the lots that it draws of them."""

import numpy as np
from numpy.typing import NDArray

from matrixdp.training.guarantee import Lots
from matrixdp.training.lots.sampling import Coins
from matrixdp.training.ranks.group import Ranks

__all__ = ["OwnCoins", "own_records"]


def own_records(ranks: Ranks, records: int) -> range:
    """Return the numbers of the records that this rank reads; those of all ranks are all numbers.

    They depend on nothing else. Were lots divided by the position of a record within them, one
    record more would move others to other ranks, whose processors may round in another way.
    """
    edges = (ranks.number * records // ranks.size, (ranks.number + 1) * records // ranks.size)
    return range(*edges)


class OwnCoins:
    """The coins of a rank's own records.

    Those of the operating system are independent, so each rank draws its own: no rank learns who is
    in the lot of another, and there is no common secret from which a rank that is started again
    could draw a lot twice. Coins of a seed are drawn for all records, as one process draws them.

    Parameters
    ----------
    coins : Coins
        Where words come from.
    own : range
        The numbers of the rank's records.
    """

    def __init__(self, coins: Coins, own: range) -> None:
        self._coins = coins
        self._own = own

    @property
    def kind(self) -> Lots:
        """What the guarantee says about them."""
        return self._coins.kind

    def taken(self, number: int, most: int, step: int) -> NDArray[np.int64]:
        """Return which of the rank's records have words of at most a threshold, ascending."""
        if self.kind == "secure":
            return self._coins.taken(len(self._own), most, step) + self._own.start
        found = self._coins.taken(number, most, step)
        return found[(found >= self._own.start) & (found < self._own.stop)]

    def order(self, records: NDArray[np.int64], step: int) -> NDArray[np.uint64]:
        """Return words by which some records are put in a random order in a step."""
        return self._coins.order(records, step)
