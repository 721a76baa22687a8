"""What noise with correlated entries has in common, and the i.i.d. floor that it contains."""

import abc
from fractions import Fraction

import numpy as np

from matrixdp.covariance.linear_map import Covariance, FloatArray
from matrixdp.errors import NotPositiveDefiniteError
from matrixdp.rounding import float_down

__all__ = ["Directional"]

# How much of what this machine leaves unproven is given up. Both the estimate here and the one on
# another processor are within that of the truth, and the proof there gives up as much once more:
# three times is what can add up, and the fourth is a reserve.
_MARGIN = 4
# Below this share of the estimate the floor would be lower than 3/4 of the noise, and the reasoning
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
        return float(np.min(self.eigenbasis_scales))

    @property
    def floor(self) -> float:
        """The scale of i.i.d. noise that the covariance contains, as any machine can prove it.

        Every direction has at least this scale, so that the noise is i.i.d. noise of the floor plus
        independent noise. It is below `smallest_singular_value`, the bound proven here, by three
        times what was left unproven: other processors round differently and prove a little less.

        Raises
        ------
        NotPositiveDefiniteError
            If float64 does not resolve the weakest direction.
        """
        estimate, proven = self.estimated_floor, self.smallest_singular_value
        unproven = max(estimate - proven, 0.0)
        if not unproven <= _LARGEST_UNPROVEN_SHARE * estimate:
            raise NotPositiveDefiniteError(
                f"covariance is too ill-conditioned: its weakest direction has a scale of about "
                f"{estimate:.3g}, of which float64 proves {proven:.3g} only; add variance in that "
                "direction, or use independent noise"
            )
        return float_down(Fraction(estimate) - _MARGIN * Fraction(unproven))
