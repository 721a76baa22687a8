"""Membership of differences of float matrices in sensitivity sets, in exact arithmetic."""

import math
from fractions import Fraction

import numpy as np

from matrixdp import FrobeniusBall, RowBounds, RowBox, SymmetricBall
from matrixdp.sensitivity import ScaledBall, ScaledSymmetricBall
from matrixdp.sensitivity.sets import SensitivitySet


def exact(matrix: np.ndarray) -> list[list[Fraction]]:
    return [[Fraction(float(number)) for number in row] for row in matrix]


def contains(members: SensitivitySet, first: np.ndarray, second: np.ndarray) -> bool:
    """Return whether the exact difference of two float matrices is in a set."""
    change = [
        [a - b for a, b in zip(*rows, strict=True)]
        for rows in zip(exact(first), exact(second), strict=True)
    ]
    square = sum((entry**2 for row in change for entry in row), start=Fraction(0))
    changed = [number for number, row in enumerate(change) if any(row)]
    match members:
        case SymmetricBall():
            mirrored = change == [list(column) for column in zip(*change, strict=True)]
            return mirrored and square <= Fraction(members.bound) ** 2
        case FrobeniusBall():
            return square <= Fraction(members.bound) ** 2
        case ScaledBall():
            return squared_share(members, change) <= 1
        case ScaledSymmetricBall():
            mirrored = change == [list(column) for column in zip(*change, strict=True)]
            return mirrored and squared_share(members, change) <= 1
        case RowBounds():
            return len(changed) <= 1 and all(
                square <= Fraction(float(members.bounds[row])) ** 2 for row in changed
            )
        case RowBox():
            return len(changed) <= 1 and all(
                abs(entry) <= Fraction(float(bound))
                for row in change
                for entry, bound in zip(row, members.bounds, strict=True)
            )


def squared_share(
    members: ScaledBall | ScaledSymmetricBall, change: list[list[Fraction]]
) -> Fraction:
    """Return the squared norm of a change in the units of a set, over the square of its bound."""
    rows, columns = (
        (members.rows, members.columns)
        if isinstance(members, ScaledBall)
        else (members.units, members.units)
    )
    square = sum(
        (
            (entry / (Fraction(row) * Fraction(column))) ** 2
            for entries, row in zip(change, rows.tolist(), strict=True)
            for entry, column in zip(entries, columns.tolist(), strict=True)
        ),
        start=Fraction(0),
    )
    return square / Fraction(members.bound) ** 2


def share(members: SensitivitySet, first: np.ndarray, second: np.ndarray) -> float:
    """Return how far out in its set a difference is: 1 at the edge."""
    change = np.abs(first - second)
    if isinstance(members, ScaledBall | ScaledSymmetricBall):
        return math.sqrt(squared_share(members, exact(change)))
    if isinstance(members, RowBox):
        return float((change / members.bounds).max(axis=1).max())
    bound = members.bounds.max() if isinstance(members, RowBounds) else members.bound
    return float(np.linalg.norm(change)) / float(bound)
