"""The check that losses stay what they are in batches as large as those to come."""

import torch

from matrixdp.errors import InvalidParameterError
from matrixdp.training.checks.isolation import ALONE, ROUNDING
from matrixdp.training.checks.program import RECORDS, Program

__all__ = ["LargerBatches"]


class LargerBatches:
    """Made-up batches of any size, beside small ones.

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
        self._distinct = program.distinct
        self._rounding = ROUNDING[program.coarse]
        self.size = RECORDS

    def check(self, size: int) -> None:
        """Raise if a loss is another one in a batch of so many records than in a small one.

        Raises
        ------
        InvalidParameterError
            Which names the size.
        """
        records = [number % self._distinct for number in range(size)]
        losses = self._losses(records)
        finite = losses[losses.isfinite()]
        scale = float(finite.abs().max()) if len(finite) else 1.0
        different = 0
        for start in (0, (size - RECORDS) // 2, size - RECORDS):
            found, expected = self._losses(records[start:][:RECORDS]), losses[start:][:RECORDS]
            same = (found - expected).abs() <= self._rounding * max(scale, 1e-6)
            same |= ~found.isfinite() & ~expected.isfinite()
            different += int(torch.count_nonzero(~same))
        # Once may be a layer that rounds, on the edge between two numbers.
        if different > 1:
            raise InvalidParameterError(
                f"the loss of a record is another one in a batch of {size} records than in one of "
                f"{RECORDS}. Look for decisions by the number of rows, and for experts that drop "
                "what is beyond their capacity; or take steps with a smaller batch_size. The step "
                f"can be taken again. {ALONE}"
            )
        self.size = size
