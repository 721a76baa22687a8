"""Files written by earlier versions are read as they were meant, or refused with a reason.

``old/`` holds what version 0.1.0 wrote: releases of schema matrixdp-release/1, strategies of
schemas matrixdp-strategy/1 and /2, and answers of schema matrixdp-answers/1.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matrixdp import (
    Box,
    FrobeniusBall,
    Isotropic,
    Kronecker,
    OneSided,
    Release,
    RowBounds,
    SymmetricBall,
)
from matrixdp.covariance import Diagonal, SymmetricIsotropic
from matrixdp.files.strategies import load_strategy
from matrixdp.mechanisms.proof import NoiseProof
from matrixdp.workloads import ProductStrategy, StackedStrategy

OLD = Path(__file__).parent / "old"
RELEASES: dict[str, tuple[Any, Any, tuple[int, int]]] = {
    "isotropic.npy": (FrobeniusBall, Isotropic, (3, 2)),
    "isotropic.npz": (FrobeniusBall, Isotropic, (3, 2)),
    "isotropic.csv": (FrobeniusBall, Isotropic, (3, 2)),
    "isotropic32.npy": (FrobeniusBall, Isotropic, (3, 2)),
    "isotropic32.csv": (FrobeniusBall, Isotropic, (3, 2)),
    "labelled.csv": (FrobeniusBall, Isotropic, (3, 2)),
    "diagonal.npy": (FrobeniusBall, Diagonal, (3, 2)),
    "symmetric.npy": (SymmetricBall, SymmetricIsotropic, (3, 3)),
    "symmetric.csv": (SymmetricBall, SymmetricIsotropic, (3, 3)),
    "rows.npz": (RowBounds, Diagonal, (3, 2)),
    "box.csv": (Box, Diagonal, (3, 3)),
    "box.npy": (Box, Diagonal, (3, 3)),
    "kronecker.npy": (FrobeniusBall, Kronecker, (3, 2)),
    "kronecker.csv": (FrobeniusBall, Kronecker, (3, 2)),
    "one_sided_columns.npy": (FrobeniusBall, OneSided, (3, 2)),
    "one_sided_rows.npz": (FrobeniusBall, OneSided, (3, 2)),
}


@pytest.mark.parametrize("name", RELEASES)
def test_old_releases_are_read(name: str) -> None:
    release = Release.load(OLD / name)
    sensitivity, covariance, shape = RELEASES[name]
    assert isinstance(release.sensitivity, sensitivity)
    assert isinstance(release.covariance, covariance)
    assert release.value.shape == shape
    assert release.value.dtype == (np.float32 if "32" in name else np.float64)
    # Directional noise is proven by this processor, whose last digits may be others.
    assert 1.0 <= release.guarantee.epsilon <= 1.0 + 1e-9
    assert release.guarantee.delta == 1e-5
    assert Release.verify(OLD / name) == release.guarantee


@pytest.mark.parametrize("name", RELEASES)
def test_old_releases_are_proven_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    proofs: list[NoiseProof] = []
    prove = NoiseProof.__init__

    def spy(proof: NoiseProof, *arguments: Any, **options: Any) -> None:
        proofs.append(proof)
        prove(proof, *arguments, **options)

    monkeypatch.setattr(NoiseProof, "__init__", spy)
    assert [Release.load(OLD / name).proof] == proofs


def test_every_old_file_is_tried() -> None:
    stated = {path.name.removesuffix(".json") for path in OLD.glob("*.json")}
    strategies = {"product.npz", "two_attributes.npz", "weighted.npz", "stacked.npz"}
    assert stated == {*RELEASES, *strategies, "answers.npy", "answers.npz"}


def test_old_numbers_are_the_same_floats() -> None:
    np.testing.assert_array_equal(
        Release.load(OLD / "isotropic32.npy").value, np.load(OLD / "isotropic32.npy")
    )
    box = Release.load(OLD / "box.csv")
    np.testing.assert_array_equal(
        box.value, np.genfromtxt(OLD / "box.csv", delimiter=",", dtype=np.float64)
    )
    assert isinstance(box.sensitivity, Box)
    assert box.sensitivity.bounds.tolist() == [0.1, 5.0, 1.0]
    assert box.sensitivity.weights.tolist() == [1.0, 2.0, 3.0]
    assert Release.load(OLD / "kronecker.npy").guarantee.mu == 0.26805112321129293


@pytest.mark.parametrize(
    ("name", "dimensions", "neighbouring"),
    [
        ("product.npz", (5,), "replace"),
        ("two_attributes.npz", (3, 2), "add-remove"),
        ("weighted.npz", (2, 3), "add-remove"),
        ("stacked.npz", (3, 4), "add-remove"),
    ],
)
def test_old_strategies_are_read(name: str, dimensions: tuple[int, ...], neighbouring: str) -> None:
    saved = load_strategy(OLD / name)
    assert isinstance(saved.strategy, StackedStrategy if name == "stacked.npz" else ProductStrategy)
    assert saved.strategy.dimensions == dimensions
    assert saved.neighbouring == neighbouring
    weighted = isinstance(saved.strategy, ProductStrategy) and saved.strategy.weights is not None
    assert weighted == (name == "weighted.npz")
    assert saved.certificate.value > saved.certificate.lower_bound > 0.0
