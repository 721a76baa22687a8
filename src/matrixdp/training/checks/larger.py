"""The check that losses stay what they are in batches as large as those to come."""

from typing import NoReturn

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.training.checks.isolation import ALONE, ROUNDING
from matrixdp.training.checks.program import RECORDS, Program

__all__ = ["LargerBatches"]

# Into so many small batches a large one is divided at most.
_PIECES = 64


class LargerBatches:
    """Made-up batches of any size, beside smaller ones.

    A model may mix records only if there are many, such as experts that drop what is beyond their
    capacity. So before the first batch of a size the same losses are computed in small batches.

    Parameters
    ----------
    program : Program
        Losses on a few made-up records, by which no records were found to be mixed.

    Attributes
    ----------
    size : int
        How many records the largest batch had that was checked.
    """

    def __init__(self, program: Program) -> None:
        self._losses = program.losses_alike
        self._number = program.number_alike
        self._distinct = program.distinct
        self._rounding = ROUNDING[program.coarse]
        self.size = RECORDS

    def check(self, size: int) -> None:
        """Raise if losses are others in a batch of so many records than in small ones.

        Raises
        ------
        InvalidParameterError
            Which names the size.
        """
        records = list(range(self._distinct))
        try:
            self._compare(records, size)
        except ShapeError:  # losses leave out some, and then batches run one by one
            each = self._number(range(RECORDS)) // RECORDS
            records = [one for one in records if self._number([one]) == each]
            if records:
                self._compare(records, size)
        # Copies of one record all go to the same expert: nothing else fills it as much.
        if records:
            losses = self._losses(records[:1] * size)
            allowed = self._rounding * max(float(losses[0].abs()), 1e-6)
            if int(((losses - losses[0]).abs() > allowed).sum()) > 1:
                self._refuse(size, RECORDS)
        self.size = size

    def _compare(self, distinct: list[int], size: int) -> None:
        """Compare the losses of a batch that repeats some records with those of its pieces."""
        records = [distinct[number % len(distinct)] for number in range(size)]
        losses = self._losses(records)
        finite = losses[losses.isfinite()]
        scale = float(finite.abs().max()) if len(finite) else 1.0
        piece = max(RECORDS, -(-size // _PIECES))
        starts = [min(start, size - piece) for start in range(0, size, piece)]
        different = 0
        for start in starts:
            found = self._losses(records[start:][:piece])
            expected = losses[start:][:piece]
            same = (found - expected).abs() <= self._rounding * max(scale, 1e-6)
            same |= ~found.isfinite() & ~expected.isfinite()
            different += not bool(same.all())
        # A few may be of a layer that rounds, on the edge between two numbers.
        if different > 1 + len(starts) // 16:
            self._refuse(size, piece)

    def _refuse(self, size: int, piece: int) -> NoReturn:
        raise InvalidParameterError(
            f"the loss of a record is another one in a batch of {size} records than in one of "
            f"{piece}. Look for decisions by the number of rows, and for experts that drop "
            "what is beyond their capacity; or take steps with a smaller batch_size. The step "
            f"can be taken again. {ALONE}"
        )
