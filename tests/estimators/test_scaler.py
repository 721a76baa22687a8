"""The scaler: scikit-learn's means and deviations, where the noise is small."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="private estimators need the extra `sklearn`")

from sklearn.preprocessing import StandardScaler

from estimators.examples import records
from matrixdp.estimators import PrivateStandardScaler

BOX = {"bounds": ([-20.0, -300.0, 0.0, 4.9], [5.0, 500.0, 90.0, 6.1])}
NORM = {"data_norm": 12.0}


@pytest.mark.parametrize("relation", ["replace", "add-remove"])
@pytest.mark.parametrize(
    "bounds", [BOX, NORM, BOX | {"data_norm": 1.7}], ids=["box", "norm", "both"]
)
def test_hardly_any_noise_gives_what_scikit_learn_does(
    relation: Any, bounds: dict[str, Any]
) -> None:
    X, _ = records(4000)
    if "bounds" in bounds:
        X = X * [1.0, 80.0, 9.0, 0.1] + [-7.0, 50.0, 40.0, 5.5]
    model = PrivateStandardScaler(epsilon=1e6, neighbouring=relation, **bounds).fit(X)
    reference = StandardScaler().fit(X)
    np.testing.assert_allclose(model.mean_, reference.mean_, atol=1e-3 * reference.scale_.max())
    np.testing.assert_allclose(model.scale_, reference.scale_, rtol=2e-3)
    np.testing.assert_allclose(model.var_, model.scale_**2)
    np.testing.assert_allclose(model.transform(X), reference.transform(X), atol=0.02)
    np.testing.assert_allclose(model.inverse_transform(model.transform(X)), X, rtol=1e-9)
    assert list(model.get_feature_names_out()) == ["x0", "x1", "x2", "x3"]


def test_a_feature_without_spread_gets_the_standard_error() -> None:
    X = np.column_stack([np.full(1000, 2.0), np.linspace(-9.0, 9.0, 1000)])
    scales = [PrivateStandardScaler(bounds=(-10, 10)).fit(X).scale_ for _ in range(20)]
    # Noise of the sums of squares has a scale of 8 to 15 units of 10^2 at mu = 0.27.
    assert all(0.5 < scale[0] < 3.0 for scale in scales)
    assert np.mean([scale[1] for scale in scales]) == pytest.approx(5.2, abs=0.5)


def test_few_records_give_numbers_within_the_bounds() -> None:
    for relation in ("replace", "add-remove"):
        model = PrivateStandardScaler(epsilon=1e-3, neighbouring=relation, bounds=(2, 6)).fit(
            [[3.0]]
        )
        assert 2.0 <= model.mean_[0] <= 6.0
        assert 0.0 < model.scale_[0] <= 2.0


def test_the_scale_of_the_noise_follows_the_bounds() -> None:
    """With a norm the noise does not grow with the number of features."""
    X = np.zeros((10, 400))
    X[:, 0] = 1.0

    def spread(**bounds: Any) -> float:
        fits = [PrivateStandardScaler(epsilon=1e3, **bounds).fit(X) for _ in range(3)]
        return float(np.std([fit.mean_[1:] for fit in fits]))

    assert spread(data_norm=1.0) < 0.2 * spread(bounds=(-1, 1))
