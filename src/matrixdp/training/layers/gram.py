r"""Squared gradient norms from Gram matrices, and how far rounding may put them off.

With ``x_t`` the rows that a weight multiplies at position t and ``g_t`` the output gradients there,
an example's weight gradient is ``sum_t g_t x_t^T``, and its squared norm
``sum_(t,s) (x_t . x_s) (g_t . g_s)``. For T positions this costs ``T^2 (in + out)`` products where
the gradient itself costs ``T in out``.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

__all__ = ["UNIT_ROUNDOFF_32", "full_float32", "gram", "norms_from_grams"]

UNIT_ROUNDOFF_32 = 2.0**-24
"""The unit roundoff of float32."""


@contextmanager
def full_float32() -> Iterator[None]:
    """Let matrix products on a GPU use all bits of float32, whatever the user allows elsewhere.

    TF32 keeps 11 bits. The Gram form cancels, so that what TF32 drops could be as large as the norm
    itself; its products are a small part of the work.
    """
    backend = torch.backends.cuda.matmul
    former = backend.fp32_precision
    backend.fp32_precision = "ieee"
    try:
        yield
    finally:
        backend.fp32_precision = former


def gram(rows: Tensor) -> Tensor:
    """Return ``rows @ rows^T`` for each example, in full float32."""
    wide = rows.to(torch.float32)
    with full_float32():
        return torch.bmm(wide, wide.transpose(1, 2))


def norms_from_grams(inputs: Tensor, outputs: Tensor, terms: int) -> Tensor:
    r"""Return upper bounds of ``sum_(t,s) K_x[t,s] K_g[t,s]`` for every example, in float64.

    Parameters
    ----------
    inputs, outputs : Tensor, shape (examples, T, T)
        K_x and K_g, in float32 and of float32 accuracy.
    terms : int
        How many float32 products were added up for an entry of K_x and for one of K_g together.

    Notes
    -----
    *Guarantee:* a float32 sum of k products is off by at most ``(k + 1) u sum |a b|``, in any order
    of summation (Higham 2002, section 3.1), which for an entry (t, s) of a Gram matrix is at most
    ``(k + 1) u |x_t| |x_s|``. Multiplying two such entries rounds once more; the products are then
    added up in float64. Together that is to first order ``(terms + 3) u sum |x_t||x_s||g_t||g_s|``,
    and the sum is ``(sum_t |x_t||g_t|)^2``; the terms themselves cancel, so the error is relative
    to this and not to the result. Twice as much is added, which covers the higher orders and the
    rounding of the diagonal entries for any number of terms below 2**20.
    """
    total = (inputs * outputs).sum((1, 2), dtype=torch.float64)
    sizes = (_diagonal(inputs) * _diagonal(outputs)).sqrt().sum(1).square()
    return total.clamp(min=0.0) + 2.0 * (terms + 3) * UNIT_ROUNDOFF_32 * sizes


def _diagonal(matrices: Tensor) -> Tensor:
    return torch.diagonal(matrices, dim1=1, dim2=2).to(torch.float64)
