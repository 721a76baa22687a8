"""Dense oracles: what small covariances and sensitivity sets are, written out in full."""

import itertools

import numpy as np
from numpy.typing import NDArray

from matrixdp import RowBounds, RowBox, SymmetricBall
from matrixdp.covariance import Covariance
from matrixdp.sensitivity import ScaledBall, ScaledSymmetricBall
from matrixdp.sensitivity.sets import SensitivitySet

FloatArray = NDArray[np.float64]


def basis(shape: tuple[int, int]) -> list[FloatArray]:
    """Return the unit matrices of a shape, row by row."""
    units = []
    for index in np.ndindex(*shape):
        unit = np.zeros(shape)
        unit[index] = 1.0
        units.append(unit)
    return units


def colouring_map(covariance: Covariance, shape: tuple[int, int]) -> FloatArray:
    """Return the map of vec(N) to vec(noise) as a matrix, by colouring every unit matrix."""
    return np.column_stack([covariance.colour(unit).ravel() for unit in basis(shape)])


def whitening_map(covariance: Covariance, shape: tuple[int, int]) -> FloatArray:
    """Return the map of vec(difference) to its whitened vec as a matrix."""
    return np.column_stack([covariance.whiten(unit).ravel() for unit in basis(shape)])


def symmetric_basis(size: int) -> list[FloatArray]:
    """Return an orthonormal basis of the symmetric matrices."""
    members = []
    for row, column in itertools.combinations_with_replacement(range(size), 2):
        member = np.zeros((size, size))
        member[row, column] = member[column, row] = 1.0 if row == column else np.sqrt(0.5)
        members.append(member)
    return members


def largest_norm(whitening: FloatArray, directions: FloatArray) -> tuple[float, FloatArray]:
    """Return the largest ||W D c|| over unit c, and the c that attains it."""
    _, values, right = np.linalg.svd(whitening @ directions)
    return float(values[0]), right[0]


def units_of(sensitivity: SensitivitySet) -> FloatArray:
    """Return the unit of every entry of a ball."""
    match sensitivity:
        case ScaledBall():
            return np.asarray(np.multiply.outer(sensitivity.rows, sensitivity.columns))
        case ScaledSymmetricBall():
            return np.asarray(np.multiply.outer(sensitivity.units, sensitivity.units))
    return np.ones((1, 1))


def worst_member(
    sensitivity: SensitivitySet, covariance: Covariance, shape: tuple[int, int]
) -> FloatArray:
    """Return the member of a set with the largest whitened norm, found by brute force."""
    if covariance.mirrored:
        # Whitening is defined on the symmetric matrices only.
        assert isinstance(sensitivity, SymmetricBall | ScaledSymmetricBall)
    candidates = []
    if not isinstance(sensitivity, RowBounds | RowBox):
        symmetric = isinstance(sensitivity, SymmetricBall | ScaledSymmetricBall)
        members = symmetric_basis(shape[0]) if symmetric else basis(shape)
        members = [member * units_of(sensitivity) for member in members]
        whitened = np.column_stack([covariance.whiten(member).ravel() for member in members])
        _, weights = largest_norm(whitened, np.eye(len(members)))
        mixed = sum(w * member for w, member in zip(weights, members, strict=True))
        candidates.append(sensitivity.bound * np.asarray(mixed))
    elif isinstance(sensitivity, RowBounds):
        whitening = whitening_map(covariance, shape)
        for row, bound in enumerate(sensitivity.bounds):
            columns = slice(row * shape[1], (row + 1) * shape[1])
            _, weights = largest_norm(whitening[:, columns], np.eye(shape[1]))
            member = np.zeros(shape)
            member[row] = bound * weights
            candidates.append(member)
    else:
        for row in range(shape[0]):
            for signs in itertools.product([-1.0, 1.0], repeat=shape[1]):
                member = np.zeros(shape)
                member[row] = np.array(signs) * sensitivity.bounds
                candidates.append(member)
    return max(candidates, key=lambda member: np.linalg.norm(covariance.whiten(member)))


def random_member(
    sensitivity: SensitivitySet, shape: tuple[int, int], rng: np.random.Generator
) -> FloatArray:
    """Return a member of a set, on its boundary."""
    member = np.zeros(shape)
    row = rng.integers(shape[0])
    if isinstance(sensitivity, RowBounds):
        direction = rng.standard_normal(shape[1])
        member[row] = sensitivity.bounds[row] * direction / np.linalg.norm(direction)
    elif isinstance(sensitivity, RowBox):
        member[row] = sensitivity.bounds * rng.uniform(-1, 1, shape[1])
    else:
        member = rng.standard_normal(shape)
        if isinstance(sensitivity, SymmetricBall | ScaledSymmetricBall):
            member = member + member.T
        member *= sensitivity.bound / np.linalg.norm(member) * units_of(sensitivity)
    return member


def random_definite(size: int, rng: np.random.Generator, spread: float = 2.0) -> FloatArray:
    """Return a random symmetric positive definite matrix with condition number exp(spread)."""
    vectors, _ = np.linalg.qr(rng.standard_normal((size, size)))
    values = np.exp(rng.uniform(-spread / 2, spread / 2, size))
    matrix = (vectors * values) @ vectors.T
    return np.asarray((matrix + matrix.T) / 2)
