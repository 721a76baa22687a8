"""Public facts about a release, for people who read a ledger."""

from typing import Any

from matrixdp.covariance import Covariance, Diagonal, Isotropic
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.rounding import shown_up
from matrixdp.sensitivity.sets import SensitivitySet

__all__ = ["description"]


def description(cost: Any) -> dict[str, str]:
    """Return what a release promises by itself; of a mechanism also what it adds, and for what."""
    sensitivity, covariance = getattr(cost, "sensitivity", None), getattr(cost, "covariance", None)
    guarantee = getattr(cost, "guarantee", cost)
    if not isinstance(guarantee, Guarantee):
        return {}
    alone = f"epsilon {shown_up(guarantee.epsilon, 4)} at delta {shown_up(guarantee.delta, 4)}"
    if not isinstance(sensitivity, SensitivitySet) or not isinstance(covariance, Covariance):
        return {"alone": alone}
    radius = sensitivity.radius(Isotropic(1.0)).value
    return {
        "alone": alone,
        "mechanism": str(getattr(cost, "mechanism", type(cost).__name__)),
        "sensitivity": f"at most {shown_up(radius)} ({type(sensitivity).__name__})",
        "noise": _noise(covariance),
    }


def _noise(covariance: Covariance) -> str:
    match covariance:
        case Isotropic(scale=scale):
            return f"scale {scale:g}"
        case Diagonal(scales=scales):
            return f"scale {scales.min():g} to {scales.max():g}"
        case _:
            least, most = covariance.smallest_singular_value, covariance.largest_singular_value
            return f"scale {least:g} to {most:g}"
