"""Private estimators with the interface of scikit-learn (extra ``sklearn``).

`PrivatePCA`, `PrivateRidge`, `PrivateRidgeClassifier`, `PrivateLinearDiscriminant` and
`PrivateLogisticRegression`. See ``docs/estimators.md``.
"""

from matrixdp.errors import MissingExtraError

try:
    import sklearn as _sklearn  # noqa: F401
except ImportError:
    raise MissingExtraError(
        "private estimators need scikit-learn: pip install 'matrixdp[sklearn]'"
    ) from None

# Below the check, since all of these import scikit-learn.
from matrixdp.estimators.checks import CHECKS_FAILED_BY_NOISE
from matrixdp.estimators.discriminant import PrivateLinearDiscriminant
from matrixdp.estimators.leaks import PrivacyLeakWarning
from matrixdp.estimators.logistic import PrivateLogisticRegression
from matrixdp.estimators.pca import PrivatePCA
from matrixdp.estimators.ridge import PrivateRidge, PrivateRidgeClassifier
from matrixdp.estimators.spending import RepeatedSpendingWarning

__all__ = [
    "CHECKS_FAILED_BY_NOISE",
    "PrivacyLeakWarning",
    "PrivateLinearDiscriminant",
    "PrivateLogisticRegression",
    "PrivatePCA",
    "PrivateRidge",
    "PrivateRidgeClassifier",
    "RepeatedSpendingWarning",
]
