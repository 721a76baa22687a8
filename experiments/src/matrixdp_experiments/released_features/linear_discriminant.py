"""A linear head from moments of features and labels, with what is known about their noise.

Linear discriminant analysis needs the mean of each class and the covariance within classes, and
both follow from second moments. The noise of the moments has a known size, and every step below
uses it. Without noise it is the textbook method.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["LinearHead", "NoisyMoments", "linear_discriminant", "moments_of_rows"]

# Of the largest possible eigenvalue of a covariance: keeps the inverse finite without noise.
_LEAST_RIDGE = 1e-6


class NoisyMoments(NamedTuple):
    """Moments of rows of norm 1 at most and of their classes, and the noise in them.

    Attributes
    ----------
    gram : Tensor, shape (features, features)
        The sum of ``x x^T``, already without the expectation of its noise.
    sums : Tensor, shape (features, classes)
        The sum of x over the records of each class.
    counts : Tensor, shape (classes,)
        The number of records of each class.
    gram_noise : float
        The standard deviation of an entry of ``gram``.
    sum_noise : Tensor, shape (classes,)
        The standard deviations of the entries of ``sums``.
    """

    gram: Tensor
    sums: Tensor
    counts: Tensor
    gram_noise: float
    sum_noise: Tensor


class LinearHead(NamedTuple):
    """Answers with the class of the largest ``x @ weights + offsets``."""

    weights: Tensor
    offsets: Tensor

    def accuracy(self, rows: Tensor, targets: Tensor) -> float:
        """Return the share of right answers."""
        answers = (rows.double() @ self.weights + self.offsets).argmax(1)
        return float((answers == targets).double().mean())


def moments_of_rows(
    rows: Tensor, targets: Tensor, classes: int, noise_multiplier: float
) -> NoisyMoments:
    """Return the moments of noisy rows, less what their noise adds on average.

    Rows ``x + z`` with noise of scale s have ``E[(x + z)(x + z)^T] = x x^T + s^2 I``, so that
    ``n s^2 I`` is taken from their Gram matrix (errors in variables: Fuller, *Measurement Error
    Models*, 1987). The rest of its noise has entries of variance ``n s^4 + s^2 (G_ii + G_jj)``,
    and the entries of G's diagonal are ``n / d`` on average for rows of norm 1.
    """
    exact = rows.double()
    count, width = exact.shape
    labels = torch.nn.functional.one_hot(targets, classes).double()
    variance = noise_multiplier**2
    gram = exact.T @ exact
    gram.diagonal().sub_(count * variance)
    counts = labels.sum(0)
    return NoisyMoments(
        gram=gram,
        sums=exact.T @ labels,
        counts=counts,
        gram_noise=math.sqrt(count * variance * (variance + 2.0 / width)),
        sum_noise=noise_multiplier * counts.sqrt(),
    )


def linear_discriminant(moments: NoisyMoments) -> LinearHead:
    """Return the head ``x -> (x - m)^T A (m_k - m) - q_k / 2`` for class means m_k with mean m.

    - ``A = (S + r I)^-1`` with S the covariance within classes, made positive semi-definite, and r
      the standard deviation of the eigenvalues of its noise: by the semicircle law the root of the
      number of features times the standard deviation of an entry.
    - ``q_k = (m_k - m)^T A (m_k - m)``, less ``v_k tr(A)`` for means with noise of variance v_k.
    - These q_k still have noise, of variance ``2 v_k^2 tr(A^2) + 4 v_k |A (m_k - m)|^2``. They are
      moved towards their mean by the factor of James and Stein (1961): 1 less the variance of the
      noise over that of the q_k, and at least 0. So is m towards 0, by 1 less the expected square
      of its noise over its own.

    All classes are taken to be equally frequent.
    """
    counts = moments.counts.clamp(min=1.0)  # a count with noise may be negative
    total = counts.sum()
    means = moments.sums / counts
    within = moments.gram / total - (means * counts) @ means.T / total
    ridge = _LEAST_RIDGE + math.sqrt(len(within)) * moments.gram_noise / float(total)
    values, vectors = torch.linalg.eigh(within)
    inverse = 1.0 / (values.clamp(min=0.0) + ridge)
    middle = _shrunk_mean(means @ (counts / total), float((moments.sum_noise**2).sum() / total**2))
    turned = vectors.T @ (means - middle[:, None])
    scaled = inverse[:, None] * turned
    weights = vectors @ scaled
    variances = (moments.sum_noise / counts) ** 2
    squares = (scaled * turned).sum(0) - inverse.sum() * variances
    offsets = -0.5 * _shrunk(squares, _noise_of_squares(scaled, inverse, variances))
    return LinearHead(weights, offsets - middle @ weights)


def _shrunk_mean(mean: Tensor, variance: float) -> Tensor:
    """Return a vector with noise of a known variance on every entry, moved towards 0."""
    square = float((mean**2).sum())
    return mean * (max(0.0, 1.0 - len(mean) * variance / square) if square > 0.0 else 0.0)


def _noise_of_squares(scaled: Tensor, inverse: Tensor, variances: Tensor) -> Tensor:
    """Return the variance of each ``(m + z)^T A (m + z)`` for z with variance v on every entry."""
    trace = (inverse**2).sum()
    # The squared norm of A m, less what the noise adds to it on average.
    lengths = ((scaled**2).sum(0) - variances * trace).clamp(min=0.0)
    return 2.0 * variances**2 * trace + 4.0 * variances * lengths


def _shrunk(values: Tensor, noise: Tensor) -> Tensor:
    """Return values moved towards their mean, by the share of their spread that is noise."""
    apart = values - values.mean()
    spread = float((apart**2).sum()) / (len(values) - 1)
    kept = max(0.0, 1.0 - float(noise.mean()) / spread) if spread > 0.0 else 0.0
    return kept * apart
