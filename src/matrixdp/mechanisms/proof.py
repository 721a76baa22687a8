"""Whether noise gives the guarantee that is claimed for it."""

import numpy as np

from matrixdp.covariance import Covariance, Kronecker, OneSided
from matrixdp.errors import InvalidParameterError
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.sensitivity.sets import FrobeniusBall, SensitivitySet

__all__ = ["check_proven"]


def check_proven(guarantee: Guarantee, sensitivity: SensitivitySet, covariance: Covariance) -> None:
    """Refuse a guarantee that noise of a covariance does not give to a sensitivity set.

    Raises
    ------
    InvalidParameterError
        If the set's radius under the covariance exceeds the guarantee's mu, if the two speak of
        other neighbours, or if the guarantee is one for groups.
    """
    for name, part, kind in (
        ("guarantee", guarantee, Guarantee),
        ("sensitivity", sensitivity, SensitivitySet),
        ("covariance", covariance, Covariance),
    ):
        if not isinstance(part, kind):
            raise InvalidParameterError(
                f"{name} is a {type(part).__name__}: take it from a mechanism"
            )
    if guarantee.records != 1:
        raise InvalidParameterError(
            f"guarantee speaks of records={guarantee.records}: a release promises for one record; "
            "use guarantee.for_group on its guarantee"
        )
    if guarantee.neighbouring != sensitivity.neighbouring:
        raise InvalidParameterError(
            f"guarantee claims neighbouring={guarantee.neighbouring!r}, but the sensitivity is for "
            f"{sensitivity.neighbouring!r}"
        )
    if isinstance(covariance, Kronecker | OneSided) and not isinstance(sensitivity, FrobeniusBall):
        raise InvalidParameterError(
            f"a {type(covariance).__name__} covariance is never drawn for a "
            f"{type(sensitivity).__name__}"
        )
    radius = _least_radius(sensitivity, covariance)
    if not radius <= guarantee.mu:
        raise InvalidParameterError(
            f"guarantee claims mu={guarantee.mu!r}, but the noise gives mu={radius!r}"
        )


def _least_radius(sensitivity: SensitivitySet, covariance: Covariance) -> float:
    """Return the radius; for directional noise the smallest that any machine may have proven.

    Directional noise contains an exact floor of scale ``bound / mu`` that alone carries the
    promise, so that nothing rests on the eigenvalues here. Their proven bounds differ in the last
    digits between libraries and processors, by no more than what is left unproven.
    """
    radius = sensitivity.radius(covariance).value
    if not isinstance(covariance, Kronecker | OneSided):
        return radius
    estimate = float(np.min(covariance.eigenbasis_scales))
    unproven = max(estimate - covariance.smallest_singular_value, 0.0)
    return radius * covariance.smallest_singular_value / (estimate + unproven)
