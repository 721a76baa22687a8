"""The base of every private estimator: its parameters, its bounds, and the warnings of its fits."""

import warnings
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from matrixdp.errors import InvalidParameterError
from matrixdp.estimators.counted_fits import CountedFits
from matrixdp.estimators.inputs import checked_features
from matrixdp.estimators.public_features import PublicFeatures, box_by_name, largest_row_norm
from matrixdp.mechanisms.release import Release
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.composition import composed_mu
from matrixdp.privacy.guarantee import Guarantee, HasGuarantee, Neighbouring, checked_neighbouring

__all__ = [
    "CHECKS_FAILED_BY_NOISE",
    "PrivacyLeakWarning",
    "PrivateEstimator",
    "PrivateTransformer",
    "warn_of_leak",
]


FloatArray = NDArray[np.float64]

# Norms that are taken from the data. Bounds may be from 1e-100 to 1e100; this leaves room for those
# that estimators derive from the norm: of constants, targets and joined rows.
_SHORTEST, _LONGEST = 1e-90, 1e90

_FRESH = "two fits on the same records have different noise, and no seed can make it the same"
_ACCURACY = "asks for accuracy on so few records that noise at epsilon=1 does not allow it"

CHECKS_FAILED_BY_NOISE = {
    "check_classifier_data_not_an_array": _FRESH,
    "check_fit_idempotent": _FRESH,
    "check_pipeline_consistency": _FRESH,
    "check_regressor_data_not_an_array": _FRESH,
    "check_regressors_int": _FRESH,
    "check_supervised_y_2d": _FRESH,
    "check_transformer_data_not_an_array": _FRESH,
    "check_transformer_general": _FRESH,
    "check_classifiers_train": _ACCURACY,
    "check_regressors_train": _ACCURACY,
}
"""Names of checks and why they fail, for ``check_estimator(..., expected_failed_checks=...)``."""


class PrivacyLeakWarning(UserWarning):
    """Something was taken from the data without privacy; the message names it."""


def warn_of_leak(leak: str, parameter: str) -> None:
    """Warn that something leaks, and say which parameter prevents it.

    Parameters
    ----------
    leak : str
        What is taken from the data, in words; never its value.
    parameter : str
        What to pass instead.
    """
    warnings.warn(
        f"{leak} is taken from the data and leaks, so that guarantee_ is None: pass {parameter}, "
        "chosen without looking at the data",
        PrivacyLeakWarning,
        stacklevel=4,
    )


class PrivateEstimator(CountedFits, BaseEstimator):
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
        self, fitted: Self, records: FloatArray, leaks: list[str], *, rescale: bool = True
    ) -> PublicFeatures:
        """Return the public map of features; a norm that is not given is taken from the data."""
        columns = records.shape[1]
        if self.data_norm is not None or self.bounds is not None:
            box = box_by_name(self.bounds, getattr(fitted, "feature_names_in_", None))
            return PublicFeatures.of(columns, self.data_norm, box, rescale=rescale)
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

    def _unfitted(self) -> Self:
        """Return an estimator with the same parameters for a fit to set its results on."""
        self._earlier_fits()
        blank = object.__new__(type(self))
        # By scikit-learn's convention, what ends in an underscore is a result of a fit.
        blank.__dict__ = {
            name: value for name, value in vars(self).items() if not name.endswith("_")
        }
        return blank

    def _publish(
        self, fitted: Self, budget: Budget, releases: Sequence[Release], leaks: list[str]
    ) -> Self:
        """Take over all results of a finished fit and what they guarantee; return the estimator.

        In one assignment: a fit that fails or is interrupted leaves the old results with the old
        guarantee, and never a mixture of two fits.
        """
        fitted.leaks_ = tuple(leaks)
        # A claim about releases whose bounds come from the data would not be one about the data.
        fitted.guarantee_ = None if leaks else self._together(budget, releases)
        self.__dict__ = fitted.__dict__
        return self

    def _together(self, budget: Budget, releases: Iterable[HasGuarantee]) -> Guarantee:
        mu = composed_mu(release.guarantee.mu for release in releases)
        return Guarantee.of_budget(budget, mu=mu, neighbouring=self.neighbouring)

    def _new_records(self, X: Any) -> FloatArray:
        """Return records to apply the fitted model to."""
        return checked_features(self, X, reset=False)


class PrivateTransformer(PrivateEstimator):
    """An estimator that others may follow in a `PrivatePipeline`."""

    @abstractmethod
    def width_passed_on(self, width: int) -> int:
        """Return how many columns ``transform`` gives for records of so many."""

    @abstractmethod
    def rows_passed_on(self, X: Any) -> FloatArray:
        """Return what the next step is fitted to: transformed records, first moved within bounds.

        A row for each record, finite, and a function of it alone, to the last bit.
        """
