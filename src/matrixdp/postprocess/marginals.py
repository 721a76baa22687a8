"""Tables of counts that overlap, made to agree: the best linear unbiased estimate of all of them.

Notation: A is the set of attributes of a table, S a subset of it. A table is the sum of one
component for each S: the part of its S-marginal that no smaller marginal holds. Components of one
table are orthogonal, so noise of one scale is independent between them, and least squares can treat
each S by itself.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

import numpy as np

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.mechanisms.release import Release
from matrixdp.parameters import finite_array, members_of, positive_integer
from matrixdp.postprocess.noise_law import noise_law
from matrixdp.postprocess.step import FloatArray
from matrixdp.privacy.composition import composed_mu
from matrixdp.privacy.guarantee import Guarantee

__all__ = ["ConsistentMarginals", "Marginal"]

Attributes = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Marginal:
    """A released table of counts by some attributes.

    Parameters
    ----------
    attributes : sequence of str
        The names of the attributes, in the order of the table's axes.
    shape : sequence of int
        The number of cells of each attribute.
    release : Release
        The counts with noise of one scale; row by row they are the table, as `ContingencyTable`
        lays it out: rows for the first attribute, columns for the others.
    """

    attributes: Attributes
    shape: tuple[int, ...]
    release: Release

    def __post_init__(self) -> None:
        """Raise unless the release can be a table of these attributes."""
        names = members_of(self.attributes, "attributes", "a sequence of names")
        if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
            raise InvalidParameterError(
                f"attributes={names!r} must be names, each of them once: pass a tuple of text"
            )
        members = members_of(self.shape, "shape", "one number of cells for each attribute")
        shape = tuple(positive_integer(cells, "shape") for cells in members)
        if len(shape) != len(names):
            raise ShapeError(
                f"shape={shape} has {len(shape)} numbers for {len(names)} attributes: pass the "
                "number of cells of each"
            )
        if not isinstance(self.release, Release):
            raise InvalidParameterError(
                f"release is a {type(self.release).__name__}: pass the result of "
                "ContingencyTable.release or of a mechanism's release()"
            )
        if math.prod(self.release.shape) != math.prod(shape):
            raise ShapeError(
                f"release has shape {self.release.shape}, which is not a table of shape {shape}"
            )
        if noise_law(self.release.covariance, "Marginal").symmetric:
            raise InvalidParameterError(
                "release has symmetric noise, which a table of counts has not: release it on a "
                "FrobeniusBall"
            )
        object.__setattr__(self, "attributes", names)
        object.__setattr__(self, "shape", shape)

    @property
    def sizes(self) -> dict[str, int]:
        """The number of cells of each attribute."""
        return dict(zip(self.attributes, self.shape, strict=True))

    @property
    def noise_scale(self) -> float:
        """The standard deviation of every count's noise."""
        return noise_law(self.release.covariance, "Marginal").scale

    def table(self) -> FloatArray:
        """Return the released counts, with an axis for each attribute."""
        return finite_array(self.release.value, "release").reshape(self.shape)


class _Component(NamedTuple):
    """The estimate of one component, with its attributes in alphabetical order."""

    value: FloatArray
    scale: float  # the standard deviation along each direction of the space of such components


@dataclass(frozen=True, eq=False, repr=False)
class ConsistentMarginals:
    """Tables of counts whose shared sums agree, with the least variance.

    Every sum that several tables hold is estimated from all of them, each weighted by its
    precision. That is generalised least squares in closed form: no other linear unbiased estimate
    has less variance in any count. It is unbiased, and so it may leave negative counts.

    Parameters
    ----------
    marginals : sequence of Marginal
        Released independently, under one relation; an attribute has the same cells in all.

    Attributes
    ----------
    tables : tuple of ndarray
        The tables in the order of the marginals, with an axis for each attribute.
    standard_errors : tuple of float
        The standard deviation of each table's counts, which is the same in all its cells.

    Notes
    -----
    *Guarantee.* That of all releases together: ``sqrt(sum of mu^2)``, if each mu was fixed before
    the first release, at the smallest of their deltas. Where they were chosen on the way, the
    `PrivacyFilter` that paid for them states the guarantee.

    A table over A with noise variance s^2 shows the component of S in its sums with variance
    ``s^2 * (cells of A without S)``. The estimates are spread back over the cells.

    Examples
    --------
    >>> import numpy as np
    >>> import matrixdp as mdp
    >>> from matrixdp.postprocess import ConsistentMarginals, Marginal
    >>> counts = np.arange(24.0).reshape(2, 3, 4)
    >>> ball = mdp.FrobeniusBall(1.0, neighbouring="add-remove")
    >>> first, second = mdp.Budget(epsilon=1.0, delta=1e-6).split(2)
    >>> sex_age = mdp.IMGM(ball, first).release(counts.sum(axis=2))
    >>> age_town = mdp.IMGM(ball, second).release(counts.sum(axis=0))
    >>> both = ConsistentMarginals(
    ...     [Marginal(("sex", "age"), (2, 3), sex_age), Marginal(("age", "town"), (3, 4), age_town)]
    ... )
    >>> by_age = [both.tables[0].sum(axis=0), both.tables[1].sum(axis=1)]
    >>> bool(np.allclose(*by_age))
    True
    >>> [error < release.noise_scale for error, release in
    ...     zip(both.standard_errors, (sex_age, age_town))]
    [True, True]
    """

    marginals: tuple[Marginal, ...]
    tables: tuple[FloatArray, ...] = field(init=False)
    standard_errors: tuple[float, ...] = field(init=False)
    guarantee: Guarantee = field(init=False)

    def __init__(self, marginals: Iterable[Marginal]) -> None:
        members = members_of(marginals, "marginals", "a sequence of Marginal")
        _check_together(members)
        releases = [member.release for member in members]
        guarantee = Guarantee.of_mu(
            composed_mu(release.guarantee.mu for release in releases),
            delta=min(release.guarantee.delta for release in releases),
            neighbouring=releases[0].guarantee.neighbouring,
        )
        subsets = sorted({subset for member in members for subset in _subsets(member)})
        found = {subset: _estimated(subset, members) for subset in subsets}
        made = [_assembled(member, found) for member in members]
        object.__setattr__(self, "marginals", members)
        object.__setattr__(self, "tables", tuple(table for table, _ in made))
        object.__setattr__(self, "standard_errors", tuple(error for _, error in made))
        object.__setattr__(self, "guarantee", guarantee)

    def __repr__(self) -> str:
        """Say which tables and what is promised."""
        names = ["/".join(member.attributes) or "total" for member in self.marginals]
        return f"ConsistentMarginals({', '.join(names)}: {self.guarantee})"


def _check_together(members: Sequence[Marginal]) -> None:
    """Raise unless the tables can be made to agree."""
    if not members:
        raise InvalidParameterError("marginals is empty: pass at least one Marginal")
    sizes: dict[str, int] = {}
    for index, member in enumerate(members):
        if not isinstance(member, Marginal):
            raise InvalidParameterError(
                f"marginals[{index}] is a {type(member).__name__}: pass a Marginal"
            )
        for name, cells in member.sizes.items():
            if sizes.setdefault(name, cells) != cells:
                raise ShapeError(
                    f"marginals[{index}] has {cells} cells of {name!r}, and another one has "
                    f"{sizes[name]}: tables must share their cells"
                )
    if len({id(member.release) for member in members}) < len(members):
        raise InvalidParameterError(
            "marginals holds one release twice: its noise would count as independent; leave one out"
        )
    relations = {member.release.guarantee.neighbouring for member in members}
    if len(relations) > 1:
        raise InvalidParameterError(
            "marginals were released under 'add-remove' and under 'replace': release all under one "
            "relation, or they have no guarantee together"
        )


def _subsets(member: Marginal) -> list[Attributes]:
    """Return the sets of attributes that a table has a component of, each in alphabetical order."""
    # An attribute of one cell has no component: it says nothing beyond the sum over it.
    names = sorted(name for name, cells in member.sizes.items() if cells > 1)
    return [chosen for size in range(len(names) + 1) for chosen in combinations(names, size)]


def _estimated(subset: Attributes, members: Sequence[Marginal]) -> _Component:
    """Return the component of a set, from all tables that hold it, weighted by precision."""
    holders = [member for member in members if set(subset) <= set(member.attributes)]
    # In units of the smallest scale: squares of very small or large scales leave the range.
    unit = min(member.noise_scale for member in holders)
    ratios = [unit / member.noise_scale for member in holders]
    weights = [r * r / _cells_beyond(m, subset) for r, m in zip(ratios, holders, strict=True)]
    total = math.fsum(weights)
    value = np.asarray(
        sum(
            (weight / total) * _shown(member, subset)
            for weight, member in zip(weights, holders, strict=True)
        )
    )
    return _Component(value, unit / math.sqrt(total))


def _shown(member: Marginal, subset: Attributes) -> FloatArray:
    """Return the component of a set that a table shows in its sums."""
    axes = [member.attributes.index(name) for name in subset]
    others = [axis for axis in range(len(member.shape)) if axis not in axes]
    table = member.table().transpose(*axes, *others)
    value = table.reshape(*table.shape[: len(axes)], -1).sum(axis=-1)
    for axis in range(len(axes)):
        value = value - value.mean(axis=axis, keepdims=True)
    return np.asarray(value)


def _cells_beyond(member: Marginal, subset: Attributes) -> int:
    return math.prod(cells for name, cells in member.sizes.items() if name not in subset)


def _assembled(member: Marginal, found: dict[Attributes, _Component]) -> tuple[FloatArray, float]:
    """Return a table as the sum of its components, and the standard deviation of its cells."""
    table, errors = np.zeros(member.shape), []
    for subset in _subsets(member):
        component, beyond = found[subset], _cells_beyond(member, subset)
        # From alphabetical order to that of the table, with an axis of 1 for the others.
        order = [subset.index(name) for name in member.attributes if name in subset]
        spread = [cells if name in subset else 1 for name, cells in member.sizes.items()]
        table += component.value.transpose(order).reshape(spread) / beyond
        # Taking out the mean over n cells leaves 1 - 1/n of the variance.
        left = math.prod(1.0 - 1.0 / member.sizes[name] for name in subset)
        errors.append(component.scale * math.sqrt(left) / beyond)
    return table, math.hypot(*errors)
