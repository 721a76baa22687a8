"""Directions for MVG's noise, estimated privately from the matrix itself."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from matrixdp.covariance.side import Side, checked_side
from matrixdp.errors import InvalidParameterError
from matrixdp.mechanisms.imgm import IMGM
from matrixdp.noise import ReleaseKey
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.privacy.payment import Payer
from matrixdp.sensitivity.sets import HasSensitivity, SensitivitySet

__all__ = ["PrivateDirections", "private_directions"]

_MOST_DIRECTIONS = 16_384  # a matrix of them takes 2 GB


@dataclass(frozen=True, eq=False)
class PrivateDirections:
    """Orthonormal directions, as columns, the strongest first; and what estimating them cost."""

    directions: NDArray[np.float64]
    guarantee: Guarantee


def private_directions(
    matrix: Any,
    sensitivity: SensitivitySet | HasSensitivity,
    budget: Budget,
    *,
    side: Side = "rows",
    key: ReleaseKey | None = None,
    privacy_filter: Payer | None = None,
) -> PrivateDirections:
    """Return the singular vectors of a private release of the matrix.

    The matrix is released with `IMGM`; its left (rows) or right (columns) singular vectors are
    post-processing. To direct MVG's noise by them, split the budget and pay for both.

    Parameters
    ----------
    matrix : ndarray, list of lists, pandas or polars DataFrame
        As for `IMGM.release`.
    sensitivity : FrobeniusBall, SymmetricBall, RowBounds or RowBox; or a query
        What one record can change.
    budget : Budget
        What the estimate may cost.
    side : {"rows", "columns"}, optional
        Which side of the matrix the directions are for, of at most 16,384; the other may be longer.
    key : ReleaseKey, optional
        By default a fresh one from the operating system; a given one is spent.
    privacy_filter : PrivacyFilter or LedgerAccount, optional
        Pays, as in `IMGM.release`.

    Notes
    -----
    *Guarantee:* the directions cost the budget's mu under the set's relation, as post-processing of
    an exact release: what `IMGM` guarantees for that budget. Together with a release of the other
    part of a split budget they cost the whole budget, since mu squared adds up whatever the second
    release makes of the first (see `Budget.split`).

    Examples
    --------
    >>> import numpy as np
    >>> import matrixdp as mdp
    >>> matrix = np.outer([3.0, 4.0], [1.0, 0.0, 0.0])
    >>> ball = mdp.FrobeniusBall(0.01, neighbouring="replace")
    >>> first, second = mdp.Budget(1.0, 1e-5).split([1, 4])
    >>> found = mdp.baselines.private_directions(matrix, ball, first)
    >>> mechanism = mdp.baselines.MVG(
    ...     ball, second, shape=(2, 3), norm_bound=5.0, directions=found.directions,
    ...     precision=mdp.baselines.binary_precision(2, important=[0], share=0.9),
    ... )
    >>> release = mechanism.release(matrix)
    >>> spent = mdp.privacy.composed_mu([found.guarantee.mu, release.guarantee.mu])
    >>> spent <= mdp.Budget(1.0, 1e-5).mu
    True
    """
    left = checked_side(side) == "rows"
    mechanism = IMGM(sensitivity, budget)
    # Before the release: a matrix with too many directions must not cost anything.
    size = mechanism.checked(matrix).array.shape[0 if left else 1]
    if not size <= _MOST_DIRECTIONS:
        raise InvalidParameterError(
            f"side={side!r} has {size} directions of as many numbers each, more than "
            f"{_MOST_DIRECTIONS}: direct the noise of the other side"
        )
    release = mechanism.release(matrix, key=key, privacy_filter=privacy_filter)
    # From here on only the release is used, so nothing costs any more.
    noisy = np.asarray(release.value, dtype=np.float64)
    sided = noisy if left else noisy.T
    # A tall matrix has fewer singular vectors than directions; full_matrices completes the basis.
    vectors, _, _ = scipy.linalg.svd(sided, full_matrices=sided.shape[0] > sided.shape[1])
    return PrivateDirections(np.asarray(vectors), release.guarantee)
