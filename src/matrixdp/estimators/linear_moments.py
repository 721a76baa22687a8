"""The moments that linear regression needs, in one release, and the regression from them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from matrixdp.estimators.public_features import PublicFeatures
from matrixdp.estimators.spectrum import noise_norm, raised_spectrum
from matrixdp.mechanisms.release import Release
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.privacy.payment import Payer
from matrixdp.queries import JointMoments, PublicBounds

__all__ = ["LinearMoments", "release_moments"]

FloatArray = NDArray[np.float64]

_TARGET_SHARE = 0.5**0.5
"""The largest norm of targets over that of rows, in the units that are released."""


@dataclass(frozen=True)
class LinearMoments:
    """Moments of rows with a constant, and of these with targets; public.

    Attributes
    ----------
    release : Release
        What was measured.
    gram : ndarray, shape (features + 1, features + 1)
        Of rows with the constant.
    cross : ndarray, shape (features + 1, outputs)
        Of rows with the constant and targets.
    """

    release: Release
    gram: FloatArray
    cross: FloatArray

    def weights(self, penalty: FloatArray) -> FloatArray:
        """Return the weights of ridge regression, of shape (features + 1, outputs).

        ``(G + diag(penalty))^-1 C``, where eigenvalues of the Gram matrix G below the norm of its
        noise are raised to that.
        """
        gram = raised_spectrum(self.gram, noise_norm(self.release, len(self.gram)))
        return np.asarray(np.linalg.solve(gram + np.diag(penalty), self.cross))


def release_moments(
    features: PublicFeatures,
    rows: FloatArray,
    targets: FloatArray,
    *,
    neighbouring: Neighbouring,
    budget: Budget,
    count: int | None,
    privacy_filter: Payer | None = None,
) -> LinearMoments:
    """Release the joint moments of rows, a constant and targets.

    Parameters
    ----------
    features : PublicFeatures
        Where the rows come from.
    rows : ndarray, shape (records, features)
        Within the bounds of the features.
    targets : ndarray, shape (records, outputs)
        Of norm at most 1; each depends on its record alone.
    neighbouring : {"add-remove", "replace"}
        The relation.
    budget : Budget
        All of it is spent.
    count : int or None
        The number of records, where it is public.
    privacy_filter : PrivacyFilter or LedgerAccount, optional
        Pays.

    Notes
    -----
    *One release.* Let rows and targets have the norm bounds R and s R. Then joint moments change by
    at most ``sqrt(2) R^2 (1 + s^2)`` under replacing. Without the block ``Y^T Y``, which is not
    used, the change would be as large: the maximum over all pairs of records of
    ``|x x^T - x' x'^T|^2 + 2 |x y^T - x' y'^T|^2`` is ``2 R^4 (1 + s^2)^2``, at
    ``x.x' = -(s R)^2`` and y' = y. So releases of its own for the Gram matrix and the cross-moment
    are not better. Under adding and removing they would have 6 per cent less noise.

    *Units.* With target norm s R the noise has the size ``(1 + s^2) R^2 / mu`` in the Gram matrix
    and ``(1 + s^2) R / (s mu)`` in the cross-moment for targets of norm 1. An error of the weights
    is the inverse Gram matrix times ``noise_C - noise_G w``. For weights of norm 1 / R, which
    reach targets of norm 1, its variance is proportional to ``(1 + s^2)^2 (1 + 1 / s^2)``, which is
    least at ``s^2 = 1/2``.
    """
    constant, reach = features.constant, _TARGET_SHARE * features.radius
    companions = PublicBounds(1 + targets.shape[1], norm=float(np.hypot(constant, reach)))
    query = JointMoments(features.bounds, companions, neighbouring)
    joined = np.column_stack([rows, np.full(len(rows), constant), reach * targets])
    release = query.release(joined, budget, privacy_filter=privacy_filter)
    moments, size = np.array(release.value), rows.shape[1] + 1
    if count is not None:
        moments[size - 1, size - 1] = count * constant**2
    return LinearMoments(release, moments[:size, :size], moments[:size, size:] / reach)
