"""Stein's unbiased risk estimate of soft thresholding, and the threshold that minimises it.

Everything is in units of the noise's scale. Between two neighbouring singular values the estimate
is a quadratic function of the threshold, so its minimum is found exactly.

Notation: d_1 >= d_2 >= ... are the singular values, or the absolute eigenvalues; t is the
threshold, and k is how many of them exceed it. The divergence of the estimate with respect to the
data is then ``a_k - b_k t``.
"""

import numpy as np

from matrixdp.postprocess.step import FloatArray, Shape

__all__ = ["best_threshold", "estimated_risk"]


def best_threshold(values: FloatArray, shape: Shape, *, symmetric: bool) -> float:
    """Return the threshold with the least estimated risk.

    Parameters
    ----------
    values : ndarray
        The singular values, or the eigenvalues of a symmetric matrix, falling in absolute value,
        in units of the noise's scale.
    shape : tuple of int
        Of the matrix.
    symmetric : bool
        Whether the noise is symmetric, and the values are eigenvalues.
    """
    sizes = np.abs(values)
    # Everything is set to 0: no loss but the whole of the matrix.
    best, least = float(sizes[0]), float(np.sum(np.square(sizes)))
    beyond = np.append(sizes[1:], 0.0)
    for kept in range(1, len(sizes) + 1):
        low, high = float(beyond[kept - 1]), float(sizes[kept - 1])
        if not low < high:
            continue  # equal values are kept or dropped together
        constant, slope = _divergence(values, kept, shape, symmetric=symmetric)
        threshold = min(max(slope / kept, low), high)
        dropped = float(np.sum(np.square(sizes[kept:])))
        risk = dropped + kept * threshold**2 + 2.0 * (constant - slope * threshold)
        if risk < least:
            best, least = threshold, risk
    return best


def estimated_risk(values: FloatArray, threshold: float, shape: Shape, *, symmetric: bool) -> float:
    """Return Stein's estimate of the expected squared error, in squared noise scales.

    ``-p + sum_i min(t, d_i)^2 + 2 divergence``, with p the dimension of the noise. Its expected
    value is that of the squared error, whatever the true matrix is.

    References
    ----------
    Candès, Sing-Long and Trzasko, *Unbiased risk estimates for singular value thresholding and
    spectral estimators*, IEEE Trans. Signal Process. 61 (2013).
    """
    rows, columns = shape
    sizes = np.abs(values)
    kept = int(np.count_nonzero(sizes > threshold))
    constant, slope = _divergence(values, kept, shape, symmetric=symmetric)
    dimension = rows * (rows + 1) // 2 if symmetric else rows * columns
    lost = float(np.sum(np.square(np.minimum(sizes, threshold))))
    return lost - dimension + 2.0 * (constant - slope * threshold)


def _divergence(
    values: FloatArray, kept: int, shape: Shape, *, symmetric: bool
) -> tuple[float, float]:
    """Return a_k and b_k."""
    if symmetric:
        return _of_eigenvalues(values, kept)
    return _of_singular_values(values, kept, abs(shape[0] - shape[1]))


def _of_singular_values(values: FloatArray, kept: int, longer: int) -> tuple[float, float]:
    """Return a_k and b_k of soft-thresholded singular values.

    The divergence is ``sum_i [1 + |m - n| (1 - t/d_i)]`` over kept i, plus twice the sum over pairs
    of ``d_i (d_i - t)_+ / (d_i^2 - d_j^2)``. The two terms of a pair that is kept add up to
    ``1 - t / (d_i + d_j)``, which has no difference to cancel.
    """
    above, below = values[:kept], values[kept:]
    pairs = 1.0 / (above[:, None] + above)
    # Each pair once: without the diagonal, and half of the rest.
    both = (float(np.sum(pairs)) - float(np.sum(0.5 / above))) / 2.0
    single = above[:, None] / ((above[:, None] - below) * (above[:, None] + below))
    constant = kept * (1.0 + longer) + kept * (kept - 1.0) + 2.0 * np.sum(above[:, None] * single)
    slope = longer * np.sum(1.0 / above) + 2.0 * both + 2.0 * np.sum(single)
    return float(constant), float(slope)


def _of_eigenvalues(values: FloatArray, kept: int) -> tuple[float, float]:
    """Return a_k and b_k of soft-thresholded eigenvalues.

    The divergence of a function f of eigenvalues, in the isometric embedding of symmetric matrices,
    is ``sum_i f'(l_i) + sum_{i<j} (f(l_i) - f(l_j)) / (l_i - l_j)``, which is the trace
    of its derivative by the formula of Daleckii and Krein (1965).
    """
    above, below = values[:kept], values[kept:]
    sizes = np.abs(above)
    opposite = np.sign(above)[:, None] * np.sign(above) < 0.0
    # A kept pair of one sign moves together: its quotient is 1 at every threshold.
    sums = np.where(opposite, 2.0 / (sizes[:, None] + sizes), 0.0)
    single = 1.0 / (sizes[:, None] - np.sign(above)[:, None] * below)
    constant = kept + kept * (kept - 1.0) / 2.0 + np.sum(sizes[:, None] * single)
    slope = np.sum(sums) / 2.0 + np.sum(single)
    return float(constant), float(slope)
