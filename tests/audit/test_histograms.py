"""The auditor takes a Matrix Mechanism as it takes any other."""

from typing import Any

import numpy as np
import pytest

from matrixdp import Budget, MatrixMechanism, Mechanism, WorkloadRelease
from matrixdp.audit import (
    audit_mechanism,
    exposed_difference,
    release_sampler,
    simulation_sampler,
)
from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.files import release_npy
from matrixdp.noise import simulation_generator
from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.workloads import Identity, Prefix, Product

BUDGET = Budget(2.0, 1e-5)


def mechanism(relation: Neighbouring) -> Mechanism[WorkloadRelease]:
    return MatrixMechanism(Prefix(6), BUDGET, neighbouring=relation)


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
def test_it_passes_and_too_much_change_is_caught(relation: Neighbouring) -> None:
    made = mechanism(relation)
    change, histogram = exposed_difference(made, (6,)), np.full(6, 5.0)
    draw = simulation_sampler(made, simulation_generator(3))
    found = audit_mechanism(made, histogram, histogram + change, draw, samples=1500)
    assert not found.refuted
    assert found.mu > 0.25 * made.guarantee.mu
    # Two records at once are more than the claim covers.
    assert audit_mechanism(made, histogram, histogram + 2 * change, draw, samples=1500).refuted


def test_exact_answers_can_be_drawn() -> None:
    draw = release_sampler(mechanism("replace"))
    assert draw(np.ones(6)).shape == (6,)
    assert np.any(draw(np.ones(6)) != draw(np.ones(6)))


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
def test_the_hardest_record_is_as_far_away_as_the_sensitivity_says(relation: Neighbouring) -> None:
    workload = Product([Prefix(3), Identity(2)])
    made = MatrixMechanism(workload, BUDGET, neighbouring=relation)
    for shape in ((6,), (3, 2)):
        change = exposed_difference(made, shape)
        assert change.shape == shape
        assert np.sum(change) == (1.0 if relation == "add-remove" else 0.0)
        assert np.sum(np.abs(change)) == (1.0 if relation == "add-remove" else 2.0)
        after, before = np.maximum(change, 0.0).ravel(), np.maximum(-change, 0.0).ravel()
        apart = np.linalg.norm(made.strategy.measure(after) - made.strategy.measure(before))
        assert apart == pytest.approx(made.sensitivity.bound, rel=1e-5)


@pytest.mark.parametrize("shape", [(5,), (6, 1), (2, 3), ()])
def test_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match="not that of a histogram"):
        exposed_difference(mechanism("replace"), shape)


def test_its_measurements_are_not_read_from_a_file(tmp_path: Any) -> None:
    np.save(tmp_path / "in.npy", np.zeros((6, 1)))
    made: Any = mechanism("add-remove")
    with pytest.raises(InvalidParameterError, match="answers queries on a histogram"):
        release_npy(made, tmp_path / "in.npy", tmp_path / "out.npy")
    assert not (tmp_path / "out.npy").exists()
