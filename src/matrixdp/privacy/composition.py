"""Composition and group privacy of Gaussian releases: mu adds in squares, and linearly in records.

Releases that are mu_1, ..., mu_T Gaussian-private compose to ``sqrt(sum mu_t^2)``, whatever their
shapes and whatever each asks, given the earlier outputs (Dong, Roth and Su 2022, Corollary 3.3), as
long as the mu_t are fixed in advance. Where they depend on earlier outputs, `PrivacyFilter` bounds
the whole. No composition is tighter if one pair of neighbours attains every mu_t.
"""

from collections.abc import Iterable
from fractions import Fraction

from matrixdp.errors import InvalidParameterError
from matrixdp.parameters import MU, positive_integer
from matrixdp.rounding import float_up, sqrt_up

__all__ = ["composed_mu", "group_mu"]


def composed_mu(mus: Iterable[float]) -> float:
    """Return ``sqrt(sum mu_t^2)`` of any number of releases, summed exactly and rounded up.

    Parameters
    ----------
    mus : iterable of float
        The mu of each release, from 0 to 1e4, fixed before the first one. What a release asks may
        depend on earlier outputs; if its mu does too, use a `PrivacyFilter`.

    Returns
    -------
    float
        The mu of all of them together.

    Examples
    --------
    >>> from matrixdp.privacy import composed_mu
    >>> composed_mu([3.0, 4.0])
    5.0
    """
    if not isinstance(mus, Iterable):
        raise InvalidParameterError(f"mus={mus!r} is not a list of numbers: pass [mu, ...]")
    # In rationals, because a float sum of many small squares could lose them.
    return sqrt_up(sum((Fraction(MU.number(mu)) ** 2 for mu in mus), start=Fraction(0)))


def group_mu(mu: float, records: int) -> float:
    """Return the mu for data sets that differ in several records, ``records * mu``, rounded up.

    Data sets that differ in k records are k steps from neighbour to neighbour, and the distances of
    the answers add up, so the group mu is k mu (Dong, Roth and Su 2022, Theorem 2.14).

    Examples
    --------
    >>> from matrixdp.privacy import group_mu
    >>> group_mu(0.25, records=3)
    0.75
    """
    # Above the domain of mu the result is still returned; a Guarantee for it is refused.
    return float_up(Fraction(MU.number(mu)) * positive_integer(records, "records"))
