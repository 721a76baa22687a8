r"""Plans with rare large losses: one composition for each number of them, each with its own tilt.

A record that is hardly ever sampled, but reveals much when it is, makes the distribution of the
whole loss fall steeply and then rise again once tilted: no tilt puts its bulk at an epsilon in the
valley between, and what a transform rounds there may be more than what is there. So the losses of
one kind of step are divided at a cut: with s the atoms below it and l those above,

    (s + l)^T = sum_j C(T, j) s^(T-j) l^j

and each term is composed by itself. More than `_MOST_LARGE` large losses are so unlikely that their
probability, at most ``C(T, j) p^j`` with p the mass above the cut, is added to delta as it is.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from matrixdp.privacy.loss.composition import Composed, composed
from matrixdp.privacy.loss.lattice import Lattice
from matrixdp.privacy.loss.pairs import Pair
from matrixdp.privacy.loss.tilting import Cumulants, Split

__all__ = ["Mixture", "cut_of", "mixture"]

_MOST_LARGE = 3
_FAR = 32.0  # in a valley, terms matter that would not elsewhere
_UNLIKELY = 1e-8  # of delta: more large losses than that
_MOST_EXPECTED = 0.3  # large losses in a whole plan


@dataclass(frozen=True)
class Mixture:
    """The distributions of the whole loss for each number of large losses.

    Attributes
    ----------
    parts : sequence of Composed
        Weighted by how likely each number is.
    rest : float
        A bound of the probability of more.
    """

    parts: Sequence[Composed]
    rest: float

    @property
    def tilt(self) -> float:
        """The least tilt."""
        return min(part.tilt for part in self.parts)

    def log_upper(self, epsilon: float) -> float:
        """Return the logarithm of an upper bound of delta, for atoms that dominate."""
        logs = [part.log_upper(epsilon) for part in self.parts]
        if self.rest != 0.0:  # a NaN is not dropped
            logs.append(math.log(self.rest))
        return _log_sum(logs, 1.0)

    def log_lower(self, epsilon: float) -> float:
        """Return the logarithm of a lower bound of delta, for atoms that are dominated."""
        return _log_sum([part.log_lower(epsilon) for part in self.parts], -1.0)


def _log_sum(logs: Sequence[float], direction: float) -> float:
    """Return the logarithm of a sum, rounded up or down; a NaN is infinite on that side."""
    unknown = math.copysign(math.inf, direction)
    logs = [unknown if math.isnan(log) else log for log in logs]
    largest = max(logs)
    if math.isinf(largest):
        return largest
    found = largest + math.log(math.fsum(math.exp(log - largest) for log in logs))
    return found + direction * 1e-14 * (1.0 + abs(found))


def cut_of(lattice: Lattice, count: int, delta: float) -> float:
    """Return the loss above which there are hardly ever more than a few of T losses."""
    expected = (_UNLIKELY * delta * math.factorial(_MOST_LARGE + 1)) ** (1.0 / (_MOST_LARGE + 1))
    above = np.cumsum(lattice.masses[::-1])[::-1]
    index = int(np.searchsorted(-above, -min(expected, _MOST_EXPECTED) / count))
    return lattice.origin + lattice.step * (lattice.first + index)


def mixture(
    lattices: Sequence[tuple[Lattice, int]],
    steps: Sequence[tuple[Pair, int]],
    split: Split,
    epsilon: float,
    *,
    for_lower: bool = False,
) -> Mixture:
    """Compose the terms for up to a few large losses, each tilted for its share of delta.

    Parameters
    ----------
    lattices : sequence of (Lattice, int)
        Of one step each, and how often it occurs.
    steps : sequence of (Pair, int)
        The same as pairs, which say how to tilt.
    split : Split
        Which of them is divided, and where.
    epsilon : float
        Near which delta is wanted.
    for_lower : bool
        Whether a lower bound is wanted.
    """
    whole, count = lattices[split.index]
    small, large = _divided(whole, split.cut)
    others = [part for index, part in enumerate(lattices) if index != split.index]
    mass = float(large.masses.sum()) * (1.0 + 1e-9)
    most = min(_MOST_LARGE, count) if mass > 0.0 else 0
    parts = []
    for number in range(most + 1):
        cumulants = Cumulants(steps, whole.lost, split=replace(split, number=number))
        saddle = cumulants.softened(cumulants.for_epsilon(epsilon))
        divided = [(small, count - number), (large, number)]
        terms = [*others, *(part for part in divided if part[1] > 0)]
        near = replace(saddle, epsilon=epsilon)
        found = composed(terms, near, for_lower=for_lower, far=_FAR)
        weight = math.log(math.comb(count, number))
        # What is lost is counted once, with the first term.
        lost = found.lost if number == 0 else 0.0
        parts.append(replace(found, log_factor=found.log_factor + weight, lost=lost))
    rest = math.comb(count, most + 1) * mass ** (most + 1) * (1.0 + 1e-9) if mass > 0.0 else 0.0
    return Mixture(parts, rest)


def _divided(lattice: Lattice, cut: float) -> tuple[Lattice, Lattice]:
    """Return the atoms up to a loss, and those above it."""
    index = math.floor((cut - lattice.origin) / lattice.step) - lattice.first + 1
    index = min(max(index, 1), len(lattice.masses))
    small = replace(lattice, masses=lattice.masses[:index])
    large = replace(lattice, first=lattice.first + index, masses=lattice.masses[index:], lost=0.0)
    return small, large
