"""Centred second moments."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.integer_sums import Part, RunningSum
from matrixdp.mechanisms.labelled import MatrixLabels
from matrixdp.parameters import positive_integer
from matrixdp.privacy.guarantee import Neighbouring, checked_neighbouring
from matrixdp.queries.additive import AdditiveQuery, shown_most
from matrixdp.queries.bounds import PublicBounds
from matrixdp.queries.exact_sums import (
    MOST_RECORDS,
    block_rows,
    checked_most,
    column_sums,
    for_products,
    power_of_two_up,
    rounded_quotients,
)
from matrixdp.queries.grid import GRID_BITS, RecordGrid, whole_blocks
from matrixdp.queries.preview import AnswerRanges
from matrixdp.queries.products import product_bits, product_rounding
from matrixdp.queries.query import check_bounds, check_public_count, labels_of
from matrixdp.queries.sources import record_blocks
from matrixdp.queries.units import symmetric_set, units_of
from matrixdp.rounding import float_up
from matrixdp.sensitivity.scaled import ScaledSymmetricBall
from matrixdp.sensitivity.sets import SymmetricBall

__all__ = ["SampleCovariance"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class SampleCovariance(AdditiveQuery):
    """The covariance matrix of the records about their own mean, over a public count: symmetric.

    That is ``sum (x - m)(x - m)^T / count`` with m the mean of the records.

    Parameters
    ----------
    bounds : PublicBounds
        Enforced on every record.
    neighbouring : {"add-remove", "replace"}
        What a record's change is.
    count : int
        A public divisor; 1 gives the scatter matrix. Under ``replace`` the number of records is
        public, and must be this one. Under ``add-remove`` it is private: choose a divisor without
        looking at the data.
    most_records : int, optional
        A public bound of the number of records; more are refused.

    Notes
    -----
    *Sensitivity.* Let S be the scatter matrix (count 1), and D the diameter of the records' domain:
    2 C for a norm C, the diagonal for a box, the smaller one for both.

    - *Adding* x to n records of mean m changes S by ``n / (n + 1) (x - m)(x - m)^T``, of norm below
      ``|x - m|^2 <= D^2``. It comes as close to that as one likes as n grows, with all records at
      one point and x opposite.
    - *Replacing* x by y among n records, with m the mean of the n - 1 others, changes S by
      ``(n - 1) / n (u u^T - v v^T)`` for ``u = x - m``, ``v = y - m``. Its norm is at most
      ``(n - 1) / n D^2``, attained by y at m and x opposite:

      Since ``u u^T - v v^T`` is the symmetric part of ``(u - v)(u + v)^T``, and ``u + v`` is linear
      in m, its norm is convex in m and largest at an extreme point of the domain. *Box:* m is a
      corner then, so that after reflecting coordinates u and v have entries from 0 to the width
      ``w_i``; entry (i, j) of the difference is at most ``w_i w_j``, and their norm is ``|w|^2 =
      D^2``. *Norm:* m has norm C then. Put C = 1; u is in the ball around -m whose boundary
      contains 0, so ``|u| <= 2 cos a`` with a the angle from -m, and ``|v| <= 2 cos b``. The
      squared norm ``|u|^4 + |v|^4 - 2 (u.v)^2`` is convex in ``|u|^2`` and in ``|v|^2``, so it is
      largest where each is 0 (then it is at most 16) or maximal. It grows with the angle g between
      u and v up to a right angle. If ``a + b >= pi/2`` it is at most ``16 (cos^4 a + cos^4 b) <=
      16``. Otherwise ``g <= a + b``, and at ``g = a + b`` with ``h = b - a`` it is ``16 sin^2 g
      (1 + cos^2 g - (cos h - cos g)^2 / 2) <= 16 (1 - cos^4 g) <= 16``. So the norm is at most
      ``4 = D^2``.

    For both a norm and a box, D may exceed the true diameter, by at most a factor of 2: unless the
    norm allows the whole box, a record of norm C and 0 are C apart. For adding a record, D is then
    the distance of two records that `Sum` derives, if that is smaller. Not for replacing one: the
    proof is about a ball or a box, and three points at one distance change more than its square.

    If the records are known to be near 0, `Gram` of the same bounds has a quarter of this
    sensitivity.

    *Units.* For ranges alone the set is a ball in the lengths w of the ranges, in which D is
    ``sqrt(d)`` for d columns: columns divided by w have a box of that diagonal, and their
    covariance is that of the records over ``w_i w_j``.

    *Rounding.* The quotient is an exact rational, rounded to a multiple of ``u step_i step_j``,
    where u is a power of two and at most ``2**20 / count``, and the steps are those of the grid or
    finer. ``u |steps|^2`` is added to the bound: a share of at most ``d 2**-22`` for a norm and d
    columns, and of 2**-20 for ranges. For a bound of ``2**c`` records other than 2**30, u and these
    shares are ``2**(c - 30)`` times as large, so that float64 holds every entry.

    Examples
    --------
    >>> query = SampleCovariance(PublicBounds(2, norm=1.0), "replace", count=4)
    >>> round(query.sensitivity.bound, 4)  # 4 C^2 (n - 1) / n^2
    0.75
    >>> query.evaluate([[0, 0], [0.5, 0], [0, 0.5], [0.5, 0.5]]).tolist()
    [[0.0625, 0.0], [0.0, 0.0625]]
    """

    bounds: PublicBounds
    neighbouring: Neighbouring
    count: int
    most_records: int = MOST_RECORDS

    def __post_init__(self) -> None:
        """Raise unless these are bounds, a relation, a count and a bound of the records."""
        check_bounds(self.bounds)
        checked_neighbouring(self.neighbouring)
        object.__setattr__(self, "most_records", checked_most(self.most_records))
        object.__setattr__(self, "count", positive_integer(self.count, "count"))

    @cached_property
    def sensitivity(self) -> SymmetricBall | ScaledSymmetricBall:
        """A ball of symmetric matrices, in the units of the columns."""
        units, columns = units_of(self.bounds, differences=True), self.bounds.columns
        if units is not None:
            # A column over the length of its range changes by at most 1, in steps up to 2**-20.
            rounding = self._unit * columns * Fraction(1, 2**40)
            bound = float_up(self._share * columns + rounding)
            return symmetric_set(bound, units, self.neighbouring)
        adding = self.neighbouring == "add-remove"
        square = self.bounds.squared_distance if adding else self.bounds.squared_diameter
        rounding = product_rounding(self._steps, self._steps, self._unit)
        return SymmetricBall(float_up(self._share * square + rounding), self.neighbouring)

    @property
    def _share(self) -> Fraction:
        """The most that the matrix changes by, over the squared distance of two records."""
        # One record is its own mean, whatever it is: replacing it changes nothing.
        adding = self.neighbouring == "add-remove"
        return Fraction(1, self.count) if adding else Fraction(self.count - 1, self.count**2)

    @property
    def labels(self) -> MatrixLabels | None:
        """The names of the columns, twice."""
        return labels_of(self.bounds)

    @property
    def ranges(self) -> AnswerRanges:
        """From 0 to a quarter of a squared width, or as far from 0 either way."""
        widths = self.bounds.widths
        lengths = np.multiply.outer(widths, widths) / 2.0
        np.fill_diagonal(lengths, widths**2 / 4.0)
        return AnswerRanges(lengths, of_each_record=False)

    @cached_property
    def _grid(self) -> RecordGrid:
        return RecordGrid(self.bounds)

    @cached_property
    def _finer(self) -> FloatArray:
        """How many of the steps that entries are rounded in make one of the grid: powers of two.

        The range of a column has from 2**20 to 2**21 of these, or up to 2**22 if one is enough: a
        range far from 0 has fewer steps of the grid.
        """
        exponents = np.frexp(self.bounds.widths / self._grid.steps)[1]
        return np.asarray(np.ldexp(1.0, np.maximum(GRID_BITS - exponents, 0)))

    @property
    def _steps(self) -> FloatArray:
        return np.asarray(self._grid.steps / self._finer)

    @property
    def _unit(self) -> Fraction:
        """What entries are rounded to multiples of, in products of steps."""
        # Of n records the scatter is at most n 2**42 products of steps: 2**53 units.
        return power_of_two_up(Fraction(2 ** product_bits(self.most_records), self.count))

    @property
    def columns_read(self) -> tuple[str, ...] | None:
        """The names of the columns, if they have names."""
        return self.bounds.names

    def partial(self, data: Any) -> Part:
        """Return the products and the sum of the records of a block or a source; private."""
        columns, records = self.bounds.columns, 0
        products, total = RunningSum((columns, columns)), RunningSum((1, columns))
        product = np.empty((columns, columns))
        blocks = record_blocks(data, self.bounds.read, block_rows(columns))
        for whole in for_products(whole_blocks(blocks, self._grid)):
            products.add(np.matmul(whole.T, whole, out=product))
            total.add(column_sums(whole)[None])
            records += len(whole)
        return Part(records, (products.total(), total.total()))

    def _answer(self, part: Part) -> FloatArray:
        steps, records = self._steps, part.records
        check_public_count(records, self.count, self.neighbouring)
        products, sums = (each.exact() for each in part.sums)
        # In Python integers: n sum x x^T and s s^T nearly cancel, and exceed 64 bits.
        scatter = records * products - sums.T * sums
        finer = np.array(list(map(int, self._finer)), dtype=object)
        scatter *= np.multiply.outer(finer, finer)
        quotients = rounded_quotients(scatter, records * self.count * self._unit)
        units = steps[:, None] * steps * float(self._unit)
        return np.asarray(quotients * units)

    def __str__(self) -> str:
        """Say what is computed."""
        most = shown_most(self.most_records)
        return f"covariance of records over the public count {self.count}, {self.bounds}{most}"
