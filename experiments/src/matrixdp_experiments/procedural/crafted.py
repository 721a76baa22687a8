"""Records that try to move a sum as far as they can: for measurements, never for training."""

from collections.abc import Sequence

import torch
from torch import Tensor

from matrixdp_experiments.procedural.blocks import Block
from matrixdp_experiments.procedural.views import VIEW_SIDE
from matrixdp_experiments.procedural.whitening import BLOCK_BOUND

__all__ = ["crafted_images", "crafted_rows"]


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
