r"""The interior-point method that finds strategies.

All strategy problems have a dual of the form: maximise a concave ``2 tr K(w)^(1/2) - sum(w)`` over
``w >= 0``, with gradient ``r(w) - 1``. The *constraint values* r are the diagonal of Q, or the
squared distances of its columns, which may be at most 1. Weights w are optimal if ``r = 1``
wherever ``w > 0`` and ``r <= 1`` elsewhere. With slacks z for ``1 - r`` the central path is
``w z = t``, and with ``r(w + w x) = r - M (w x)`` Newton's equation on it reads

    (w M w + w z) x = w (r - 1) + t,        dz = t / w - z - z x.

It is solved by conjugate gradients. See Wright, *Primal-dual interior-point methods*, SIAM 1997,
for the method; all that it needs is that M is semidefinite.
"""

import math
from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from matrixdp.workloads.operator import FloatArray

__all__ = ["BestIterates", "Iterate", "Progress", "maximise"]

Progress = Callable[[int, float], None]
"""Called with the number of steps and the relative gap after each."""

# Five to thirty steps close the gap; one that is still open after sixty is due to rounding.
_MOST_STEPS = 60
# Slacks start at no less than this: a constraint that seems tight at first may become loose.
_SMALLEST_SLACK = 0.1
_MOST_INNER_STEPS = 200
# How well Newton's equation is solved: as well as the gap is closed, within these limits.
_ROUGHEST = 0.1
_FINEST = 3e-3
# The share of the way to the point where some weight or slack would vanish.
_BOUNDARY = 0.95
# The next aim on the path, as a share of the mean of w z: after a full step, and otherwise.
_AFTER_A_FULL_STEP = 0.01
_AFTER_A_SHORT_STEP = 0.1


class Iterate(Protocol):
    """Everything known at some weights, which may have been rescaled."""

    @property
    def weights(self) -> FloatArray:
        """Return w: positive, or 0 for constraints that are left out."""

    @property
    def constraint_values(self) -> FloatArray:
        """Return r."""

    @property
    def bound(self) -> float:
        """Return the lower bound of every strategy's error, to float accuracy."""

    @property
    def value(self) -> float:
        """Return the error of the strategy that is made from the weights."""

    def curvature(self) -> Callable[[FloatArray], FloatArray]:
        """Return the map ``x -> w M w x``."""


P = TypeVar("P", bound=Iterate)


class BestIterates(NamedTuple, Generic[P]):
    """The iterate with the least error, and the one with the highest bound.

    Near the end rounding decides which comes first, so that they need not be the same.
    """

    primal: P
    dual: P

    @property
    def gap(self) -> float:
        """How far the best strategy is above the best bound, relatively."""
        return self.primal.value / self.dual.bound - 1.0

    def including(self, iterate: P) -> "BestIterates[P]":
        """Return the best once another iterate is considered as well."""
        return BestIterates(
            min(self.primal, iterate, key=lambda found: found.value),
            max(self.dual, iterate, key=lambda found: found.bound),
        )


def maximise(
    evaluate: Callable[[FloatArray], P],
    start: FloatArray,
    *,
    target_gap: float,
    smallest_weight: float,
    progress: Progress | None = None,
) -> BestIterates[P]:
    """Return the iterates at which the gap is closed, or the best that were found.

    Parameters
    ----------
    evaluate : callable
        From weights to the iterate there.
    start : ndarray
        The first weights; constraints of weight 0 are left out.
    target_gap : float
        Where to stop.
    smallest_weight : float
        A share of the largest, below which no weight may fall.
    progress : callable, optional
        Called after every step.
    """
    iterate = evaluate(start)
    best = BestIterates(iterate, iterate)
    slacks, length = np.maximum(1.0 - iterate.constraint_values, _SMALLEST_SLACK), 0.0
    for step in range(_MOST_STEPS):
        if progress is not None:
            progress(step, best.gap)
        # Written so that a gap of NaN ends the search instead of running on.
        if not best.gap > target_gap:
            break
        tolerance = min(max(best.gap, _FINEST), _ROUGHEST)
        moved, slacks, length = _central_step(iterate, slacks, length, tolerance)
        # Weights that vanish would make the problem singular; far below the others they are as
        # good as zero, and can still grow again.
        least = smallest_weight * float(np.max(moved))
        iterate = evaluate(np.where(start > 0.0, np.maximum(moved, least), 0.0))
        best = best.including(iterate)
    return best


def _central_step(
    iterate: Iterate, slacks: FloatArray, last: float, tolerance: float
) -> tuple[FloatArray, FloatArray, float]:
    """Return weights and slacks after a step towards the central path, and its length.

    The aim is a point of the path closer to its end, and still closer if the last step was full.
    """
    weights, values, curvature = iterate.weights, iterate.constraint_values, iterate.curvature()
    part = weights > 0.0
    products = weights * slacks
    centring = _AFTER_A_FULL_STEP if last >= _BOUNDARY else _AFTER_A_SHORT_STEP
    aim = centring * float(np.sum(products)) / np.count_nonzero(part)
    step = _conjugate_gradients(
        lambda x: curvature(x) + products * x,
        np.where(part, weights * (values - 1.0) + aim, 0.0),
        # w M w applied to ones is w r / 2, which stands in for its diagonal.
        _inverse(0.5 * weights * values + products, part),
        tolerance,
    )
    slack_step = np.where(part, aim * _inverse(products, part) - 1.0 - step, 0.0)
    # Weights and slacks take steps of their own length, as is usual for primal-dual methods.
    length, slack_length = _length(step), _length(slack_step)
    moved = weights * (1.0 + length * step)
    return moved, slacks * (1.0 + slack_length * slack_step), min(length, slack_length)


def _inverse(values: FloatArray, part: np.ndarray) -> FloatArray:
    return np.divide(1.0, values, out=np.zeros_like(values), where=part)


def _length(step: FloatArray) -> float:
    """Return how much of a relative step can be taken before something vanishes."""
    return min(1.0, _BOUNDARY / max(-float(np.min(step)), math.ulp(1.0)))


def _conjugate_gradients(
    image: Callable[[FloatArray], FloatArray],
    residual: FloatArray,
    conditioner: FloatArray,
    tolerance: float,
) -> FloatArray:
    """Return the solution of a symmetric, positive semidefinite equation, to some tolerance."""
    solution = np.zeros_like(residual)
    direction = conditioner * residual
    product = first = float(np.vdot(residual, direction))
    for _ in range(_MOST_INNER_STEPS):
        moved = image(direction)
        curvature = float(np.vdot(direction, moved))
        # In exact arithmetic only at the solution; otherwise rounding has taken over.
        if not curvature > 0.0:
            break
        length = product / curvature
        solution = solution + length * direction
        residual = residual - length * moved
        preconditioned = conditioner * residual
        following = float(np.vdot(residual, preconditioned))
        if not following > tolerance**2 * first:
            break
        direction = preconditioned + (following / product) * direction
        product = following
    return solution
