"""By how much the program's own sums move when a record is added or taken out: measured.

The bound is proven for integers; this looks for a mistake. Nothing here may be published about
private data: it is for public data sets only. Records are crafted that try to move a sum as far as
they can.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from matrixdp_experiments.procedural.blocks import Block
from matrixdp_experiments.procedural.head import (
    SUM_BOUND,
    Classifier,
    clipped_residuals,
    gradient_sum,
)
from matrixdp_experiments.procedural.views import VIEW_SIDE
from matrixdp_experiments.procedural.whitening import BLOCK_BOUND

__all__ = ["NeighbourWatch", "crafted_images", "crafted_rows"]


@dataclass(eq=False)
class NeighbourWatch:
    """Recomputes sums of a descent from scratch, for neighbouring data.

    Attributes
    ----------
    rows, labels : Tensor
        Of all records.
    clip : float
        Of residuals of rows of norm 1.
    extra_rows, extra_labels : Tensor
        Records that are added, one by one.
    removed : list of int
        Records that are taken out, one by one.
    steps : frozenset of int
        In which steps.
    largest : float
        The largest move over the bound; exact integers, so that only this quotient is rounded.
    compared : int
        How many sums were recomputed.
    """

    rows: Tensor
    labels: Tensor
    clip: float
    extra_rows: Tensor
    extra_labels: Tensor
    removed: list[int]
    steps: frozenset[int]
    largest: float = 0.0
    compared: int = 0

    def __call__(self, step: int, classifier: Classifier, total: Tensor) -> None:
        """Compare a step's sum with those of all neighbours."""
        if step not in self.steps:
            return
        for number in self.removed:
            rows = torch.cat([self.rows[:number], self.rows[number + 1 :]])
            labels = torch.cat([self.labels[:number], self.labels[number + 1 :]])
            self._compare(total, rows, labels, classifier)
        for row, label in zip(self.extra_rows, self.extra_labels, strict=True):
            # In front, so that every record has another index.
            rows = torch.cat([row[None], self.rows])
            self._compare(total, rows, torch.cat([label[None], self.labels]), classifier)

    def _compare(self, total: Tensor, rows: Tensor, labels: Tensor, classifier: Classifier) -> None:
        residuals = clipped_residuals(classifier.scores(rows), labels, self.clip)
        move = gradient_sum(rows, residuals) - total
        self.largest = max(self.largest, float(move.square().sum().sqrt()) / SUM_BOUND)
        self.compared += 1


def crafted_images() -> Tensor:
    """Return images of extremes: black, white, one colour, stripes, chequers, one pixel, noise."""
    line = torch.arange(VIEW_SIDE)
    stripes = (line % 2)[None, :].expand(VIEW_SIDE, -1)
    chequers = (line[:, None] + line) % 2
    one = torch.zeros(VIEW_SIDE, VIEW_SIDE, dtype=torch.int64)
    one[0, 0] = 1
    half = (line < VIEW_SIDE // 2).long()[None, :].expand(VIEW_SIDE, -1)
    black = torch.zeros_like(one)
    grey = [plane.expand(3, -1, -1) for plane in (black, 1 - black, stripes, chequers, one, half)]
    red = torch.stack([1 - black, black, black])
    noise = torch.randint(
        2, (4, 3, VIEW_SIDE, VIEW_SIDE), generator=torch.Generator().manual_seed(0)
    )
    return (torch.cat([torch.stack([*grey, red]), noise]) * 255).to(torch.uint8)


def crafted_rows(blocks: Sequence[Block]) -> Tensor:
    """Return rows that no image need have: one column of each block, all of them, and none."""
    parts = []
    for block in blocks:
        rows = torch.zeros(5, block.columns, dtype=torch.int16)
        rows[0, 0] = rows[1, -1] = BLOCK_BOUND
        rows[2] = int(BLOCK_BOUND / block.columns**0.5)
        rows[3] = -rows[2]
        parts.append(rows)
    return torch.cat(parts, dim=1)
