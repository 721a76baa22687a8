"""Proofs of the mu that a covariance gives a sensitivity set, made once and passed on."""

from dataclasses import dataclass
from functools import lru_cache

from matrixdp.covariance import Covariance, Directional, Isotropic
from matrixdp.errors import InvalidParameterError
from matrixdp.parameters import positive_number
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.rounding import quotient_up
from matrixdp.sensitivity.sets import FrobeniusBall, SensitivitySet

__all__ = ["NoiseProof", "kept_proof"]


@dataclass(frozen=True, eq=False, init=False)
class NoiseProof:
    """Noise, and the mu that it is proven to give a sensitivity set; proven when it is made.

    A mechanism makes one, and all of its releases hold the same.

    Parameters
    ----------
    sensitivity : FrobeniusBall, SymmetricBall, RowBounds or RowBox
        What one record can change.
    covariance : Covariance
        Of the noise.
    floor : float, optional
        The scale of the i.i.d. noise within directional noise on a `FrobeniusBall`, which alone
        carries the promise. By default the largest that is proven here.

    Attributes
    ----------
    mu : float
        Never below the radius of the set under the covariance.
    floor : float or None
        None for independent entries, and for noise that cannot be drawn.
    can_be_drawn : bool
        Whether there is exact noise of this covariance: independent entries, or a floor.

    Raises
    ------
    InvalidParameterError
        If the covariance is not proven to contain the floor, or there can be none.

    Notes
    -----
    *Guarantee:* noise that contains i.i.d. noise of scale ``floor`` gives a ball the mu
    ``bound / floor``, computed in exact rationals and rounded up. What the directions are beyond
    that does not matter. That the covariance contains the floor is proven in float arithmetic with
    bounds of its rounding (`Directional.smallest_singular_value`).
    """

    sensitivity: SensitivitySet
    covariance: Covariance
    floor: float | None
    mu: float
    can_be_drawn: bool

    def __init__(
        self, sensitivity: SensitivitySet, covariance: Covariance, floor: float | None = None
    ) -> None:
        _check_kinds(sensitivity, covariance)
        if isinstance(covariance, Directional) and isinstance(sensitivity, FrobeniusBall):
            # On the ball the floor alone decides, in exact arithmetic.
            floor = _proven_floor(covariance, floor)
            mu = quotient_up(sensitivity.bound, floor)
        elif floor is None:
            # Independent entries are drawn exactly, and the set proves its radius. Directional
            # noise off the ball has a radius too, but is never drawn.
            mu = sensitivity.radius(covariance).value
        else:
            raise InvalidParameterError(
                f"floor={floor!r} is given, but {type(covariance).__name__} noise on a "
                f"{type(sensitivity).__name__} has no floor: leave it out"
            )
        object.__setattr__(self, "sensitivity", sensitivity)
        object.__setattr__(self, "covariance", covariance)
        object.__setattr__(self, "floor", floor)
        object.__setattr__(self, "mu", mu)
        drawn = floor is not None or not isinstance(covariance, Directional)
        object.__setattr__(self, "can_be_drawn", drawn)

    @classmethod
    def portable(cls, sensitivity: SensitivitySet, covariance: Covariance) -> "NoiseProof":
        """Return a proof that other machines can repeat: with a floor that leaves a margin."""
        # Two numbers: such a proof is kept, and with it the drawings that rest on it.
        if isinstance(sensitivity, FrobeniusBall) and isinstance(covariance, Isotropic):
            return kept_proof(sensitivity, covariance)
        if isinstance(covariance, Directional) and isinstance(sensitivity, FrobeniusBall):
            return cls(sensitivity, covariance, covariance.proven_floor())
        return cls(sensitivity, covariance)

    def check_claim(self, guarantee: Guarantee) -> None:
        """Raise unless the noise can be drawn and gives what a guarantee claims.

        Raises
        ------
        InvalidParameterError
            If the proven mu exceeds the guarantee's, if the neighbouring relations differ, or if
            the guarantee is one for groups.
        """
        if not isinstance(guarantee, Guarantee):
            raise InvalidParameterError(
                f"guarantee is a {type(guarantee).__name__}: take it from a mechanism"
            )
        # Such noise would give its mu, but this library cannot have drawn it.
        if not self.can_be_drawn:
            raise InvalidParameterError(
                f"a {type(self.covariance).__name__} covariance is never drawn for a "
                f"{type(self.sensitivity).__name__}"
            )
        if guarantee.records != 1:
            raise InvalidParameterError(
                f"guarantee is for groups of records={guarantee.records}: a release promises for "
                "one record; use for_group on its guarantee"
            )
        if guarantee.neighbouring != self.sensitivity.neighbouring:
            raise InvalidParameterError(
                f"guarantee claims neighbouring={guarantee.neighbouring!r}, but the sensitivity is "
                f"for {self.sensitivity.neighbouring!r}"
            )
        if not self.mu <= guarantee.mu:
            raise InvalidParameterError(
                f"guarantee claims mu={guarantee.mu!r}, but the noise gives mu={self.mu!r}"
            )


kept_proof = lru_cache(maxsize=32)(NoiseProof)


def _check_kinds(sensitivity: object, covariance: object) -> None:
    for name, part, kind in (
        ("sensitivity", sensitivity, SensitivitySet),
        ("covariance", covariance, Covariance),
    ):
        if not isinstance(part, kind):
            raise InvalidParameterError(
                f"{name} is a {type(part).__name__}: take it from a mechanism"
            )


def _proven_floor(covariance: Directional, floor: float | None) -> float:
    """Return a floor that the covariance is proven to contain; by default the largest such."""
    proven = covariance.smallest_singular_value
    if floor is None:
        return proven
    # Compared with what is proven here, never with an estimate, which may be above the truth.
    stated = positive_number(floor, "floor")
    if not stated <= proven:
        raise InvalidParameterError(
            f"floor={stated!r} is not proven: the covariance contains i.i.d. noise of scale "
            f"{proven!r}, as far as float64 can prove; state at most that"
        )
    return stated
