"""Linear equations that are only known as a map, solved roughly."""

from collections.abc import Callable

import numpy as np

from matrixdp.workloads.operator import FloatArray

__all__ = ["conjugate_gradients"]

_TOLERANCE = 1e-2


def conjugate_gradients(
    image: Callable[[FloatArray], FloatArray],
    residual: FloatArray,
    conditioner: FloatArray,
    most_steps: int,
) -> FloatArray:
    """Return the solution of a symmetric, positive semidefinite equation to two digits or so.

    Parameters
    ----------
    image : callable
        The map.
    residual : ndarray
        The right side, of any shape.
    conditioner : ndarray
        An approximation of the inverse's diagonal.
    most_steps : int
        After so many the solution is taken as it is.

    Examples
    --------
    >>> import numpy as np
    >>> conjugate_gradients(lambda x: 2.0 * x, np.ones(3), np.ones(3), 5).tolist()
    [0.5, 0.5, 0.5]
    """
    solution = np.zeros_like(residual)
    direction = conditioner * residual
    product = first = float(np.vdot(residual, direction))
    for _ in range(most_steps):
        moved = image(direction)
        curvature = float(np.vdot(direction, moved))
        if not curvature > 0.0:
            break
        length = product / curvature
        solution = solution + length * direction
        residual = residual - length * moved
        preconditioned = conditioner * residual
        following = float(np.vdot(residual, preconditioned))
        if not following > _TOLERANCE**2 * first:
            break
        direction = preconditioned + (following / product) * direction
        product = following
    return solution
