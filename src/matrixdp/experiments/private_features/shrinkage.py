"""Post-processing of released rows: it uses nothing but them and the scale of their noise."""

import math

import torch
from torch import Tensor

from matrixdp.postprocess.shrinkage import shrunk

__all__ = ["projected_rows", "shrunk_rows"]


def projected_rows(rows: Tensor) -> Tensor:
    """Return the nearest rows of norm 1 at most: before the noise there were no others."""
    norms: Tensor = rows.norm(dim=1, keepdim=True)
    return rows / norms.clamp(min=1.0)


def shrunk_rows(rows: Tensor, noise_multiplier: float) -> Tensor:
    """Return rows whose singular values are shrunk as is best for noise of a known scale.

    This is `SingularValueShrinkage` for the Frobenius norm, on the device of the rows. There are
    more rows than columns.
    """
    if not noise_multiplier > 0.0:
        return rows
    count, width = rows.shape
    exact = rows.double()
    # By the Gram matrix: the decomposition of all rows would take far longer.
    squares, right = torch.linalg.eigh(exact.T @ exact)
    seen = squares.clamp(min=0.0).sqrt() / (noise_multiplier * math.sqrt(count))
    sizes = torch.from_numpy(shrunk(seen.cpu().numpy(), width / count, "frobenius")).to(seen)
    # A singular value of 0 stays 0.
    kept = torch.where(sizes > 0.0, sizes / seen, 0.0)
    found: Tensor = (exact @ right) * kept @ right.T
    return found.to(rows.dtype)
