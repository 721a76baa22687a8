"""Private estimators with the interface of scikit-learn (extra ``sklearn``).

`PrivatePCA`, `PrivateStandardScaler`, `PrivateRidge`, `PrivateRidgeClassifier`,
`PrivateLinearDiscriminantAnalysis` and `PrivateLogisticRegression`, and `PrivatePipeline`, which
joins them. See ``docs/estimators.md``.
"""

from matrixdp.errors import MissingExtraError

try:
    import sklearn as _sklearn  # noqa: F401
except ImportError:
    raise MissingExtraError(
        "private estimators need scikit-learn: pip install '.[sklearn]' in a clone of matrixdp"
    ) from None

# Below the check, since all of these import scikit-learn.
from matrixdp.estimators.base import CHECKS_FAILED_BY_NOISE, PrivacyLeakWarning
from matrixdp.estimators.counted_fits import RepeatedSpendingWarning
from matrixdp.estimators.discriminant import PrivateLinearDiscriminantAnalysis
from matrixdp.estimators.logistic import PrivateLogisticRegression
from matrixdp.estimators.pca import PrivatePCA
from matrixdp.estimators.pipeline import PrivatePipeline
from matrixdp.estimators.ridge import PrivateRidge, PrivateRidgeClassifier
from matrixdp.estimators.scaler import PrivateStandardScaler

__all__ = [
    "CHECKS_FAILED_BY_NOISE",
    "PrivacyLeakWarning",
    "PrivateLinearDiscriminantAnalysis",
    "PrivateLogisticRegression",
    "PrivatePCA",
    "PrivatePipeline",
    "PrivateRidge",
    "PrivateRidgeClassifier",
    "PrivateStandardScaler",
    "RepeatedSpendingWarning",
]


def __dir__() -> list[str]:
    return __all__
