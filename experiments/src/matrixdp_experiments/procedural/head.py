"""A linear classifier from noisy sums of clipped gradients, whose sensitivity is exact.

The gradient of a record is its residual (ten probabilities, less one at the label) times its row.
Both become integers of bounded norm, so the sum over records is a sum of integers, and one record
moves it by at most the product of the bounds: in exact arithmetic, for this program as it runs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from matrixdp import Budget
from matrixdp.errors import InvalidParameterError
from matrixdp_experiments.procedural.account import Descent
from matrixdp_experiments.procedural.centring import ROW_BOUND, ROW_LENGTH
from matrixdp_experiments.procedural.integers import EXACT, bounded_integers
from matrixdp_experiments.procedural.releasing import Noise, check_exact, mechanism_for

__all__ = [
    "CLASSES",
    "SUM_BOUND",
    "Classifier",
    "clipped_residuals",
    "descend",
    "exponential",
    "gradient_sum",
]

CLASSES = 10
_RESIDUAL_BOUND = 2**14
SUM_BOUND = ROW_BOUND * _RESIDUAL_BOUND
"""By how much one record moves a sum of gradients, at most: its Frobenius norm."""

_WEIGHT_STEPS = 2.0**20  # of a weight's unit

Watch = Callable[[int, "Classifier", Tensor], None]
_LEAST = -700.0  # below it, the result is as good as 0
_TERMS = 13  # the next one is below 1e-17 for |x| <= log(2) / 2
# log(2) in two parts; products of the first with an integer up to 2**11 are exact.
_HIGH = math.floor(math.log(2) * 2**32) / 2**32
_LOW = 1.9082149292705877e-10


@dataclass(frozen=True, eq=False)
class Classifier:
    """Weights on a grid of 2^-20, and the scores they give.

    Attributes
    ----------
    whole : Tensor of float64, shape (columns, CLASSES)
        The weights in steps: integers.
    """

    whole: Tensor

    @classmethod
    def of(cls, weights: Tensor) -> "Classifier":
        """Return the classifier of the nearest weights on the grid.

        Raises
        ------
        InvalidParameterError
            If weights are so large that scores would not be exact.
        """
        whole = (weights * _WEIGHT_STEPS).round()
        # Cauchy and Schwarz: no partial sum of a score is larger than the product of the norms.
        longest = float(whole.square().sum(dim=0).max().sqrt())
        if not longest * ROW_BOUND <= EXACT / 2:
            raise InvalidParameterError(
                f"weights of norm {longest / _WEIGHT_STEPS:.3g} are too large: lower the rate"
            )
        return cls(whole)

    def scores(self, rows: Tensor) -> Tensor:
        """Return the scores of rows of integers: each an exact sum, rounded once.

        No block size, kernel or other row changes a bit.
        """
        whole: Tensor = rows @ self.whole
        return whole * (ROW_LENGTH / (_WEIGHT_STEPS * ROW_BOUND))


def clipped_residuals(scores: Tensor, labels: Tensor, clip: float) -> Tensor:
    """Return residuals of norm at most ``clip``, over it, as integers of norm at most 2^14.

    Sums over classes are taken in a fixed order, and nothing is used but what IEEE 754 determines,
    so that a row depends on nothing else.
    """
    powers = exponential(scores - scores.amax(dim=1, keepdim=True))
    probabilities = powers / _in_order(powers)[:, None]
    residuals = probabilities - functional.one_hot(labels, CLASSES)
    lengths = _in_order(residuals.square()).sqrt()
    unit = residuals / lengths.clamp(min=clip)[:, None]
    return bounded_integers(unit, _RESIDUAL_BOUND)


def _in_order(columns: Tensor) -> Tensor:
    """Return the sum of columns, from the first to the last."""
    total = columns[:, 0]
    for column in columns.T[1:]:
        total = total + column
    return total


def gradient_sum(rows: Tensor, residuals: Tensor) -> Tensor:
    """Return the sum over records of residual times row: exact integers, in every order.

    Returns
    -------
    Tensor of float64, shape (CLASSES, columns)
        One record moves it by at most `SUM_BOUND` in Frobenius norm.
    """
    check_exact(SUM_BOUND, len(rows))
    return residuals.T @ rows


def descend(
    rows: Tensor,
    labels: Tensor,
    descent: Descent,
    budgets: tuple[Budget, ...],
    noise: Noise,
    *,
    watch: Watch | None = None,
) -> Classifier:
    """Return the mean of the last iterates of gradient descent with momentum, from zero.

    Parameters
    ----------
    rows : Tensor
        Of a `Centring`.
    labels : Tensor of int64
        From 0 to 9.
    descent : Descent
        The schedule.
    budgets : tuple of Budget
        Of each step.
    noise : Noise
        Exact, or simulated.
    watch : callable, optional
        Told the step, the classifier before it and the sum without noise: for measurements on the
        true trajectory, which may not leave the owner of the data.
    """
    # The steps' rows have norm 1, and the residuals' clip is for rows of their own length.
    clip = descent.clip / ROW_LENGTH
    weights = torch.zeros(rows.shape[1], CLASSES, dtype=torch.float64, device=rows.device)
    velocity, mean = torch.zeros_like(weights), torch.zeros_like(weights)
    for step, budget in enumerate(budgets):
        classifier = Classifier.of(weights)
        residuals = clipped_residuals(classifier.scores(rows), labels, clip)
        total = gradient_sum(rows, residuals)
        if watch is not None:
            watch(step, classifier, total)
        noisy = noise(total, mechanism_for(SUM_BOUND**2, budget))
        velocity = descent.momentum * velocity + noisy.T / (SUM_BOUND * descent.records)
        weights = weights - descent.rate_at(step) * velocity
        if step >= descent.first_averaged:
            mean += weights / (descent.steps - descent.first_averaged)
    return Classifier.of(mean)


def exponential(values: Tensor) -> Tensor:
    """Return ``exp(x)`` of float64 numbers that are at most 0, to about 1e-15.

    It has the same bits everywhere: for any position, length, thread or device. Libraries compute
    it differently in vectors and in what is left over at their ends, so that taking a record away
    could change the last bit of another one's. This one is made of sums, products and roundings of
    float64 alone, which IEEE 754 determines.

    ``exp(x) = 2^k exp(r)`` with r = x - k log 2, and ``exp(r)`` by its Taylor polynomial. Numbers
    below -700 count as -700. NaN stays NaN.

    Examples
    --------
    >>> exponential(torch.tensor([0.0, -1.0]).double()).tolist()
    [1.0, 0.36787944117144...]
    """
    held = values.clamp(min=_LEAST)
    power = (held * (1 / math.log(2))).round()
    rest = held - power * _HIGH - power * _LOW
    total = torch.ones_like(rest)
    for term in range(_TERMS, 0, -1):
        total = total * (rest * (1 / term)) + 1
    # A float64 with nothing but this exponent: an exact power of two.
    scale = ((power.nan_to_num().to(torch.int64) + 1023) << 52).view(torch.float64)
    return total * scale
