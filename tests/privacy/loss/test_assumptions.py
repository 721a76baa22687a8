"""The assumptions of accounts about numpy and SciPy hold."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy
from flint import arb, ctx

from matrixdp.privacy.loss.one_step import MASS_ROUNDING
from matrixdp.privacy.loss.points import NODES, WEIGHTS
from matrixdp.privacy.loss.transform import transform_error
from reference.ball import normal_tail

UNIT = 2.0**-53


@pytest.fixture(autouse=True, scope="module")
def _precise() -> Iterator[None]:
    former, ctx.prec = ctx.prec, 300
    yield
    ctx.prec = former


# numpy's function, the same in ball arithmetic, and points; flint has no types.
FUNCTIONS: dict[str, tuple[Any, Any, Any]] = {
    "exp": (np.exp, lambda x: x.exp(), np.linspace(-700.0, 700.0, 4001)),
    "expm1": (np.expm1, lambda x: x.exp() - 1, np.geomspace(1e-12, 40.0, 2001)),
    "log": (np.log, lambda x: x.log(), np.geomspace(1e-300, 1e300, 2001)),
    "log1p": (np.log1p, lambda x: (1 + x).log(), np.geomspace(1e-12, 1e6, 2001)),
    "sin": (np.sin, lambda x: x.sin(), np.linspace(1e-6, 0.6, 2001)),
    "arcsinh": (np.arcsinh, lambda x: x.asinh(), np.geomspace(1e-12, 1e6, 2001)),
    "arctan": (lambda x: np.arctan2(x, 1.0), lambda x: x.atan(), np.geomspace(1e-12, 1e6, 2001)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_as_accurate_as_assumed(name: str) -> None:
    function, exact, numbers = FUNCTIONS[name]
    for number, found in zip(numbers.tolist(), function(numbers).tolist(), strict=True):
        truth = exact(arb(number))
        assert bool(abs(arb(found) - truth) <= abs(truth) * arb(8.0 * UNIT))


def test_waves_are_as_accurate_as_assumed() -> None:
    angles = np.linspace(0.0, 1e6, 4001)
    for angle, found in zip(angles.tolist(), np.exp(-1j * angles).tolist(), strict=True):
        assert bool(abs(arb(found.real) - arb(angle).cos()) <= 8.0 * UNIT)
        assert bool(abs(arb(found.imag) + arb(angle).sin()) <= 8.0 * UNIT)


def test_normal_probabilities_are_as_accurate_as_assumed() -> None:
    ends = np.linspace(-90.0, 20.0, 2001)
    for end, found in zip(ends.tolist(), scipy.special.log_ndtr(ends).tolist(), strict=True):
        ratio = arb(found).exp() / normal_tail(-arb(end))
        assert bool(abs(ratio - 1) <= MASS_ROUNDING + 2e-15 * end * end)


def test_the_rule_is_as_accurate_as_assumed() -> None:
    for k, (node, weight) in enumerate(zip(NODES, WEIGHTS, strict=True)):
        root, exact = arb.legendre_p_root(len(NODES), len(NODES) - 1 - k, weight=True)
        assert bool(abs(arb(float(node)) - root) <= UNIT)
        assert bool(abs(arb(float(weight)) - exact) <= exact * arb(UNIT))


@pytest.mark.parametrize("size", [2**8, 3 * 2**9, 2**14, 3 * 2**14, 2**17])
@pytest.mark.parametrize("kind", ["random", "one point", "smooth", "steep"])
def test_the_transform_is_as_accurate_as_assumed(size: int, kind: str) -> None:
    random = np.random.default_rng(size)
    numbers = np.arange(size)
    masses = {
        "random": random.random(size),
        "one point": (numbers == size // 3).astype(float),
        "smooth": np.exp(-0.5 * ((numbers - size / 2) / 20.0) ** 2),
        "steep": np.exp(-numbers / 3.0),
    }[kind]
    masses /= masses.sum()
    truth = scipy.fft.rfft(masses.astype(np.longdouble))
    assert np.abs(np.fft.rfft(masses) - truth).max() <= transform_error(size)
