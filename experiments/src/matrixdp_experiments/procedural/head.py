"""A linear classifier from noisy sums of clipped gradients, whose sensitivity is exact.

The gradient of a record is its residual (ten probabilities, less one at the label) times its row.
Both become integers of bounded norm, so the sum over records is a sum of integers, and one record
moves it by at most the product of the bounds: in exact arithmetic, for this program as it runs.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from matrixdp import Budget
from matrixdp.errors import InvalidParameterError
from matrixdp_experiments.procedural.account import Descent
from matrixdp_experiments.procedural.centring import ROW_BOUND, ROW_LENGTH
from matrixdp_experiments.procedural.exponential import exponential
from matrixdp_experiments.procedural.integers import EXACT, bounded_integers
from matrixdp_experiments.procedural.releasing import Noise, check_exact, mechanism_for

__all__ = ["CLASSES", "SUM_BOUND", "Classifier", "clipped_residuals", "descend", "gradient_sum"]

CLASSES = 10
_RESIDUAL_BOUND = 2**14
SUM_BOUND = ROW_BOUND * _RESIDUAL_BOUND
"""By how much one record moves a sum of gradients, at most: its Frobenius norm."""

_WEIGHT_STEPS = 2.0**20  # of a weight's unit

Watch = Callable[[int, "Classifier", Tensor], None]


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
