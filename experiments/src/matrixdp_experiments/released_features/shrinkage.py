"""Post-processing of released rows: it uses nothing but them and the scale of their noise."""

import math

import torch
from torch import Tensor

from matrixdp.postprocess.shrinkage import shrunk

__all__ = ["projected_rows", "shrinking_map"]


def projected_rows(rows: Tensor) -> Tensor:
    """Return the nearest rows of norm 1 at most: before the noise there were no others."""
    norms: Tensor = rows.norm(dim=1, keepdim=True)
    return rows / norms.clamp(min=1.0)


def shrinking_map(rows: Tensor, noise_multiplier: float) -> Tensor:
    """Return the matrix M for which ``rows @ M`` has singular values shrunk as is best.

    This is `SingularValueShrinkage` for the Frobenius norm, on the device of the rows and for noise
    of a known scale. There are more rows than columns. A map, because whoever uses a head that was
    trained on shrunk rows has to treat a new row in the same way: M is 0 in the directions that
    were dropped, about which such a head knows nothing.
    """
    count, width = rows.shape
    exact = rows.double()
    # By the Gram matrix: the decomposition of all rows would take far longer.
    squares, right = torch.linalg.eigh(exact.T @ exact)
    seen = squares.clamp(min=0.0).sqrt() / (noise_multiplier * math.sqrt(count))
    sizes = torch.from_numpy(shrunk(seen.cpu().numpy(), width / count, "frobenius")).to(seen)
    # A singular value of 0 stays 0.
    kept = torch.where(sizes > 0.0, sizes / seen, 0.0)
    found: Tensor = right * kept @ right.T
    return found
