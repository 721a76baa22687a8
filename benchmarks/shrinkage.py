"""The error of releases before and after post-processing, for spectra that decay or do not.

Matrices of Frobenius norm 1000, of which one record can change 1: singular values that halve each
time, that fall as 1/i, or that are all equal, with random singular vectors. Besides, a table of
counts that are mostly 0, and a correlation matrix. Errors are relative to the norm of the truth,
and means over ten releases with exact noise. Keys are fixed, so that a run can be repeated.
"""

import argparse
import hashlib
import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from saved import save

import matrixdp as mdp
from matrixdp.postprocess import (
    Clamp,
    CorrelationMatrix,
    EfronMorris,
    EntryThreshold,
    JamesStein,
    PositiveSemidefinite,
    Simplex,
    SingularValueShrinkage,
    SingularValueThreshold,
    Step,
    process,
)
from matrixdp.sensitivity import SensitivitySet

FloatArray = NDArray[np.float64]

EPSILONS = (0.1, 0.3, 1.0, 3.0)
DELTA = 1e-6
RELEASES = 10
NORM = 1000.0
ROWS, COLUMNS, SIDE = 60, 120, 80

SPECTRA: dict[str, Callable[[int], FloatArray]] = {
    "fast": lambda number: np.asarray(0.5 ** np.arange(number), dtype=np.float64),
    "slow": lambda number: 1.0 / np.arange(1.0, number + 1),
    "flat": np.ones,
}

SHRINKERS: dict[str, tuple[Step, ...]] = {
    "SingularValueShrinkage": (SingularValueShrinkage(),),
    "SingularValueShrinkage, operator": (SingularValueShrinkage("operator"),),
    "SingularValueShrinkage, nuclear": (SingularValueShrinkage("nuclear"),),
    "SingularValueThreshold": (SingularValueThreshold(),),
    "EntryThreshold": (EntryThreshold(),),
    "JamesStein": (JamesStein(),),
}
RECTANGULAR = SHRINKERS | {"EfronMorris": (EfronMorris(),)}
SYMMETRIC = SHRINKERS | {
    "PositiveSemidefinite": (PositiveSemidefinite(),),
    "SingularValueShrinkage, PositiveSemidefinite": (
        SingularValueShrinkage(),
        PositiveSemidefinite(),
    ),
}


def with_spectrum(sizes: FloatArray, rows: int, columns: int) -> FloatArray:
    """Return a matrix of these singular values, with random vectors; symmetric if it is square."""
    rng = np.random.default_rng(0)
    left = np.linalg.qr(rng.standard_normal((rows, len(sizes))))[0]
    right = left if rows == columns else np.linalg.qr(rng.standard_normal((columns, len(sizes))))[0]
    matrix = (left * (sizes / np.linalg.norm(sizes))) @ right.T
    return np.asarray(NORM * ((matrix + matrix.T) / 2 if rows == columns else matrix))


def sparse_counts() -> FloatArray:
    """Return a table of counts, nine in ten of them 0."""
    rng = np.random.default_rng(1)
    filled = rng.random((40, 50)) < 0.1
    return np.where(filled, np.ceil(rng.pareto(1.0, size=filled.shape) * 20.0), 0.0)


def correlations() -> FloatArray:
    """Return the correlation matrix of five common factors and noise."""
    rng = np.random.default_rng(2)
    loadings = rng.standard_normal((40, 5))
    covariance = loadings @ loadings.T + np.eye(40)
    scales = 1.0 / np.sqrt(np.diagonal(covariance))
    matrix = covariance * scales * scales[:, None]
    matrix = (matrix + matrix.T) / 2
    np.fill_diagonal(matrix, 1.0)
    return np.asarray(matrix)


def measured(
    case: str, truth: FloatArray, sensitivity: SensitivitySet, ways: Mapping[str, tuple[Step, ...]]
) -> dict[str, float]:
    """Return the mean relative errors of one matrix, before and after, at every epsilon."""
    found: dict[str, float] = {}
    for epsilon in EPSILONS:
        mechanism = mdp.IMGM(sensitivity, mdp.Budget(epsilon, DELTA))
        errors: dict[str, list[tuple[float, float]]] = {}
        for number in range(RELEASES):
            seed = hashlib.sha256(f"{case}, {epsilon:g}, {number}".encode()).digest()
            release = mechanism.release(truth, key=mdp.ReleaseKey.from_bytes(seed))
            errors.setdefault("released", []).append(relative(release.value, truth))
            for name, steps in ways.items():
                value = process(release, *steps).value
                errors.setdefault(name, []).append(relative(value, truth))
        for name, pairs in errors.items():
            frobenius, operator = np.mean(pairs, axis=0)
            found[f"{case}, epsilon {epsilon:g}, {name}, Frobenius"] = float(frobenius)
            found[f"{case}, epsilon {epsilon:g}, {name}, spectral"] = float(operator)
    return found


def relative(value: FloatArray, truth: FloatArray) -> tuple[float, float]:
    """Return the errors in Frobenius and in spectral norm, relative to the truth's."""
    error = value - truth
    return (
        float(np.linalg.norm(error) / np.linalg.norm(truth)),
        float(np.linalg.norm(error, 2) / np.linalg.norm(truth, 2)),
    )


def main() -> None:
    """Print every error, and record it if asked to."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--save", action="store_true")
    parser.parse_args()
    ball = mdp.FrobeniusBall(1.0, neighbouring="add-remove")
    symmetric = mdp.SymmetricBall(1.0, neighbouring="add-remove")
    figures: dict[str, float] = {}
    for name, spectrum in SPECTRA.items():
        wide = with_spectrum(spectrum(ROWS), ROWS, COLUMNS)
        figures |= measured(f"rectangular, {name}", wide, ball, RECTANGULAR)
        square = with_spectrum(spectrum(SIDE), SIDE, SIDE)
        figures |= measured(f"symmetric, {name}", square, symmetric, SYMMETRIC)
    counts = sparse_counts()
    # The total is public if records are replaced, and then one record moves from cell to cell.
    moved = math.nextafter(math.sqrt(2.0), 2.0)
    figures |= measured(
        "counts",
        counts,
        mdp.FrobeniusBall(moved, neighbouring="replace"),
        {
            "EntryThreshold": (EntryThreshold(),),
            "Clamp": (Clamp(lower=0.0),),
            "Simplex": (Simplex(float(counts.sum())),),
        },
    )
    # A thousand records of norm at most sqrt(40) in standard units.
    figures |= measured(
        "correlations",
        correlations(),
        mdp.SymmetricBall(0.04, neighbouring="add-remove"),
        {
            "PositiveSemidefinite": (PositiveSemidefinite(),),
            "CorrelationMatrix": (CorrelationMatrix(),),
            "SingularValueShrinkage, CorrelationMatrix": (
                SingularValueShrinkage(),
                CorrelationMatrix(),
            ),
        },
    )
    for what, figure in figures.items():
        print(f"{what}: {figure:.3g}")
    save("postprocess", figures)


if __name__ == "__main__":
    main()
