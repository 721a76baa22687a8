"""James–Stein and Efron–Morris: their formulas, and less error whatever the truth is."""

import copy

import numpy as np
import pytest
from scipy import integrate, stats

from matrixdp import Diagonal, InvalidParameterError, Isotropic, SymmetricIsotropic
from matrixdp.errors import ShapeError
from matrixdp.postprocess import EfronMorris, JamesStein


def test_the_risk_at_the_target_is_the_exact_one() -> None:
    # With the truth at the target the squared distance is chi-squared with p degrees of freedom.
    dimension = 12

    def squared_error(distance: float) -> float:
        kept = max(1 - (dimension - 2) / distance, 0.0)
        return float(kept**2 * distance * stats.chi2.pdf(distance, dimension))

    expected = integrate.quad(squared_error, dimension - 2, 200)[0]
    rng, target, covariance = (
        np.random.default_rng(7),
        np.arange(12.0).reshape(3, 4),
        Isotropic(5.0),
    )
    step = JamesStein(target)
    errors = [
        np.sum(
            np.square(step.apply(target + 5.0 * rng.standard_normal((3, 4)), covariance) - target)
        )
        for _ in range(4000)
    ]
    spread = np.std(errors) / np.sqrt(4000)
    assert abs(np.mean(errors) - 25 * expected) < 4 * spread
    assert 25 * expected < 0.25 * 25 * dimension


@pytest.mark.parametrize("size", [0.0, 1.0, 4.0, 40.0])
def test_errors_fall_whatever_the_truth_is(size: float) -> None:
    rng = np.random.default_rng(8)
    truth = size * np.outer(np.ones(4), np.linspace(-1, 1, 9))
    covariance = Isotropic(1.0)
    gains = []
    for _ in range(1500):
        noisy = truth + rng.standard_normal(truth.shape)
        before = np.sum(np.square(noisy - truth))
        gains.append(
            [
                before - np.sum(np.square(step.apply(noisy, covariance) - truth))
                for step in (JamesStein(), EfronMorris())
            ]
        )
    spread = np.std(gains, axis=0) / np.sqrt(len(gains))
    assert (np.mean(gains, axis=0) > -2 * spread).all()
    if size < 40.0:  # far from the target James–Stein gains next to nothing
        assert (np.mean(gains, axis=0) > 4 * spread).all()


def test_symmetric_noise_has_fewer_dimensions() -> None:
    value = np.array([[3.0, 1.0], [1.0, -2.0]])
    found = JamesStein().apply(value, SymmetricIsotropic(2.0))
    # p = 3, and the squared norm is 15: 1 - (3 - 2) * 4 / 15.
    np.testing.assert_allclose(found, value * (1 - 4 / 15), rtol=1e-14)


def test_the_matrix_rule_on_known_singular_values() -> None:
    value = np.array([[6.0, 0, 0, 0, 0, 0, 0], [0, 1.0, 0, 0, 0, 0, 0]])
    found = EfronMorris().apply(value, Isotropic(1.0))
    # 7 - 2 - 1 = 4: the second value, 1 - 4/1, is below 0.
    np.testing.assert_allclose(found, np.diag([6 - 4 / 6, 0.0]) @ np.eye(2, 7), atol=1e-12)
    np.testing.assert_allclose(EfronMorris().apply(value.T.copy(), Isotropic(1.0)), found.T)


def test_the_target_is_kept_as_it_was() -> None:
    target = np.ones((2, 2))
    step = JamesStein(target)
    target[0, 0] = 9.0
    for one in (step, copy.deepcopy(step)):
        assert one.target is not None
        assert one.target[0, 0] == 1.0
        assert not one.target.flags.writeable
    # As far away as the noise calls for: all the way to the target.
    np.testing.assert_array_equal(step.apply(np.ones((2, 2)), Isotropic(1.0)), np.ones((2, 2)))


def test_bad_input_is_refused_by_name() -> None:
    with pytest.raises(ShapeError, match=r"^target has shape"):
        JamesStein([1.0, 2.0])
    with pytest.raises(InvalidParameterError, match=r"^target must be finite"):
        JamesStein([[np.nan]])
    with pytest.raises(ShapeError, match=r"^target has shape \(2, 2\), and the release \(3, 3\)"):
        JamesStein(np.ones((2, 2))).check((3, 3), Isotropic(1.0))
    with pytest.raises(InvalidParameterError, match=r"^target is not symmetric"):
        JamesStein([[0.0, 1.0], [0.0, 0.0]]).check((2, 2), SymmetricIsotropic(1.0))
    for step in (JamesStein(), EfronMorris()):
        with pytest.raises(InvalidParameterError, match="one scale"):
            step.check((2, 5), Diagonal([[1.0], [2.0]]))
        with pytest.raises(ShapeError, match="does not improve"):
            step.check((1, 2), Isotropic(1.0))
    with pytest.raises(ShapeError, match="longer than the other"):
        EfronMorris().check((5, 5), SymmetricIsotropic(1.0))
