"""Saved releases for reports."""

from pathlib import Path

import numpy as np
import pytest

from matrixdp import IMGM, Budget, FrobeniusBall, MatrixMechanism, Release, RowBox
from matrixdp.mechanisms.about import About
from matrixdp.workloads import Prefix

BUDGET = Budget(1.0, 1e-6)


def small_release(relation: str = "replace", epsilon: float = 1.0) -> Release:
    """Return a release of a small matrix."""
    ball = FrobeniusBall(1.0, relation)  # type: ignore[arg-type]
    return IMGM(ball, Budget(epsilon, 1e-6)).release(np.full((3, 2), 7654.25))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with releases of several kinds."""
    monkeypatch.chdir(tmp_path)
    about = About(dataset="clinic", purpose="quarterly report", unit="patient")
    small_release().save("ball.npy", about=about)
    IMGM(RowBox([1.0, 2.0], "replace"), BUDGET).release(np.ones((3, 2))).save("box.csv")
    small_release("add-remove", 0.5).save("added.csv")
    MatrixMechanism(Prefix(4), BUDGET, neighbouring="replace").release([1, 2, 3, 4]).save("w.npz")
    return tmp_path
