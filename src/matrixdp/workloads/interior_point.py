r"""The interior-point method that finds strategies, one step at a time.

Both strategy problems have a dual of the form: maximise a concave ``2 tr K(w)^(1/2) - sum(w)`` over
``w >= 0``, with gradient ``r(w) - 1``. What is *reached*, r, is the diagonal of Q, or the squared
distances of its columns. Optimal is w if ``r = 1`` wherever ``w > 0`` and ``r <= 1`` elsewhere.
With slacks z for ``1 - r`` the central path is ``w z = t``, and with ``r(w + w x) = r - M (w x)``
Newton's equation on it reads

    (w M w + w z) x = w (r - 1) + t,        dz = t / w - z - z x.

It is solved by conjugate gradients. See Wright, *Primal-dual interior-point methods*, SIAM 1997,
for the method; that M is semidefinite is all that it needs.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from matrixdp.workloads.operator import FloatArray

__all__ = ["Iterate", "Progress", "central_step"]

Progress = Callable[[int, float], None]
"""Told the number of steps and the relative gap after each."""

_MOST_INNER_STEPS = 200
_INNER_TOLERANCE = 1e-2
_BOUNDARY = 0.95  # of the way to where some weight or slack would vanish
# Of the mean of w z, for the next step: where the last one went all the way, and otherwise.
_AFTER_A_FULL_STEP = 0.01
_AFTER_A_SHORT_STEP = 0.1


class Iterate(NamedTuple):
    """Weights, all positive but those that take no part, which are 0; slacks; how far it went."""

    weights: FloatArray
    slacks: FloatArray
    length: float


def central_step(
    iterate: Iterate, reached: FloatArray, curvature: Callable[[FloatArray], FloatArray]
) -> Iterate:
    """Return the iterate after a step towards the central path, at a smaller t than before.

    Parameters
    ----------
    iterate : Iterate
        w and z.
    reached : ndarray
        r, where `curvature` was taken as well.
    curvature : callable
        The map ``x -> w M w x``.
    """
    weights, slacks, last = iterate
    part = weights > 0.0
    products = weights * slacks
    centring = _AFTER_A_FULL_STEP if last >= _BOUNDARY else _AFTER_A_SHORT_STEP
    aim = centring * float(np.sum(products)) / np.count_nonzero(part)
    step = _conjugate_gradients(
        lambda x: curvature(x) + products * x,
        np.where(part, weights * (reached - 1.0) + aim, 0.0),
        # w M w applied to ones is w r / 2, which stands for its diagonal.
        _inverse(0.5 * weights * reached + products, part),
    )
    slack_step = np.where(part, aim * _inverse(products, part) - 1.0 - step, 0.0)
    length, slack_length = _length(step), _length(slack_step)
    return Iterate(
        weights * (1.0 + length * step),
        slacks * (1.0 + slack_length * slack_step),
        min(length, slack_length),
    )


def _inverse(values: FloatArray, part: np.ndarray) -> FloatArray:
    return np.divide(1.0, values, out=np.zeros_like(values), where=part)


def _length(step: FloatArray) -> float:
    """Return how much of a relative step can be taken before something vanishes."""
    return min(1.0, _BOUNDARY / max(-float(np.min(step)), math.ulp(1.0)))


def _conjugate_gradients(
    image: Callable[[FloatArray], FloatArray], residual: FloatArray, conditioner: FloatArray
) -> FloatArray:
    """Return the solution of a symmetric, positive semidefinite equation to two digits or so."""
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
        if not following > _INNER_TOLERANCE**2 * first:
            break
        direction = preconditioned + (following / product) * direction
        product = following
    return solution
