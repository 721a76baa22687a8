"""Notebooks, debuggers and ``hasattr`` look at every attribute: none of them may raise."""

import inspect
import pydoc
from typing import Any

import numpy as np
import pytest

from matrixdp import (
    IMGM,
    Budget,
    Diagonal,
    FrobeniusBall,
    Isotropic,
    Kronecker,
    MatrixMechanism,
    PrivacyFilter,
    ReleaseKey,
    RowBounds,
    RowBox,
    SymmetricBall,
    SymmetricIsotropic,
    plan_for_budget,
)
from matrixdp.audit import audit_claim
from matrixdp.baselines import MVG, AnalyticGaussian, ClassicGaussian
from matrixdp.errors import NotPositiveDefiniteError
from matrixdp.postprocess import Clamp, process
from matrixdp.privacy import GaussianRelease, LossAccount
from matrixdp.queries import (
    Bins,
    Categories,
    ClippedRecords,
    ContingencyTable,
    CrossMoment,
    Features,
    GradientSum,
    Gram,
    JointMoments,
    Mean,
    PublicBounds,
    SampleCovariance,
    Sum,
)
from matrixdp.workloads import (
    Dense,
    Identity,
    Prefix,
    Product,
    ProductStrategy,
    Ranges,
    StackedStrategy,
    Total,
    Union,
    marginals,
    optimal_strategy,
)

BUDGET = Budget(1.0, 1e-5)
BALL = FrobeniusBall(1.0, neighbouring="replace")
BOUNDS = PublicBounds(2, norm=1.0)
SQUARE = np.eye(2)
PLAN = GaussianRelease(mu=0.5, neighbouring="replace")
# So ill-conditioned that no floor is proven.
FLAT = np.array([[1.0, 1.0 - 6e-15], [1.0 - 6e-15, 1.0]])


def released() -> list[Any]:
    """Return releases of every kind of noise."""
    kinds = [
        IMGM(BALL, BUDGET),
        IMGM(SymmetricBall(1.0, "replace"), BUDGET),
        IMGM(RowBounds([1.0, 2.0], "replace"), BUDGET),
        IMGM(RowBox([1.0, 2.0], "replace"), BUDGET),
        IMGM(BALL, BUDGET, Kronecker(rows=99 * SQUARE)),
        IMGM(BALL, BUDGET, Kronecker(99 * SQUARE, 99 * SQUARE)),
        MVG(BALL, BUDGET, shape=(2, 2), norm_bound=2.0),
    ]
    matrices = [mechanism.release(SQUARE) for mechanism in kinds]
    workload = MatrixMechanism(Prefix(4), BUDGET, neighbouring="replace")
    # More cells than fit in memory, so that there is no estimate of them.
    tables = MatrixMechanism(
        marginals([1000, 1000, 1000], [(0,), (1,)]), BUDGET, neighbouring="replace"
    )
    return [
        *kinds,
        *matrices,
        *(release.guarantee for release in matrices[:1]),
        process(matrices[0], Clamp(lower=0.0)),
        Mean(BOUNDS, "add-remove").release(SQUARE, BUDGET),
        workload,
        workload.release([1, 2, 3, 4]),
        workload.strategy,
        tables,
        tables.release_records([[0, 0, 0]]),
        tables.strategy,
    ]


def described() -> list[Any]:
    """Return what releases are made from, and what is said about them."""
    union = Union([Product([Prefix(3), Total(2)]), Product([Total(3), Identity(2)])])
    attributes: list[Categories | Bins] = [Categories("sex", ["F", "M"]), Bins("age", [0, 18, 65])]
    return [
        *(AnalyticGaussian(BALL, BUDGET), ClassicGaussian(BALL, BUDGET), BUDGET, BALL),
        *(Isotropic(1.0), SymmetricIsotropic(1.0), Diagonal([[1.0, 2.0]])),
        *(Kronecker(FLAT, SQUARE), Kronecker(columns=FLAT)),
        *(RowBounds([1.0, 2.0], "replace"), RowBox([1.0, 2.0], "replace")),
        *(PrivacyFilter(BUDGET, neighbouring="replace"), ReleaseKey.generate()),
        *(plan_for_budget(BUDGET, rows=2, columns=3, sensitivity=1.0), LossAccount([PLAN]), PLAN),
        audit_claim(1.0, 1.0, epsilon=1.0, delta=1e-5),
        *(Dense(SQUARE), Identity(3), Prefix(3), Ranges(3), Total(3), union),
        *(optimal_strategy(union, neighbouring="add-remove"), BOUNDS, *attributes),
        StackedStrategy([ProductStrategy([SQUARE]), ProductStrategy([2 * SQUARE])]),
        *(ContingencyTable(attributes, "replace"), ClippedRecords(BOUNDS, "replace")),
        *(Sum(BOUNDS, "replace"), Mean(BOUNDS, "replace", 5), Gram(BOUNDS, "replace")),
        *(JointMoments(BOUNDS, BOUNDS, "replace"), CrossMoment(BOUNDS, BOUNDS, "replace")),
        *(SampleCovariance(BOUNDS, "replace", 5), Features(BOUNDS, "replace", 5)),
        GradientSum([(2, 3)], 1.0, "replace"),
    ]


@pytest.mark.parametrize("value", [*released(), *described()], ids=lambda each: type(each).__name__)
def test_every_attribute_can_be_looked_at(value: Any) -> None:
    for name in dir(value):
        getattr(value, name)
    assert inspect.getmembers(value)
    assert repr(value)
    assert pydoc.render_doc(value)


def test_a_floor_that_is_not_proven_is_none() -> None:
    covariance = Kronecker(FLAT, SQUARE)
    assert covariance.floor is None
    with pytest.raises(NotPositiveDefiniteError, match="too ill-conditioned"):
        covariance.proven_floor()
    proven = Kronecker(SQUARE, SQUARE)
    assert proven.floor == proven.proven_floor()
