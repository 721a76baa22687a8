"""Every strategy is asked through one interface, whatever implements it."""

from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import ArrayLike

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.workloads import (
    Identity,
    Prefix,
    Product,
    ProductStrategy,
    ResidualStrategy,
    StackedStrategy,
    Strategy,
    Total,
    Union,
    Workload,
)

UNION = Union([Product([Prefix(2), Total(3)]), Product([Total(2), Prefix(3)])])
PRODUCT = ProductStrategy([np.tri(2), np.eye(3) / 3])
WEIGHTED = ProductStrategy([np.tri(2), np.eye(3)], np.arange(1.0, 7.0).reshape(2, 3) / 7)
STACK = StackedStrategy(
    [
        ProductStrategy([np.tri(2) / 3, np.ones((1, 3))]),
        ProductStrategy([np.ones((1, 2)), np.eye(3)]),
    ]
)
RESIDUAL = ResidualStrategy([2, 3], [(), (0,), (1,), (0, 1)], [0.5, 1.0, 0.75, 0.25])
STRATEGIES: dict[str, Strategy] = {
    "product": PRODUCT,
    "weighted": WEIGHTED,
    "stack": STACK,
    "residual": RESIDUAL,
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_named_arrays_are_the_whole_strategy(name: str) -> None:
    strategy = STRATEGIES[name]
    again = type(strategy).from_named_arrays(strategy.named_arrays())
    assert again.kind == strategy.kind
    np.testing.assert_array_equal(again.written_out(), strategy.written_out())
    for relation in ("add-remove", "replace"):
        assert again.sensitivity(relation) == strategy.sensitivity(relation)


def test_kinds_and_exactness_differ_between_implementations() -> None:
    assert {name: strategy.kind for name, strategy in STRATEGIES.items()} == {
        "product": "product",
        "weighted": "product",
        "stack": "stack",
        "residual": "residual",
    }
    assert RESIDUAL.errors_are_exact
    assert PRODUCT.errors_are_exact
    assert not STACK.errors_are_exact


FACTOR = np.eye(2)
ARRAYS: dict[str, ArrayLike] = {
    "residual_dimensions": [2.0, 3.0],
    "residual_sets": [[0.0, 1.0]],
    "residual_weights": [1.0],
}


@pytest.mark.parametrize(
    ("kind", "arrays"),
    [
        (ProductStrategy, {}),
        (ProductStrategy, {"factor_1": FACTOR}),
        (ProductStrategy, {"factor_0": FACTOR, "factor_2": FACTOR}),
        (ProductStrategy, {"factor_0": FACTOR, "other": FACTOR}),
        (ProductStrategy, {"factor_0": FACTOR, "weights": np.ones(3)}),
        (ProductStrategy, {"part_0_factor_0": FACTOR}),
        (StackedStrategy, {}),
        (StackedStrategy, {"factor_0": FACTOR}),
        (StackedStrategy, {"part_1_factor_0": FACTOR}),
        (StackedStrategy, {"part_0_factor_0": FACTOR, "part_0_weights": FACTOR}),
        (StackedStrategy, {"part_0_factor_0": FACTOR, "part_1_factor_1": FACTOR}),
        (StackedStrategy, {"part_0_factor_0": FACTOR, "part_00_factor_0": FACTOR}),
        (ResidualStrategy, {}),
        (ResidualStrategy, ARRAYS | {"weights": [1.0]}),
        (ResidualStrategy, ARRAYS | {"residual_dimensions": [2.0]}),
        (ResidualStrategy, ARRAYS | {"residual_dimensions": [2.5, 3.0]}),
        (ResidualStrategy, ARRAYS | {"residual_dimensions": [2.0, np.inf]}),
        (ResidualStrategy, ARRAYS | {"residual_dimensions": ["2", "3"]}),
        (ResidualStrategy, ARRAYS | {"residual_sets": [[0.0, 0.5]]}),
        (ResidualStrategy, ARRAYS | {"residual_sets": [0.0, 1.0]}),
        (ResidualStrategy, ARRAYS | {"residual_weights": [-1.0]}),
        (ResidualStrategy, ARRAYS | {"residual_weights": [1.0, 1.0]}),
    ],
)
def test_arrays_of_something_else_are_refused(
    kind: type[Strategy], arrays: Mapping[str, ArrayLike]
) -> None:
    with pytest.raises((InvalidParameterError, ShapeError)):
        kind.from_named_arrays(arrays)


@pytest.mark.parametrize("workload", [UNION, Product([Identity(2), Prefix(3)])], ids=repr)
def test_the_error_is_the_sum_of_the_variances(workload: Workload) -> None:
    for strategy in STRATEGIES.values():
        if strategy.kind == "stack" and len(workload.terms()) == 1:
            continue  # a stack answers unions of as many products
        strategy.check_supports(workload)
        variances = strategy.query_variances(workload)
        assert variances.shape == (workload.rows,)
        assert strategy.squared_error(workload) == pytest.approx(variances.sum(), rel=1e-12)


def test_the_interface_itself_is_not_a_strategy() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Strategy()  # type: ignore[abstract]
