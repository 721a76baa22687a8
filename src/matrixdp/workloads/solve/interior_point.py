r"""The interior-point method that finds strategies.

All strategy problems have a dual of the form: maximise a concave ``2 tr K(w)^(1/2) - sum(w)`` over
``w >= 0``, with gradient ``r(w) - 1``. The *constraint values* r are the diagonal of Q, or
the squared distances of its columns. Optimal is w if ``r = 1`` wherever ``w > 0`` and ``r <= 1`` elsewhere.
With slacks z for ``1 - r`` the central path is ``w z = t``, and with ``r(w + w x) = r - M (w x)``
Newton's equation on it reads

    (w M w + w z) x = w (r - 1) + t,        dz = t / w - z - z x.

It is solved by conjugate gradients. See Wright, *Primal-dual interior-point methods*, SIAM 1997,
for the method; that M is semidefinite is all that it needs.
"""

import math
from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from matrixdp.workloads.operator import FloatArray

__all__ = ["BestIterates", "Point", "Progress", "maximise"]

Progress = Callable[[int, float], None]
"""Told the number of steps and the relative gap after each."""

_MOST_STEPS = 60
_SMALLEST_SLACK = 0.1
_MOST_INNER_STEPS = 200
# How well Newton's equation is solved: as well as the gap is closed, within these limits.
_ROUGHEST = 0.1
_FINEST = 3e-3
_BOUNDARY = 0.95  # of the way to where some weight or slack would vanish
# Of the mean of w z, for the next step: where the last one went all the way, and otherwise.
_AFTER_A_FULL_STEP = 0.01
_AFTER_A_SHORT_STEP = 0.1


class Point(Protocol):
    """What there is to know at some weights, which may have been rescaled."""

    @property
    def weights(self) -> FloatArray:
        """Return w: positive, or 0 for what takes no part."""

    @property
    def constraint_values(self) -> FloatArray:
        """Return r."""

    @property
    def bound(self) -> float:
        """Return the lower bound of every strategy's error, to float accuracy."""

    @property
    def value(self) -> float:
        """Return the error of the strategy that is made from the point."""

    def curvature(self) -> Callable[[FloatArray], FloatArray]:
        """Return the map ``x -> w M w x``."""


P = TypeVar("P", bound=Point)


class BestIterates(NamedTuple, Generic[P]):
    """The point with the least error, and the one with the highest bound."""

    primal: P
    dual: P

    @property
    def gap(self) -> float:
        """How far the best strategy is above the best bound, relatively."""
        return self.primal.value / self.dual.bound - 1.0

    def with_point(self, point: P) -> "BestIterates[P]":
        """Return what is best once a point has been looked at as well."""
        return BestIterates(
            min(self.primal, point, key=lambda found: found.value),
            max(self.dual, point, key=lambda found: found.bound),
        )


def maximise(
    evaluate: Callable[[FloatArray], P],
    start: FloatArray,
    *,
    target_gap: float,
    smallest_weight: float,
    progress: Progress | None = None,
) -> BestIterates[P]:
    """Return the points at which the gap is closed, or the best that were found.

    Parameters
    ----------
    evaluate : callable
        From weights to the point there.
    start : ndarray
        The first weights; what is 0 takes no part.
    target_gap : float
        Where to stop.
    smallest_weight : float
        A share of the largest, below which no weight may fall.
    progress : callable, optional
        Told of every step.
    """
    point = evaluate(start)
    best = BestIterates(point, point)
    slacks, length = np.maximum(1.0 - point.constraint_values, _SMALLEST_SLACK), 0.0
    for step in range(_MOST_STEPS):
        if progress is not None:
            progress(step, best.gap)
        if not best.gap > target_gap:
            break
        tolerance = min(max(best.gap, _FINEST), _ROUGHEST)
        moved, slacks, length = _central_step(point, slacks, length, tolerance)
        least = smallest_weight * float(np.max(moved))
        point = evaluate(np.where(start > 0.0, np.maximum(moved, least), 0.0))
        best = best.with_point(point)
    return best


def _central_step(
    point: Point, slacks: FloatArray, last: float, tolerance: float
) -> tuple[FloatArray, FloatArray, float]:
    """Return weights and slacks after a step towards the central path, and how far it went.

    The path is aimed at closer to its end than before: the more so if the last step went all the
    way.
    """
    weights, constraint_values, curvature = (
        point.weights,
        point.constraint_values,
        point.curvature(),
    )
    part = weights > 0.0
    products = weights * slacks
    centring = _AFTER_A_FULL_STEP if last >= _BOUNDARY else _AFTER_A_SHORT_STEP
    aim = centring * float(np.sum(products)) / np.count_nonzero(part)
    step = _conjugate_gradients(
        lambda x: curvature(x) + products * x,
        np.where(part, weights * (values - 1.0) + aim, 0.0),
        # w M w applied to ones is w r / 2, which stands for its diagonal.
        _inverse(0.5 * weights * values + products, part),
        tolerance,
    )
    slack_step = np.where(part, aim * _inverse(products, part) - 1.0 - step, 0.0)
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
