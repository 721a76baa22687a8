"""A release passes one gate, rests on one proof, and makes one kernel."""

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matrixdp import (
    IMGM,
    Budget,
    Diagonal,
    FrobeniusBall,
    InvalidParameterError,
    Isotropic,
    Kronecker,
    Release,
    ReleaseKey,
    SymmetricBall,
)
from matrixdp.errors import ShapeError
from matrixdp.files.publishing.streamed_release import release_npy
from matrixdp.mechanisms.proof import NoiseProof, kept_proof
from matrixdp.noise import NoiseContext, kernels
from matrixdp.parameters import arrays

BUDGET = Budget(1.0, 1e-5)
BALL = FrobeniusBall(1.0, neighbouring="replace")
PAIRS = SymmetricBall(1.0, neighbouring="replace")
MECHANISMS = {
    "isotropic": lambda: IMGM(BALL, BUDGET),
    "diagonal": lambda: IMGM(BALL, BUDGET, Diagonal([[9.0], [8.0], [7.0]])),
    "symmetric": lambda: IMGM(PAIRS, BUDGET),
    "directional": lambda: IMGM(BALL, BUDGET, Kronecker(25.0 * np.eye(3), np.eye(3))),
}
every_kind = pytest.mark.parametrize("make", MECHANISMS.values(), ids=MECHANISMS)


def counted(monkeypatch: pytest.MonkeyPatch, target: Any, name: str) -> list[None]:
    """Return a list that grows with every call of a function."""
    calls: list[None] = []
    real = getattr(target, name)

    def spy(*arguments: Any, **options: Any) -> Any:
        calls.append(None)
        return real(*arguments, **options)

    monkeypatch.setattr(target, name, spy)
    return calls


@every_kind
def test_a_matrix_is_searched_once_for_what_is_not_finite(
    make: Callable[[], IMGM], monkeypatch: pytest.MonkeyPatch
) -> None:
    mechanism = make()
    searches = counted(monkeypatch, arrays, "all_within")
    mechanism.release(np.eye(3))
    assert len(searches) == 1


@every_kind
def test_noise_is_proven_once_for_all_releases(
    make: Callable[[], IMGM], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_proof.cache_clear()
    proofs = counted(monkeypatch, NoiseProof, "__init__")
    mechanism = make()
    releases = [mechanism.release(np.eye(3)) for _ in range(3)]
    assert len(proofs) == 1
    assert all(release.proof is mechanism.proof for release in releases)
    Release(
        value=releases[0].value,
        sensitivity=mechanism.sensitivity,
        covariance=mechanism.covariance,
        guarantee=mechanism.guarantee,
        mechanism="IMGM",
        floor=releases[0].floor,
    )
    assert len(proofs) == 2  # one built by hand has no mechanism to vouch for it


@every_kind
def test_a_saved_release_is_proven_once_when_it_is_loaded(
    make: Callable[[], IMGM], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make().release(np.eye(3)).save(tmp_path / "out.npy")
    proofs = counted(monkeypatch, NoiseProof, "__init__")
    Release.load(tmp_path / "out.npy")
    assert len(proofs) == 1
    Release.verify(tmp_path / "out.npy")
    assert len(proofs) == 2


@pytest.mark.parametrize("shape", [(10, 10), (200, 200)], ids=["one block", "several"])
def test_a_release_makes_one_kernel(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int]
) -> None:
    made: list[Any] = []
    real = next(iter(kernels.available_kernels().values()))

    def make() -> Any:
        made.append(real())
        return made[-1]

    monkeypatch.setattr(kernels, "available_kernels", lambda: {"counted": make})
    kept_proof.cache_clear()
    mechanism = IMGM(BALL, BUDGET)
    mechanism.prepared(np.zeros(shape))
    made.clear()
    mechanism.release(np.zeros(shape))
    assert len(made) == 1


@every_kind
def test_shapes_are_compared_once(
    make: Callable[[], IMGM], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_proof.cache_clear()
    mechanism = make()
    compared = counted(monkeypatch, type(mechanism.sensitivity), "check_shape")
    for _ in range(3):
        mechanism.release(np.eye(3))
    assert len(compared) == 1


def test_no_shape_is_taken_on_trust_after_another() -> None:
    mechanism = MECHANISMS["diagonal"]()
    mechanism.release(np.eye(3))
    for _ in range(2):
        with pytest.raises(ShapeError, match="do not fit a matrix of shape"):
            mechanism.release(np.eye(4))


@pytest.mark.parametrize("shape", [(300, 2), pytest.param((2, 300), marks=pytest.mark.thorough)])
def test_large_covariances_are_not_kept_when_their_mechanism_is_gone(
    shape: tuple[int, int],
) -> None:
    # 600 entries, but 90,000 of the larger covariance.
    rows, columns = (np.diag(np.linspace(25.0, 30.0, length)) for length in shape)
    mechanism = IMGM(BALL, BUDGET, Kronecker(rows, columns))
    mechanism.release(np.zeros(shape))
    proof = weakref.ref(mechanism.proof)
    del mechanism
    gc.collect()
    assert proof() is None


def test_independent_noise_on_a_ball_is_prepared_once_for_matrices_of_any_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept_proof.cache_clear()
    contexts = counted(monkeypatch, NoiseContext, "of_scales")
    for _ in range(3):  # also by mechanisms that are equal
        IMGM(BALL, BUDGET).release(np.zeros((300, 300)))
    assert len(contexts) == 1


def test_a_number_for_each_entry_is_not_kept_when_the_mechanism_is_gone() -> None:
    mechanism = IMGM(BALL, BUDGET, Diagonal(np.full((300, 300), 9.0)))
    mechanism.release(np.zeros((300, 300)))
    proof = weakref.ref(mechanism.proof)
    del mechanism
    gc.collect()
    assert proof() is None


@pytest.mark.parametrize(
    "covariance", [None, Isotropic(9.0), Diagonal(np.full((2, 2), 9.0)), Diagonal([[9.0, 8.0]])]
)
def test_a_symmetric_ball_takes_symmetric_matrices_only(covariance: Any) -> None:
    key = ReleaseKey.generate()
    mechanism = IMGM(PAIRS, BUDGET, covariance)
    with pytest.raises(InvalidParameterError, match="not symmetric"):
        mechanism.release(np.array([[0.0, 1.0], [2.0, 0.0]]), key=key)
    key.check_unbound()
    assert mechanism.release(np.array([[0.0, 1.0], [1.0, 0.0]])).shape == (2, 2)


def test_symmetry_is_not_taken_on_trust_from_a_file(tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", np.array([[0.0, 1.0], [2.0, 0.0]]))
    mechanism = IMGM(PAIRS, BUDGET, Isotropic(9.0))
    with pytest.raises(InvalidParameterError, match="load it and use"):
        release_npy(mechanism, tmp_path / "in.npy", tmp_path / "out.npy")


@pytest.mark.parametrize(
    ("mechanism", "largest"),
    [
        (IMGM(BALL, BUDGET, Isotropic(5.0)), 2.0**54),
        (IMGM(PAIRS, BUDGET, None), 2.0**53),
        (IMGM(BALL, BUDGET, Diagonal([[8.0, 4.0], [5.0, 6.0]])), 2.0**55),
        (IMGM(BALL, BUDGET, Kronecker(17.0 * np.eye(2), 9.0 * np.eye(2))), 2.0**55),
    ],
    ids=["isotropic", "symmetric", "diagonal", "directional"],
)
def test_entries_that_would_swallow_their_noise_are_refused(
    mechanism: IMGM, largest: float
) -> None:
    corner = np.diag([largest, 0.0])
    assert mechanism.release(corner).shape == (2, 2)
    key = ReleaseKey.generate()
    for wrong in (np.nextafter(largest, np.inf), -2.0 * largest, 2.0**80, np.inf, np.nan):
        with pytest.raises(InvalidParameterError, match="NaN or infinity, or a larger") as caught:
            mechanism.release(np.diag([wrong, 0.0]), key=key)
        assert not np.isfinite(wrong) or repr(float(wrong)) not in str(caught.value)
    key.check_unbound()
