"""Directional noise rests on a stated floor: what is believed is true, however ill-conditioned."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flint import acb_mat, arb, arb_mat, ctx
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from matrixdp import (
    IMGM,
    Budget,
    FrobeniusBall,
    Guarantee,
    InvalidParameterError,
    Isotropic,
    Kronecker,
    Release,
    RowBounds,
)
from matrixdp.errors import (
    CalibrationError,
    FileFormatError,
    MatrixDPError,
    NotPositiveDefiniteError,
)
from matrixdp.mechanisms.proof import NoiseProof

BUDGET = Budget(1.0, 1e-5)
BALL = FrobeniusBall(1.0, neighbouring="replace")


def smallest_eigenvalue(matrix: NDArray[np.float64]) -> arb:
    """Return the smallest eigenvalue of a symmetric float matrix, enclosed in 400 bits."""
    saved, ctx.prec = ctx.prec, 400
    try:
        # Equal eigenvalues, to the last bit, need the slower algorithm.
        values = acb_mat(arb_mat(matrix.tolist())).eig(multiple=True)
        smallest: arb = min((value.real for value in values), key=lambda ball: float(ball.mid()))
        return smallest
    finally:
        ctx.prec = saved


def true_mu(ball: FrobeniusBall, covariance: Kronecker) -> arb:
    """Return ``bound / sigma_min``, enclosed; infinite for noise that is not positive definite."""
    smallest = smallest_eigenvalue(np.asarray(covariance.rows))
    return arb(ball.bound) / smallest.sqrt() if smallest > 0 else arb("inf")


def rotation(size: int, seed: int) -> NDArray[np.float64]:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((size, size)))[0]


def one_sided(size: int, smallest: float, seed: int) -> Kronecker:
    """Return noise whose eigenvalues are 1, ..., 1 and the smallest, in random directions."""
    turned = rotation(size, seed)
    matrix = turned @ np.diag([*np.ones(size - 1), smallest]) @ turned.T
    return Kronecker(rows=(matrix + matrix.T) / 2)


def claim(covariance: Kronecker, mu: float, **more: Any) -> Release:
    return Release(
        value=np.zeros((len(np.asarray(covariance.rows)), 2)),
        sensitivity=BALL,
        covariance=covariance,
        guarantee=Guarantee.of_mu(mu, delta=1e-5, neighbouring="replace"),
        mechanism="IMGM",
        **more,
    )


def hardly_resolved() -> list[Kronecker]:
    """Return noise with eigenvalues 1, 1 and about 4e-15, as far as it is proven positive."""
    found = []
    for seed in range(10):
        for smallest in (4e-15, 5e-15, 6e-15):
            with suppress(NotPositiveDefiniteError):
                found.append(one_sided(3, smallest, seed).scaled(4e7))
    assert found
    return found


@pytest.mark.parametrize("share", [0.55, 0.75, 0.9, 0.99])
def test_a_forged_claim_is_not_believed(share: float) -> None:
    for covariance in hardly_resolved():
        mu = float(true_mu(BALL, covariance).mid())
        claims: list[dict[str, Any]] = [
            *({}, {"floor": covariance.smallest_singular_value}),
            *({"floor": 1.0 / mu}, {"floor": 1.0 / (share * mu)}),
        ]
        for more in claims:
            with pytest.raises(InvalidParameterError):
                claim(covariance, share * mu, **more)


@settings(max_examples=80)
@given(
    size=st.integers(2, 5),
    smallest=st.floats(-15.5, 0.0).map(lambda power: 10.0**power),
    seed=st.integers(0, 1000),
    share=st.floats(0.5, 1.5),
    floor_share=st.floats(0.5, 1.5),
)
def test_whatever_is_believed_is_true(
    size: int, smallest: float, seed: int, share: float, floor_share: float
) -> None:
    try:
        covariance = one_sided(size, smallest, seed)
        covariance = covariance.scaled(
            1.0 / float(smallest_eigenvalue(np.asarray(covariance.rows)).sqrt().mid())
        )
    except MatrixDPError:
        return
    true = true_mu(BALL, covariance)
    claims: list[dict[str, Any]] = [{}, {"floor": floor_share}, {"floor": 1.0 / share}]
    for more in claims:
        try:
            release = claim(covariance, share, **more)
        except MatrixDPError:
            continue
        assert bool(true <= arb(release.guarantee.mu))
        assert release.floor is not None
        assert Fraction(BALL.bound) <= Fraction(release.floor) * Fraction(release.guarantee.mu)


@settings(max_examples=40)
@given(
    size=st.integers(2, 5),
    smallest=st.floats(-15.5, 0.0).map(lambda power: 10.0**power),
    seed=st.integers(0, 1000),
)
def test_whatever_a_mechanism_promises_is_true(size: int, smallest: float, seed: int) -> None:
    try:
        covariance = one_sided(size, smallest, seed).rescaled_for(BALL, BUDGET)
    except MatrixDPError:
        return
    mechanism = IMGM(BALL, BUDGET, covariance)
    release = mechanism.release(np.zeros((size, 2)))
    assert mechanism.mu == release.guarantee.mu <= BUDGET.mu
    assert bool(true_mu(BALL, covariance) <= arb(release.guarantee.mu))
    # The margin for other processors: as much again as this one left unproven, three times.
    proven, floor = covariance.smallest_singular_value, release.floor
    estimate = float(np.min(covariance.eigenbasis_scales))
    assert floor is not None
    assert Fraction(BALL.bound) <= Fraction(floor) * Fraction(release.guarantee.mu)
    assert floor <= proven - 2.9 * (estimate - proven)
    assert floor >= 0.7 * estimate


def test_noise_that_is_not_resolved_is_refused_with_the_way_out() -> None:
    for covariance in hardly_resolved():
        with pytest.raises(NotPositiveDefiniteError, match="add variance"):
            covariance.rescaled_for(BALL, BUDGET)
        with pytest.raises(NotPositiveDefiniteError, match="add variance"):
            IMGM(BALL, BUDGET, covariance.scaled(1e9))


def test_a_floor_that_does_not_belong_there_is_refused() -> None:
    directional = Kronecker(25.0 * np.eye(3), np.eye(2))
    rows = RowBounds([1.0, 1.0, 1.0], neighbouring="replace")
    for sensitivity, covariance, floor, message in (
        (BALL, directional, 5.1, "floor=5.1"),
        (BALL, directional, -1.0, "floor"),
        (BALL, directional, float("nan"), "floor"),
        (BALL, Isotropic(5.0), 4.0, "no floor"),
        (rows, directional, 4.0, "no floor"),
    ):
        with pytest.raises(InvalidParameterError, match=message):
            NoiseProof(sensitivity, covariance, floor)
    with pytest.raises(InvalidParameterError, match="mu="):
        claim(Kronecker(rows=25.0 * np.eye(3)), 0.2, floor=4.9)
    assert claim(Kronecker(rows=25.0 * np.eye(3)), 0.25, floor=4.5).floor == 4.5


def saved(folder: Path, covariance: Kronecker) -> Path:
    target = folder / "out.npy"
    IMGM(BALL, BUDGET, covariance).release(np.zeros((len(np.asarray(covariance.rows)), 2))).save(
        target
    )
    return target


def edited(target: Path, **changes: Any) -> None:
    beside = target.with_name(target.name + ".json")
    statement = json.loads(beside.read_text())
    for name, value in changes.items():
        if value is None:
            statement.pop(name, None)
        else:
            statement[name] = value
    beside.write_text(json.dumps(statement))


def stated(mu: float) -> dict[str, Any]:
    """Return what a statement says of a guarantee."""
    promise = Guarantee.of_mu(mu, delta=1e-5, neighbouring="replace")
    return {
        "guarantee": {
            "epsilon": promise.epsilon,
            "delta": promise.delta,
            "mu": promise.mu,
            "neighbouring": "replace",
            "records": 1,
        },
        "in_words": str(promise),
    }


def test_the_floor_is_saved_and_checked(tmp_path: Path) -> None:
    covariance = one_sided(4, 1e-6, 3).rescaled_for(BALL, BUDGET)
    target = saved(tmp_path, covariance)
    loaded = Release.load(target)
    assert loaded.floor == IMGM(BALL, BUDGET, covariance).release(np.zeros((4, 2))).floor
    assert Release.verify(target) == loaded.guarantee
    assert loaded.floor is not None
    edited(target, floor=loaded.floor * 1.01)
    for read in (Release.load, Release.verify):
        with pytest.raises(FileFormatError, match="floor"):
            read(target)


ELSEWHERE = """
import sys
from matrixdp import Release
for path in sys.argv[1:]:
    print(Release.verify(path).mu)
"""


def test_ill_conditioned_noise_is_proven_by_other_processors_too(tmp_path: Path) -> None:
    # Another kernel of the linear algebra has other last digits; 1e-13 leaves few that count.
    paths, promised = [], []
    for size in (2, 3, 5, 20):
        for seed in range(4):
            # Which of them is too close to singular depends on the last digits here, too.
            with suppress(NotPositiveDefiniteError, CalibrationError):
                covariance = one_sided(size, 1e-13, seed).rescaled_for(BALL, BUDGET)
                release = IMGM(BALL, BUDGET, covariance).release(np.zeros((size, 1)))
                paths.append(tmp_path / f"{size}-{seed}.npy")
                release.save(paths[-1])
                promised.append(repr(release.guarantee.mu))
    assert paths
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, *paths],
        env=os.environ | {"OPENBLAS_CORETYPE": "Prescott", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == promised
