"""Simulated noise: seeded, right in distribution, and never mistaken for a release."""

import numpy as np
import pytest

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.noise import (
    ReleaseKey,
    SimulatedValue,
    add_noise,
    simulate_noise,
    simulation_generator,
)
from reference.normality import Normality


def test_seeds_repeat() -> None:
    one, same, other = (
        simulate_noise(np.zeros((4, 5)), 2.0, simulation_generator(seed)).array
        for seed in (1, 1, 2)
    )
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("scale", [0.5, np.linspace(0.1, 2.0, 500)[:, None]])
def test_the_distribution(scale: object) -> None:
    simulated = simulate_noise(np.full((500, 2000), 3.0), scale, simulation_generator(80))
    assert Normality().add(((simulated.array - 3.0) / scale).ravel()).smallest() > 1e-6  # type: ignore[operator]


def test_it_is_no_array_and_becomes_none() -> None:
    simulated = simulate_noise(np.zeros((4, 5), dtype=np.float32), 2.0, simulation_generator(3))
    assert isinstance(simulated, SimulatedValue)
    assert not isinstance(simulated, np.ndarray)
    assert simulated.array.dtype == np.float32
    for convert in (np.asarray, np.array, np.sum, lambda x: np.zeros((4, 5)) + x):
        with pytest.raises(InvalidParameterError, match="not a release"):
            convert(simulated)
    with pytest.raises(InvalidParameterError, match="numpy array"):
        add_noise(simulated, 1.0, ReleaseKey.generate())  # type: ignore[arg-type]


def test_nothing_is_shown() -> None:
    simulated = simulate_noise(np.full((4, 5), 123.0), 1e-9, simulation_generator(3))
    assert repr(simulated) == "SimulatedValue(shape=(4, 5), dtype='float64')"


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(InvalidParameterError, match="simulation_generator"):
        simulate_noise(np.zeros(3), 1.0, 7)  # type: ignore[arg-type]
    with pytest.raises(ShapeError):
        simulate_noise(np.zeros((3, 4)), np.ones(4), simulation_generator(1))
    with pytest.raises(InvalidParameterError, match="scale must be"):
        simulate_noise(np.zeros(3), -1.0, simulation_generator(1))


@pytest.mark.parametrize("seed", [-1, 1.5, "x", None, True])
def test_seeds_are_integers(seed: object) -> None:
    with pytest.raises(InvalidParameterError, match="seed="):
        simulation_generator(seed)
