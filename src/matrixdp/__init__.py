"""Differential privacy for matrix-valued queries.

Say what one record can change and what is to be guaranteed; get the least Gaussian noise that
guarantees it.

Mechanisms and what they release
    `IMGM`, `MatrixMechanism`, `Mechanism`, `Release`, `WorkloadRelease`, `ReleaseKey`
Budgets and guarantees
    `Budget`, `PrivacyFilter`, `Guarantee`, `privacy_mu`, `privacy_delta`, `privacy_epsilon`,
    `plan_for_budget`, `plan_for_error`
What one record can change
    `FrobeniusBall`, `SymmetricBall`, `RowBounds`, `RowBox`
The shape of the noise
    `Isotropic`, `SymmetricIsotropic`, `Diagonal`, `Kronecker`
Errors
    `MatrixDPError`, `InvalidParameterError`, `BudgetExceededError`; all of them in `errors`
One level down
    `workloads` (linear queries and their best strategies), `privacy` (accountants, composition,
    Rényi divergences, claims), `baselines` (what IMGM is compared with), `audit` (what a claim or a
    mechanism is really worth), `postprocess` (free accuracy), `sensitivity`, `covariance`,
    `queries`, `ledger` (budgets that survive), `noise` (exact noise by itself), `files` (files
    larger than memory, saved strategies), `report` (a page for the person who signs); with an
    extra `estimators` (scikit-learn's interface), `training` (private training in PyTorch) and
    `distributed` (arrays of Dask)
"""

# __init__.pyi lists what is public; a name is imported when it is used.
import lazy_loader

__getattr__, _, _names = lazy_loader.attach_stub(__name__, __file__)

# `matrixdp.training` works, but neither `from matrixdp import *` nor `help` may need an extra.
_WITH_AN_EXTRA = {"distributed", "estimators", "training"}
__all__ = [name for name in _names if name not in _WITH_AN_EXTRA]


def __dir__() -> list[str]:
    return __all__


__version__ = "0.2.0"
