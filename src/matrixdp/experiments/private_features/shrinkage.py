"""Post-processing of released rows: it uses nothing but them and the scale of their noise."""

import math

import torch
from torch import Tensor

__all__ = ["projected_rows", "shrunk_rows"]


def projected_rows(rows: Tensor) -> Tensor:
    """Return the nearest rows of norm 1 at most: before the noise there were no others."""
    norms: Tensor = rows.norm(dim=1, keepdim=True)
    return rows / norms.clamp(min=1.0)


def shrunk_rows(rows: Tensor, noise_multiplier: float) -> Tensor:
    """Return rows whose singular values are shrunk as is best for noise of a known scale.

    For n rows of d columns with ``b = d / n`` and y a singular value over ``scale sqrt(n)``, the
    new one is ``scale sqrt(n) sqrt((y^2 - b - 1)^2 - 4 b) / y`` if ``y > 1 + sqrt(b)``, and 0
    otherwise. For large matrices no other rule that changes singular values alone has a smaller
    mean squared error (Gavish and Donoho, *Optimal Shrinkage of Singular Values*, 2017).
    """
    if not noise_multiplier > 0.0:
        return rows
    count, width = rows.shape
    ratio, unit = width / count, noise_multiplier * math.sqrt(count)
    exact = rows.double()
    # By the Gram matrix, as there are many more rows than columns.
    squares, right = torch.linalg.eigh(exact.T @ exact)
    values = squares.clamp(min=0.0).sqrt() / unit
    inside = ((values**2 - ratio - 1.0) ** 2 - 4.0 * ratio).clamp(min=0.0).sqrt()
    kept = torch.where(values > 1.0 + math.sqrt(ratio), inside / values**2, 0.0)
    shrunk: Tensor = (exact @ right) * kept @ right.T
    return shrunk.to(rows.dtype)
