"""What every private estimator does: check its parameters, then take bounds, then spend once."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from matrixdp.errors import InvalidParameterError
from matrixdp.estimators.inputs import checked_features
from matrixdp.estimators.leaks import warn_of_leak
from matrixdp.estimators.public_features import PublicFeatures, largest_row_norm
from matrixdp.estimators.spending import warn_of_repeated_spending
from matrixdp.mechanisms.release import Release
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.composition import composed_mu
from matrixdp.privacy.guarantee import Guarantee, Neighbouring, checked_neighbouring

__all__ = ["PrivateEstimator"]

FloatArray = NDArray[np.float64]

# Norms that are taken from the data. Bounds may be from 1e-100 to 1e100; this leaves room for those
# that estimators derive from the norm: of constants, targets and joined rows.
_SHORTEST, _LONGEST = 1e-90, 1e90


class PrivateEstimator(BaseEstimator):
    """The parameters that all estimators have, and what becomes of them in a fit.

    Attributes
    ----------
    guarantee_ : Guarantee or None
        What all releases of the last fit guarantee together; None if `leaks_` is not empty.
    leaks_ : tuple of str
        What was taken from the data without privacy.
    """

    epsilon: float
    delta: float
    neighbouring: Neighbouring
    data_norm: float | None
    bounds: Any

    guarantee_: Guarantee | None
    leaks_: tuple[str, ...]
    n_features_in_: int

    def _checked_budget(self) -> Budget:
        """Return the budget, or raise if a parameter that all estimators have is wrong."""
        checked_neighbouring(self.neighbouring)
        return Budget(self.epsilon, self.delta)

    def _public_features(
        self, records: FloatArray, leaks: list[str], *, rescale: bool = True
    ) -> PublicFeatures:
        """Return the public map of features; a norm that is not given is taken from the data."""
        columns = records.shape[1]
        if self.data_norm is not None or self.bounds is not None:
            return PublicFeatures.of(columns, self.data_norm, self.bounds, rescale=rescale)
        leaks.append("the largest row norm of X")
        warn_of_leak(leaks[-1], "data_norm=... or bounds=(lower, upper)")
        norm = largest_row_norm(records)
        # Before a bound is made of it, whose own message would show it.
        if not _SHORTEST <= norm <= _LONGEST:
            raise InvalidParameterError(
                "X has records that are too long or too short for a bound: rescale them by a "
                "public constant, and pass data_norm=..."
            )
        return PublicFeatures.of(columns, norm, None)

    def _known_count(self, records: FloatArray) -> int | None:
        """Return the number of records where the relation makes it public."""
        return len(records) if self.neighbouring == "replace" else None

    def _before_release(self, budget: Budget) -> None:
        """Warn of what cannot be undone; called after every check and before the first draw."""
        warn_of_repeated_spending(budget)

    def _state(self, budget: Budget, releases: Sequence[Release], leaks: list[str]) -> None:
        """Set what the fit guarantees."""
        self.leaks_ = tuple(leaks)
        # A claim about releases whose bounds come from the data would not be one about the data.
        self.guarantee_ = None if leaks else self._together(budget, releases)

    def _together(self, budget: Budget, releases: Sequence[Release]) -> Guarantee:
        mu = composed_mu(release.guarantee.mu for release in releases)
        return Guarantee.of_budget(budget, mu=mu, neighbouring=self.neighbouring)

    def _new_records(self, X: Any) -> FloatArray:
        """Return records to apply the fitted model to."""
        return checked_features(self, X, reset=False)
