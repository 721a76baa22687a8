"""The best strategy for a workload, by the structure that the workload has."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from matrixdp.errors import InvalidParameterError
from matrixdp.privacy.guarantee import Neighbouring, checked_neighbouring
from matrixdp.workloads.accuracy import check_answers, squared_error
from matrixdp.workloads.certificate import Certificate
from matrixdp.workloads.explicit import Certified, Explicit, optimal_factor
from matrixdp.workloads.interior_point import Progress
from matrixdp.workloads.operator import Factor, FloatArray, Workload
from matrixdp.workloads.plain import (
    direct_reach_squared,
    direct_strategy,
    identity_error,
    identity_strategy,
)
from matrixdp.workloads.ranges import Identity, Total
from matrixdp.workloads.replacement import check_contrasts, replacement_factor
from matrixdp.workloads.replacement_bound import bound_from_spectra
from matrixdp.workloads.strategy import Strategy
from matrixdp.workloads.tables import has_optimal_tables, optimal_tables
from matrixdp.workloads.weighted import weighted_strategies

__all__ = ["OptimalStrategy", "optimal_strategy"]

_MOST_CELLS_OF_A_UNION = 2048
_MOST_CELLS_FOR_PAIRS = 1024
_MOST_ROUNDS = 12
_ROUND_GAIN = 1e-3
# Closer to its bound a strategy cannot be worse than another by more than nothing.
_CLOSE = 1e-9
_ROUNDED = 1.0 - 2.0**-48


@dataclass(frozen=True, eq=False)
class OptimalStrategy:
    """A strategy for a workload, with the proof of how good it is.

    Attributes
    ----------
    workload : Workload
        What is asked.
    strategy : Strategy
        What is measured.
    neighbouring : {"add-remove", "replace"}
        The relation that it is the best for.
    certificate : Certificate
        Its error and the bound below every strategy's.
    """

    workload: Workload
    strategy: Strategy
    neighbouring: Neighbouring
    certificate: Certificate

    @property
    def rmse(self) -> float:
        """The root mean squared error per query of a release with mu = 1."""
        return math.sqrt(self.certificate.value / self.workload.rows)


def optimal_strategy(
    workload: Workload, *, neighbouring: Neighbouring, progress: Progress | None = None
) -> OptimalStrategy:
    """Return the strategy of least total squared error under Gaussian noise, and its certificate.

    Parameters
    ----------
    workload : Workload
        The queries.
    neighbouring : {"add-remove", "replace"}
        Whether neighbouring histograms differ by one count, or by one count moved.
    progress : callable, optional
        Called with the number of steps and the relative gap, in each problem that is solved.

    Returns
    -------
    OptimalStrategy
        With ``strategy``, ``certificate`` and ``rmse``.

    Notes
    -----
    *Adding or removing a record.* On one attribute, for unions of up to 2,048 cells and for single
    products the strategy is optimal, to the gap that the certificate states. So it is for marginals
    of any size: their Gram matrix is the same from every cell, hence the SVD bound is attained. For
    other unions of products a single product of strategies is sought, factor by factor, then better
    weights for its measurements (see `residual` and `row_weights`); the bound is that of all parts
    together, from each attribute alone (see `union_bound`), and the gap a few per cent for most.

    *Replacing a record.* Up to 1,024 cells a strategy is sought for the pairs of cells (see
    `replacement`) to a gap of about 1e-3. Beyond, the strategy for adding and removing is used with
    its sensitivity for replacing, which may be far from the best, as its gap says.

    Where the strategy is not proven optimal, it is never worse than measuring every cell, or than
    measuring every query of a product or of a union of at most 2**26 entries.

    References
    ----------
    Li, Miklau, Hay, McGregor and Rastogi, *The matrix mechanism*, VLDB Journal 2015; McKenna,
    Miklau, Hay and Machanavajjhala, *Optimizing error of high-dimensional statistical queries under
    differential privacy*, PVLDB 2018.

    Examples
    --------
    >>> from matrixdp.workloads import Prefix, optimal_strategy
    >>> best = optimal_strategy(Prefix(128), neighbouring="add-remove")
    >>> round(best.rmse, 7), best.certificate.gap < 1e-9
    (2.3110012, True)
    """
    if not isinstance(workload, Workload):
        raise InvalidParameterError(
            f"workload is a {type(workload).__name__}: pass a workload; a matrix is a Dense"
        )
    relation = checked_neighbouring(neighbouring)
    search = _for_addition if relation == "add-remove" else _for_replacement
    strategy, bound = search(workload, progress)
    strategy, value = _best(workload, strategy, bound, relation)
    return OptimalStrategy(workload, strategy, relation, Certificate(value, bound))


class _Found(NamedTuple):
    strategy: Strategy
    lower_bound: float


def _best(
    workload: Workload, strategy: Strategy, bound: float, relation: Neighbouring
) -> tuple[Strategy, float]:
    """Return the strategy with its error, or a plain one that is better.

    It is not certain to be better than measuring every cell, or every query, where it is not
    optimal; and where float64 cannot tell the rank of the workload it does not answer it.
    """
    value = _error(workload, strategy, relation)
    if value <= bound * (1.0 + _CLOSE):
        return strategy, value
    if identity_error(workload, relation) < value * (1.0 - _CLOSE):
        plain = identity_strategy(workload)
        strategy, value = plain, _error(workload, plain, relation)
    direct = direct_strategy(workload) if _direct_may_win(workload, value, relation) else None
    error = math.inf if direct is None else _error(workload, direct, relation)
    if direct is not None and error < value:
        return direct, error
    return strategy, value


def _direct_may_win(workload: Workload, value: float, relation: Neighbouring) -> bool:
    """Tell whether the rank times the queries' own reach, as far as these are known, is less."""
    if len(workload.terms()) > 1 and not workload.writable:
        return False
    reach = direct_reach_squared(workload, relation)
    return min(workload.shape) * reach < value * (1.0 - _CLOSE)


def _error(workload: Workload, strategy: Strategy, relation: Neighbouring) -> float:
    """Return the total squared error at unit noise; without limit if something is not answered."""
    try:
        check_answers(workload, strategy)
    except InvalidParameterError:
        return math.inf
    return strategy.sensitivity(relation) ** 2 * squared_error(workload, strategy)


def _for_addition(
    workload: Workload, progress: Progress | None, relation: Neighbouring = "add-remove"
) -> _Found:
    terms = workload.terms()
    if has_optimal_tables(workload, "add-remove"):
        return _Found(*optimal_tables(workload, "add-remove"))
    if len(terms) == 1:
        parts = [_for_factor(factor, progress) for factor in terms[0]]
        bound = math.prod(part.lower_bound for part in parts)
        return _Found(Strategy([part.matrix for part in parts]), bound * _ROUNDED)
    if len(workload.dimensions) == 1 or workload.cells <= _MOST_CELLS_OF_A_UNION:
        whole = optimal_factor(Explicit.of(workload), progress)
        return _Found(Strategy([whole.matrix]), whole.lower_bound)
    return _for_union(workload, progress, relation)


def _for_factor(factor: Factor, progress: Progress | None) -> Certified:
    """Return the optimum on one attribute: cells and totals are their own."""
    if isinstance(factor, Identity):
        return Certified(np.eye(factor.cells), float(factor.cells))
    if isinstance(factor, Total):
        return Certified(np.ones((1, factor.cells)), 1.0)
    return optimal_factor(Explicit.of(factor), progress)


def _for_union(workload: Workload, progress: Progress | None, relation: Neighbouring) -> _Found:
    """Return the better of a product of strategies and of one with weights on its parts.

    In the product each is the optimum while the others stand still.
    """
    terms = workload.terms()
    grams = [[factor.gram() for factor in term] for term in terms]
    alone = {factor: _for_factor(factor, progress).lower_bound for term in terms for factor in term}
    bound = sum(math.prod(alone[factor] for factor in term) for term in terms)
    places = range(len(workload.dimensions))
    shares = np.array([[float(np.trace(gram)) for gram in row] for row in grams])
    parts: list[Certified | None] = [None for _ in places]
    best = math.inf
    for _ in range(_MOST_ROUNDS):
        for place in places:
            others = np.prod(np.delete(shares, place, axis=1), axis=1)
            mixed = _mixture(others / others.max(), [row[place] for row in grams])
            part = optimal_factor(Explicit(mixed, 2.0**-50, None), progress)
            parts[place] = part
            shares[:, place] = _shares(part, [row[place] for row in grams])
        error = float(np.sum(np.prod(shares, axis=1)))
        if not error < best * (1.0 - _ROUND_GAIN):
            break
        best = error
    product = Strategy([part.matrix for part in parts if part])
    weighted = weighted_strategies(workload, product, progress)
    found = (product, *weighted.strategies)
    strategy = min(found, key=lambda strategy: _error(workload, strategy, relation))
    return _Found(strategy, max(bound * _ROUNDED, weighted.lower_bound))


def _mixture(weights: FloatArray, grams: Sequence[FloatArray]) -> FloatArray:
    return np.asarray(sum(weight * gram for weight, gram in zip(weights, grams, strict=True)))


def _shares(part: Certified, grams: Sequence[FloatArray]) -> list[float]:
    """Return the squared error of one factor on each term, at sensitivity 1."""
    strategy = Strategy([part.matrix])
    inverse, size = strategy.inverses[0], strategy.sensitivity("add-remove")
    return [size**2 * float(np.einsum("ij,ij->", inverse, gram @ inverse)) for gram in grams]


def _for_replacement(workload: Workload, progress: Progress | None) -> _Found:
    check_contrasts(workload)
    if has_optimal_tables(workload, "replace"):
        return _Found(*optimal_tables(workload, "replace"))
    if workload.cells <= _MOST_CELLS_FOR_PAIRS:
        part = replacement_factor(Explicit.of(workload), progress)
        return _Found(Strategy([part.matrix]), part.lower_bound)
    return _Found(
        _for_addition(workload, progress, "replace").strategy, bound_from_spectra(workload)
    )
