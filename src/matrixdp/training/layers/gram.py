r"""Gradient norms from Gram matrices, and how far rounding may put them off.

With ``x_t`` the rows that a weight multiplies at position t and ``g_t`` the output gradients there,
an example's weight gradient is ``sum_t g_t x_t^T``, and its squared norm
``sum_(t,s) (x_t . x_s) (g_t . g_s)``. For T positions this costs ``T^2 (in + out)`` products where
the gradient itself costs ``T in out``.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from matrixdp.training.kernels.bounds import NormBounds

__all__ = ["bounds_from_rows", "full_float32", "gram", "gram_bounds"]

# The unit roundoff of float32, twice: tensor cores cut off where others round.
_UNIT = 2.0**-23
# What a diagonal is padded by for each product: times _UNIT, it is above what underflow takes.
_LOST_SQUARES = 2.0**-100


@contextmanager
def full_float32() -> Iterator[None]:
    """Let matrix products use all bits of float32, whatever the user allows elsewhere.

    TF32 keeps 11 bits, and bfloat16, which some processors may use instead, 8. The Gram form
    cancels, so that what they drop could be as large as the norm itself; its products are a small
    part of the work.
    """
    # torch does not declare the second one
    backends = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)  # type: ignore[attr-defined]
    former = [backend.fp32_precision for backend in backends]
    for backend in backends:
        backend.fp32_precision = "ieee"
    try:
        yield
    finally:
        for backend, precision in zip(backends, former, strict=True):
            backend.fp32_precision = precision


def gram(rows: Tensor) -> Tensor:
    """Return ``rows @ rows^T`` for each example, with the accuracy of float32."""
    if rows.is_cuda and rows.element_size() < 4:
        # Products of 16-bit numbers are exact in float32, which tensor cores add up in.
        return torch.bmm(rows, rows.transpose(1, 2), out_dtype=torch.float32)
    wide = rows.to(torch.float32)
    with full_float32():
        return torch.bmm(wide, wide.transpose(1, 2))


def gram_bounds(inputs: Tensor, outputs: Tensor, units: int, rounding: float) -> NormBounds:
    """Return bounds of ``sqrt(sum_(t,s) K_x[t,s] K_g[t,s])`` for every example.

    Parameters
    ----------
    inputs, outputs : Tensor, shape (examples, T, T)
        K_x and K_g, with the accuracy of float32.
    units : int
        How many float32 products were added up for an entry of K_x and for one of K_g together.
    rounding : float
        How far x and g may be rounded before they are multiplied for the sum; `factor_rounding`.
    """
    rows = (inputs * outputs).sum(2)
    first, second = (torch.diagonal(tensor, dim1=1, dim2=2) for tensor in (inputs, outputs))
    return bounds_from_rows(rows, first, second, units, rounding)


def bounds_from_rows(
    rows: Tensor, inputs: Tensor, outputs: Tensor, units: int, rounding: float
) -> NormBounds:
    r"""Return bounds of norms from the rows of a product of Gram matrices, and their diagonals.

    Parameters
    ----------
    rows : Tensor, shape (examples, T)
        ``sum_s K_x[t,s] K_g[t,s]``, computed in float32.
    inputs, outputs : Tensor, shape (examples, T)
        ``K_x[t,t]`` and ``K_g[t,t]``.
    units, rounding
        As in `gram_bounds`.

    Notes
    -----
    *Guarantee:* a float32 sum of k products is off by at most ``(k + 1) u sum |a b|``, in any order
    of summation (Higham 2002, section 3.1), which for an entry (t, s) of a Gram matrix is at most
    ``(k + 1) u |x_t| |x_s|``. Multiplying the two matrices rounds once, and adding up a row of T
    terms T times; rows are added up in float64. To first order that is ``units + T + 4`` units of
    ``(sum_t |x_t| |g_t|)^2``. The terms cancel, so the error is relative to this and not to the
    result. Twice as much is added, which covers the higher orders and the rounding of the diagonals
    as long as the number of units stays below 2**20. Products that underflow are lost altogether,
    up to ``2**-126`` for each; the diagonals are padded so that the same term covers them.

    The sum is formed from rounded factors. That moves every ``g_t x_t^T`` by a share of its norm,
    and these terms cancel as well, so the share of ``sum_t |x_t| |g_t|`` is added to the norm.
    """
    # Few operations: on small images a GPU waits for their launches.
    total = rows.sum(1, dtype=torch.float64)
    # Next to the largest float32, a product may overflow on its negative side alone.
    total = total.where(total > -math.inf, math.nan).clamp_(min=0.0)
    diagonals = torch.stack((inputs, outputs)).to(torch.float64).clamp_(min=0.0)
    first, second = diagonals.add_(units * _LOST_SQUARES)
    sizes = first.mul_(second).sqrt_().sum(1)
    error = 2.0 * (units + rows.shape[1] + 4) * _UNIT
    norms = total.addcmul_(sizes, sizes, value=error).sqrt_()
    return NormBounds(norms.add_(sizes, alpha=rounding), 2.0**-40)
