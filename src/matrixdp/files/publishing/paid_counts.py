"""Counts of records that are stated beside a release, and that its guarantee pays for, too."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

import numpy as np

from matrixdp.covariance import Isotropic
from matrixdp.errors import FileFormatError, InvalidParameterError
from matrixdp.files.publishing.noise_grid import can_be_released
from matrixdp.files.schemas.values import Schema
from matrixdp.mechanisms.drawing import Promise
from matrixdp.mechanisms.proof import NoiseProof
from matrixdp.mechanisms.release import Release
from matrixdp.privacy.composition import composed_mu
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.sensitivity.sets import FrobeniusBall

__all__ = ["CountSchema", "PaidCount", "check_paid", "count_of", "promise_of_count", "stated_count"]

PaidCount: TypeAlias = Literal["records", "clipped"]
"""What was counted: all records, or those that the bounds change. One record changes it by 1."""


class CountSchema(Schema, frozen=True):
    """A released count."""

    value: float
    noise_scale: float


def stated_count(release: Release) -> CountSchema:
    """Return the schema of a released count.

    Raises
    ------
    InvalidParameterError
        If it is not the release of one number that a record changes by at most 1.
    """
    sensitivity, scale = release.sensitivity, release.noise_scale
    counted = isinstance(sensitivity, FrobeniusBall) and sensitivity.bound == 1.0
    if release.shape != (1, 1) or not counted or scale is None:
        raise InvalidParameterError(
            f"a release of shape {release.shape} and {sensitivity!r} is not a count: pass a matrix "
            "of one entry and FrobeniusBall(1.0, ...)"
        )
    return CountSchema(float(np.asarray(release.value)[0, 0]), scale)


def count_of(schema: CountSchema, guarantee: Guarantee) -> Release:
    """Return the count that a schema states, with what it guarantees at the delta of the whole."""
    promise = promise_of_count(schema, guarantee)
    value = np.array([[schema.value]])
    if not can_be_released(value, promise.covariance):
        raise FileFormatError("a stated count is not on the grid of its noise")
    return Release.from_proof(value, *promise)


def promise_of_count(schema: CountSchema, guarantee: Guarantee) -> Promise:
    """Return what a count promises by itself, at the delta of the whole."""
    ball = FrobeniusBall(1.0, guarantee.neighbouring)
    proof = NoiseProof(ball, Isotropic(schema.noise_scale))
    alone = Guarantee.of_mu(proof.mu, delta=guarantee.delta, neighbouring=guarantee.neighbouring)
    return Promise(proof, alone, "IMGM")


def check_paid(mu: float, counts: Mapping[PaidCount, Release], guarantee: Guarantee) -> None:
    """Raise unless a guarantee covers a release of a mu and the counts beside it.

    *Guarantee:* releases of mu_1, mu_2, ... together have ``sqrt(sum mu_i^2)`` (see `composed_mu`).
    """
    together = composed_mu([mu, *(count.proof.mu for count in counts.values())])
    if not together <= guarantee.mu:
        raise InvalidParameterError(
            f"guarantee claims mu={guarantee.mu!r}, but the release and the counts beside it have "
            f"mu={together!r} together"
        )
    if any(count.guarantee.neighbouring != guarantee.neighbouring for count in counts.values()):
        raise InvalidParameterError(
            "a count was released under another relation than the matrix: use one for both"
        )
