"""Noise with correlated entries, and the i.i.d. floor that it contains."""

import abc
from fractions import Fraction

import numpy as np

from matrixdp.covariance.linear_map import Covariance, FloatArray
from matrixdp.errors import NotPositiveDefiniteError
from matrixdp.rounding import float_down

__all__ = ["Directional"]

# The floor is below the estimate by this many times the part that is not proven here. The estimate
# here, the estimate on another processor and the proof there may each be off by that part, which
# makes three; the fourth is a reserve.
_MARGIN = 4
# With a larger unproven share the floor would be lower than 3/4 of the noise, and the reasoning
# above, which is linear in the error, would no longer hold for the root of an eigenvalue.
_LARGEST_UNPROVEN_SHARE = 1 / 16


class Directional(Covariance):
    """Noise that is independent in some eigenbasis, with a scale for every direction in it."""

    @property
    @abc.abstractmethod
    def eigenbasis_scales(self) -> FloatArray:
        """The standard deviations in the eigenbasis, to float accuracy; they broadcast."""

    @abc.abstractmethod
    def rotated(self, inner: FloatArray) -> FloatArray:
        """Return the matrix that has these coordinates in the eigenbasis."""

    @property
    def estimated_floor(self) -> float:
        """The scale of the weakest direction, to float accuracy; nothing is proven of it."""
        # Only ever compared with a proven bound: no guarantee may rest on it.
        return float(np.min(self.eigenbasis_scales))

    @property
    def floor(self) -> float | None:
        """The scale of i.i.d. noise that the covariance contains, as any machine can prove it.

        Every direction has at least this scale, so that the noise is i.i.d. noise of the floor plus
        independent noise. It is below `smallest_singular_value`, the bound proven here, by three
        times what was left unproven: other processors round differently and prove a little less.
        None if float64 does not resolve the weakest direction.
        """
        try:
            return self.proven_floor()
        except NotPositiveDefiniteError:
            return None

    def proven_floor(self) -> float:
        """Return the `floor`, or raise if there is none.

        Raises
        ------
        NotPositiveDefiniteError
            If float64 does not resolve the weakest direction.
        """
        estimate, proven = self.estimated_floor, self.smallest_singular_value
        # Never negative, or the floor would be above what is proven.
        unproven = max(estimate - proven, 0.0)
        if not unproven <= _LARGEST_UNPROVEN_SHARE * estimate:
            raise NotPositiveDefiniteError(
                f"covariance is too ill-conditioned: its weakest direction has a scale of about "
                f"{estimate:.3g}, of which float64 proves {proven:.3g} only; add variance in that "
                "direction, or use independent noise"
            )
        # In rationals and rounded down: a lower floor is a weaker claim, never a false one.
        return float_down(Fraction(estimate) - _MARGIN * Fraction(unproven))
