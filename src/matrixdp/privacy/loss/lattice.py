r"""A pair of distributions, put on a lattice of losses from both sides.

The line is cut into cells at the points of the losses ``k h``. In each cell the mass of P is
divided between the two ends so that the masses of P and of Q both stay what they are:

    p_high = int (P - e^l Q) / (1 - e^-h),      p_low = int (e^(l+h) Q - P) / (e^h - 1)

for a cell with losses from l to l + h. This spreads the likelihood ratio and keeps its mean, so the
pair of atoms *dominates* the pair (connecting the dots of the privacy curve: Doroshenko et al.
2022). It costs in the order of h^2, where rounding losses up would cost in the order of h.

For a lower bound, the mass of several cells is drawn together in two neighbouring lattice points
within them, again with both masses kept. `contracted` proves that the likelihood ratio is then
spread less, so the atoms are dominated by the pair.

Integrals are Gauss rules on parts so short that the rule's error is proven to be below 2**-46;
integrands are entire functions, positive on each part, and formed without cancelling.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import CalibrationError
from matrixdp.privacy.loss.pairs import Pair
from matrixdp.rounding import UNIT_ROUNDOFF

__all__ = ["Cells", "Lattice", "cells_of", "coarsened", "contracted", "exchanged", "spread"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

# Points of the Gauss rules, and the longest part that each is used for: half its length times the
# largest logarithmic derivative. `rule_error` bounds what that leaves.
_FEW_POINTS, _SHORT = 5, 0.02
_MANY_POINTS, _LONG = 8, 0.25
_TOGETHER = 1 << 16  # parts that are integrated at a time, for the sake of memory
_BLOCK = 4  # cells that are drawn together
_MOST_MERGED = 32  # blocks that are drawn together with others


@dataclass(frozen=True)
class Lattice:
    """Atoms of mass at losses ``origin + (first + k) step``.

    Attributes
    ----------
    step : float
        The distance h of losses; a float with few bits, so that its multiples are floats.
    origin : float
        A loss of the lattice.
    first : int
        The number of the first atom.
    masses : array
        Of P at each loss, none negative. Those of Q are ``masses exp(-loss)``.
    displacement : float
        Every loss is off by at most this.
    lost : float
        The mass, of P and of Q, that is not here.
    """

    step: float
    origin: float
    first: int
    masses: FloatArray
    displacement: float
    lost: float

    @property
    def offsets(self) -> FloatArray:
        """The losses of all atoms, less the origin; exact."""
        numbers = np.arange(self.first, self.first + len(self.masses), dtype=np.float64)
        return self.step * numbers


@dataclass(frozen=True)
class Cells:
    """The two shares of the mass of P in every cell; cell k is between losses k and k + 1.

    Shares have a relative error of at most ``errors``. Other attributes are as in `Lattice`.
    """

    step: float
    origin: float
    first: int
    low: FloatArray
    high: FloatArray
    errors: FloatArray
    displacement: float
    lost: float


def rule_error(points: int, length: float) -> float:
    """Return a bound of the relative error of a Gauss rule on an integrand of this module.

    On ``[-1, 1]`` the integrand is ``e^(a z - b z^2)`` or ``e^(a z - b z^2) (1 - e^(-c (1 + z)))``
    or its mirror image, up to a factor, or a sum of such with positive factors; ``|a| + c`` is at
    most the ``length`` and ``2 b`` at most its square. If M bounds it on the ellipse of radius rho,
    the error of n points is at most ``64/15 M rho^(2 - 2n) / (1 - rho^-2)`` (Trefethen 2019,
    Theorem 19.3). There ``|z| <= r = (rho + 1/rho)/2``, so ``M <= c (1 + r) e^(length (1 + r) + b
    r^2)``. The integral is at least ``2 c e^(-4 length)``.

    Examples
    --------
    >>> bool(max(rule_error(5, 0.02), rule_error(8, 0.25)) < 2**-46)
    True
    """
    found = math.inf
    for rho in np.geomspace(2.0, 1000.0, 100):
        radius = 0.5 * (rho + 1.0 / rho)
        growth = length * (5.0 + radius) + 0.5 * (length * radius) ** 2
        bound = 64.0 / 15.0 * 0.5 * (1.0 + radius) * math.exp(min(growth, 600.0))
        found = min(found, bound * rho ** (2.0 - 2.0 * points) / (1.0 - rho**-2.0))
    return found


def cells_of(pair: Pair, step: float, tail: float) -> Cells:
    """Return the masses of a pair in the cells of a lattice.

    Parameters
    ----------
    pair : Pair
        Whose.
    step : float
        The distance of losses.
    tail : float
        Of P and of Q at most this much mass is left out.
    """
    start, stop = pair.reach(tail)
    origin = _origin(pair, step)
    ends = pair.losses(np.array([start, stop])) - origin
    # Rounding may have moved the two by a little; one more cell on either side does no harm. One
    # of the blocks of cells is centred at the origin.
    first = _BLOCK * math.floor((float(ends[0]) / step - 1.0) / _BLOCK) - _BLOCK // 2
    last = math.ceil(float(ends[1]) / step) + 1
    losses = origin + step * np.arange(first, last + 1, dtype=np.float64)
    # Edges increase up to rounding; made to increase, none moves by more than rounding moved it.
    edges = np.maximum.accumulate(pair.places(losses))
    if not (edges[0] <= start and stop <= edges[-1]):
        raise CalibrationError(
            f"the losses of sampling_rate={pair.rate!r} and mu={pair.mu!r} are not resolved in "
            f"steps of {step!r}: use RDP"
        )
    # What is computed belongs to a lattice whose losses are those of the edges.
    displacements = pair.displacement(losses, edges) + UNIT_ROUNDOFF * np.abs(losses)
    low, high, most_parts = _integrals(pair, losses, edges, (start, stop))
    # The exponents of all densities are below these; exp, products and sums have some units of it.
    reached = np.clip(edges, start, stop)
    exponents = (np.maximum(np.abs(reached[1:]), np.abs(reached[:-1])) + pair.mu) ** 2
    units = 32.0 + most_parts + 4.0 * (exponents + np.abs(losses[1:]))
    units -= 8.0 * math.log(pair.rate)
    moved = np.maximum(displacements[1:], displacements[:-1]) / step
    return Cells(
        step=step,
        origin=origin,
        first=first,
        low=low / math.expm1(step),
        high=high / -math.expm1(-step),
        errors=_RULE_ERROR + units * UNIT_ROUNDOFF + 4.0 * moved,
        displacement=float(np.max(displacements)),
        lost=tail,
    )


def _origin(pair: Pair, step: float) -> float:
    """Return the mean loss of the lowest block of cells, centred at it, or 0 if there is none such.

    Any origin is valid. Losses of sampled steps may crowd just above the least one, closer than
    the lattice resolves. With this origin such a block's mass stays at its centre when the block is
    contracted, instead of going down by up to a step.
    """
    half = 0.5 * _BLOCK * step
    found = pair.least_loss + half
    for _ in range(16):
        former, found = found, pair.mean_loss_below(found + half)
        if abs(found - former) <= 1e-9 * step:
            # Below the mean rather than above it, where rounding would cost a whole step.
            return found - 1e-7 * step
    return 0.0


def _integrals(
    pair: Pair, losses: FloatArray, edges: FloatArray, interval: tuple[float, float]
) -> tuple[FloatArray, FloatArray, int]:
    """Return the two integrals over each cell, and into how many parts one was cut at most."""
    # Cells that reach beyond the interval are cut there; others outside of it have no width.
    ends = np.clip(edges, *interval)
    left, right = ends[:-1], ends[1:]
    steepness = np.maximum(np.abs(left), np.abs(right)) + 2.0 * pair.mu + 1.0
    length = 0.5 * (right - left) * steepness
    parts = np.ceil(length / _LONG).astype(np.int64)
    parts[length <= _SHORT] = 1
    low, high = np.zeros(len(left)), np.zeros(len(left))
    short = (length > 0.0) & (length <= _SHORT)
    for points, chosen in ((_FEW_POINTS, short), (_MANY_POINTS, length > _SHORT)):
        cells = np.flatnonzero(chosen)
        nodes, weights = np.polynomial.legendre.leggauss(points)
        shares, weights = 0.5 * (1.0 + nodes), 0.5 * weights
        for cell, part in _parts(cells, parts[cells]):
            width = (right[cell] - left[cell]) / parts[cell]
            # Distances to the two ends of the cell, from the near end of the part: differences of
            # edges would lose the digits of a short cell. Shares are symmetric about 1/2.
            from_left = (left[cell] - edges[cell]) + part * width
            to_right = (edges[cell + 1] - right[cell]) + (parts[cell] - 1 - part) * width
            u = left[cell] + (part + shares[:, None]) * width
            above = pair.above(u, from_left + shares[:, None] * width, losses[cell])
            below = pair.below(u, to_right + shares[::-1, None] * width)
            high += np.bincount(cell, (weights @ above) * width, minlength=len(high))
            low += np.bincount(cell, (weights @ below) * width, minlength=len(low))
    return low, high, int(np.max(parts, initial=1))


def _parts(cells: IntArray, counts: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
    """Return cells, each as often as it has parts, with the numbers of the parts; in batches."""
    batches = (np.cumsum(counts) - counts) // _TOGETHER
    for chosen in np.split(np.arange(len(cells)), np.flatnonzero(np.diff(batches)) + 1):
        some, count = cells[chosen], counts[chosen]
        cell = np.repeat(some, count)
        yield cell, np.arange(len(cell)) - np.repeat(np.cumsum(count) - count, count)


_RULE_ERROR = max(rule_error(_FEW_POINTS, _SHORT), rule_error(_MANY_POINTS, _LONG))


def spread(cells: Cells) -> Lattice:
    """Return atoms that dominate the pair: each cell's two shares at its two ends, rounded up."""
    up = 1.0 + 2.0 * cells.errors
    masses = np.zeros(len(cells.low) + 1)
    masses[:-1] += cells.low * up
    masses[1:] += cells.high * up
    return Lattice(cells.step, cells.origin, cells.first, masses, cells.displacement, cells.lost)


def exchanged(lattice: Lattice) -> Lattice:
    """Return atoms that dominate the exchanged pair, given some that dominate the pair.

    Every atom of Q has to be one of P that is a float: so it is where P is at least ``(1 - q) Q``.
    """
    held = lattice.masses > 0.0
    losses, logs = (lattice.origin + lattice.offsets)[held], np.log(lattice.masses[held])
    # log and exp have some units of their terms, and the losses their displacement. In logarithms,
    # for e^-loss alone may be beyond the largest float. What underflows is far less than is lost.
    units = 4.0 * (1.0 + np.abs(losses) + np.abs(logs))
    masses = np.zeros(len(held))
    masses[held] = np.exp(logs - losses) * (
        1.0 + 2.0 * (lattice.displacement + units * UNIT_ROUNDOFF)
    )
    last = lattice.first + len(lattice.masses) - 1
    return replace(lattice, origin=-lattice.origin, first=-last, masses=masses[::-1])


def coarsened(lattice: Lattice) -> Lattice:
    """Return atoms at every other loss that dominate those of a lattice.

    Each odd atom is divided between its two neighbours with the masses of P and Q kept: a share of
    ``1 / (1 + e^-h)`` goes up.
    """
    before = lattice.first % 2
    masses = np.pad(lattice.masses, (before, (before + len(lattice.masses)) % 2))
    up = (1.0 + 8.0 * UNIT_ROUNDOFF) / (1.0 + math.exp(-lattice.step))
    down = (1.0 + 8.0 * UNIT_ROUNDOFF) / (1.0 + math.exp(lattice.step))
    coarse = np.append(masses[::2], 0.0)
    coarse[1:] += up * masses[1::2]
    coarse[:-1] += down * masses[1::2]
    first = (lattice.first - before) // 2
    return replace(lattice, step=2.0 * lattice.step, first=first, masses=coarse)


def contracted(cells: Cells) -> Lattice:
    r"""Return atoms that the pair dominates: less mass, at losses that are spread less or lower.

    A block of four cells has the points 0 to 4, a mass m and, with the mass of Q kept too, a mean
    likelihood ratio r = Q/P. Its mass goes to the two points next to that mean: a share ``hi`` to
    point 3 and the rest to point 2, or a share ``lo`` to point 1 and the rest to point 2. With
    ``r_k`` the ratio at point k, let ``F(t) = int (r - t)_+ dP`` over the block and C(t) the same
    for the two atoms; F >= C for all t is what is to be shown (convex order). Outside of the two
    points C is ``(mean - t)_+ m``, which is at most F (Jensen). Between ``r_3 < r_2``, C is a line
    from ``C(r_3) = m (mean - r_3)`` to ``C(r_2) = 0``. F is convex, so it lies above its tangent at
    r_3. That has the slope ``-(m - m_4)``, m_4 the mass of the last cell, and at r_3 the value
    ``C(r_3) + k`` with ``k = int_(r < r_3) (r_3 - r)``; so at r_2 its value is ``k + (m_4 - hi)
    (r_2 - r_3)``. In terms of the last cell's shares k is ``high_4 (r_3 - r_4) = high_4 e^-h (r_2 -
    r_3)``: it suffices that ``hi <= m_4 + high_4 e^-h``. It lies above its tangent at r_2 as well.
    That has the slope of minus the mass of the first two cells; worked out in the same way, ``low_3
    <= high_4 e^-h`` suffices. Between ``r_2 < r_1`` the tangent at r_1 asks for ``lo <= m_1 + low_1
    e^h`` and that at r_2 for ``high_2 <= low_1 e^h``. Where none of them holds, the whole mass goes
    to a point at or below the mean loss.
    """
    count = -(-len(cells.low) // _BLOCK)
    padding = (0, count * _BLOCK - len(cells.low))
    low, high, errors = (
        np.pad(part, padding).reshape(count, _BLOCK)
        for part in (cells.low, cells.high, cells.errors)
    )
    mass = low.sum(1) + high.sum(1)
    # The errors of the shares may have moved the mean: it is lowered by so much.
    up = math.exp(cells.step)
    margin = 16.0 * (1.0 + up) * np.max(errors, axis=1) * mass
    right = high[:, 2] + low[:, 3] + high[:, 3] * (1.0 + 1.0 / up)
    left = up * (high[:, 0] + low[:, 1]) + up * (1.0 + up) * low[:, 0]
    hi = right - left - margin
    lo = np.maximum(-hi / up, 0.0)
    by_outer = hi <= low[:, 3] + high[:, 3] * (1.0 + 1.0 / up) - margin
    by_inner = low[:, 2] <= high[:, 3] / up - margin
    rising = (hi >= 0.0) & (hi <= mass) & (by_outer | by_inner)
    by_outer = lo <= high[:, 0] + low[:, 0] * (1.0 + up) - margin
    by_inner = high[:, 1] <= low[:, 0] * up - margin
    falling = (hi < 0.0) & (lo <= mass) & (by_outer | by_inner)
    atoms = np.zeros((count, _BLOCK))
    atoms[:, 3] = np.where(rising, hi, 0.0)
    atoms[:, 1] = np.where(falling, lo, 0.0)
    atoms[:, 2] = np.where(rising, mass - hi, np.where(falling, mass - lo, 0.0))
    # Neither: the last point that is not above the mean.
    floor = np.where(hi >= mass, 3, np.where(hi >= 0.0, 2, np.where(lo <= mass, 1, 0)))
    rest = np.flatnonzero(~(rising | falling))
    atoms[rest, floor[rest]] = mass[rest]
    _merge_blocks(atoms, rest, (low, high), margin, cells.step)
    masses = np.maximum(atoms * (1.0 - 2.0 * np.max(errors, axis=1, keepdims=True)), 0.0).ravel()
    return Lattice(cells.step, cells.origin, cells.first, masses, cells.displacement, cells.lost)


def _merge_blocks(
    atoms: FloatArray,
    failed: IntArray,
    shares: tuple[FloatArray, FloatArray],
    margin: FloatArray,
    step: float,
) -> None:
    """Contract blocks of cells that could not be contracted together with the next ones.

    Only a few are steep enough for that, next to the least loss, so they are treated one by one.
    """
    low, high = shares
    heavy = failed[np.argsort(-atoms[failed].sum(1))][:_MOST_MERGED]
    taken: set[int] = set()
    for start in sorted(int(block) for block in heavy):
        for stop in range(start + 2, min(start + 6, len(atoms) + 1)):
            blocks = slice(start, stop)
            if start in taken or any(block in failed for block in range(start + 1, stop)):
                break
            merged = _contracted_block(
                low[blocks].ravel(), high[blocks].ravel(), float(margin[blocks].sum()), step
            )
            if merged is not None:
                atoms[blocks] = merged[:-1].reshape(stop - start, _BLOCK)
                taken.update(range(start, stop))
                break


def _contracted_block(
    low: FloatArray, high: FloatArray, margin: float, step: float
) -> FloatArray | None:
    """Return the atoms of one block of any number of cells, or None if no proof applies."""
    count = len(low)
    points = np.zeros(count + 1)
    points[:-1] += low
    points[1:] += high
    mass, numbers = float(points.sum()), np.arange(count + 1)
    for j in range(1, count - 1):
        # (r_j - r_i) / (r_j - r_(j+1)) for every point i.
        distances = np.expm1(step * (j - numbers)) / math.expm1(-step)
        hi = float(points @ distances) - margin
        if not 0.0 <= hi <= mass:
            continue
        outer = float((low + high)[j + 1 :].sum() + points[j + 1 :] @ (distances[j + 1 :] - 1.0))
        left = float(-(points[:j] @ distances[:j]))
        inner = left + float((low + high)[:j].sum()) - (mass - hi)
        if hi <= outer - margin or inner >= margin:
            atoms = np.zeros(count + 1)
            atoms[j], atoms[j + 1] = mass - hi, hi
            return atoms
    return None
