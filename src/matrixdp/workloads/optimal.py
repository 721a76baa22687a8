"""The best strategy for a workload, by the structure that the workload has."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from matrixdp.errors import CalibrationError, InvalidParameterError
from matrixdp.privacy.guarantee import Neighbouring, checked_neighbouring
from matrixdp.workloads.accuracy import check_answers, squared_error
from matrixdp.workloads.certificate import Certificate
from matrixdp.workloads.dual import Progress
from matrixdp.workloads.explicit import Certified, optimal_factor
from matrixdp.workloads.operator import Factor, FloatArray, Workload
from matrixdp.workloads.ranges import Identity, Total
from matrixdp.workloads.replacement import replacement_bound, replacement_factor
from matrixdp.workloads.strategy import Strategy

__all__ = ["OptimalStrategy", "optimal_strategy"]

_MOST_CELLS_OF_A_UNION = 2048
_MOST_CELLS_FOR_PAIRS = 1024
_MOST_CELLS = 2**26
_MOST_ROUNDS = 12
_ROUND_GAIN = 1e-7


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
    other unions of products the best single product of strategies is sought, factor by factor; the
    bound is then the sum of the parts' optima, and the gap may be wide.

    *Replacing a record.* Up to 1,024 cells a strategy is sought for the pairs of cells (see
    `replacement`) to a gap of one or two 1e-3. Beyond, the strategy for adding and removing is used
    with its sensitivity for replacing, which may be far from the best, as its gap says.

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
    if checked_neighbouring(neighbouring) == "replace":
        found = _for_replacement(workload, progress)
    else:
        found = _for_addition(workload, progress)
    try:
        check_answers(workload, found.strategy)
    except InvalidParameterError:
        raise CalibrationError(
            "the workload is so close to dependent that float64 cannot tell its rank: leave out "
            "queries that others nearly imply, or answer them by the identity strategy"
        ) from None
    return found


def _for_addition(workload: Workload, progress: Progress | None) -> OptimalStrategy:
    terms = workload.terms()
    if all(isinstance(factor, Identity | Total) for term in terms for factor in term):
        return _for_marginals(workload)
    if len(terms) == 1:
        parts = [optimal_factor(f.gram(), f.gram_error, progress) for f in terms[0]]
        bound = math.prod(part.certificate.lower_bound for part in parts)
        return _finished(workload, Strategy([part.matrix for part in parts]), bound)
    if len(workload.dimensions) == 1 or workload.cells <= _MOST_CELLS_OF_A_UNION:
        whole = optimal_factor(workload.gram(), workload.gram_error, progress)
        return _finished(workload, Strategy([whole.matrix]), whole.certificate.lower_bound)
    return _for_union(workload, progress)


def _finished(workload: Workload, strategy: Strategy, bound: float) -> OptimalStrategy:
    value = strategy.sensitivity("add-remove") ** 2 * squared_error(workload, strategy)
    return OptimalStrategy(
        workload, strategy, "add-remove", Certificate(value, bound * (1.0 - 2.0**-48))
    )


def _for_marginals(workload: Workload) -> OptimalStrategy:
    """Return the optimum for products of Identity and Total.

    Let each attribute have the orthonormal basis of the mean and of contrasts. The Gram matrix is
    diagonal in their products, with the eigenvalue
    ``sum over tables that keep T of prod of the sizes of what they sum over`` wherever T is the set
    of attributes with a contrast. ``Q = G^(1/2)`` has a constant diagonal, so that it is optimal
    and its error the SVD bound.
    """
    sizes = workload.dimensions
    if not workload.cells <= _MOST_CELLS:
        raise InvalidParameterError(
            f"the workload has {workload.cells} cells, more than the {_MOST_CELLS} of a histogram "
            "in memory: leave out attributes, or merge their cells"
        )
    eigenvalues = np.zeros(sizes)
    for term in workload.terms():
        summed = [isinstance(f, Total) and size > 1 for f, size in zip(term, sizes, strict=True)]
        corner = tuple(slice(0, 1) if over else slice(None) for over in summed)
        eigenvalues[corner] += math.prod(
            size for over, size in zip(summed, sizes, strict=True) if over
        )
    weights = eigenvalues**0.25
    bound = math.fsum(np.sqrt(eigenvalues).ravel().tolist()) ** 2 / workload.cells
    bases = [np.asarray(linalg.helmert(size, full=True)) for size in sizes]
    norm = math.sqrt(float(np.sum(np.square(weights))) / workload.cells)
    return _finished(workload, Strategy(bases, weights / norm), bound * (1.0 - 2.0**-48))


def _for_union(workload: Workload, progress: Progress | None) -> OptimalStrategy:
    """Return a product of strategies, each the optimum while the others stand still."""
    terms = workload.terms()
    grams = [[factor.gram() for factor in term] for term in terms]
    alone = {
        id(factor): optimal_factor(gram, factor.gram_error, progress).certificate.lower_bound
        for term, row in zip(terms, grams, strict=True)
        for factor, gram in zip(term, row, strict=True)
    }
    bound = sum(math.prod(alone[id(factor)] for factor in term) for term in terms)
    places = range(len(workload.dimensions))
    shares = np.array([[float(np.trace(gram)) for gram in row] for row in grams])
    parts: list[Certified | None] = [None for _ in places]
    best = math.inf
    for _ in range(_MOST_ROUNDS):
        for place in places:
            others = np.prod(np.delete(shares, place, axis=1), axis=1)
            mixed = _mixture(others / others.max(), [row[place] for row in grams])
            part = optimal_factor(mixed, 2.0**-50, progress)
            parts[place] = part
            shares[:, place] = _shares(part, [row[place] for row in grams])
        error = float(np.sum(np.prod(shares, axis=1)))
        if not error < best * (1.0 - _ROUND_GAIN):
            break
        best = error
    return _finished(workload, Strategy([part.matrix for part in parts if part]), bound)


def _mixture(weights: FloatArray, grams: Sequence[FloatArray]) -> FloatArray:
    return np.asarray(sum(weight * gram for weight, gram in zip(weights, grams, strict=True)))


def _shares(part: Certified, grams: Sequence[FloatArray]) -> list[float]:
    """Return the squared error of one factor on each term, at sensitivity 1."""
    strategy = Strategy([part.matrix])
    inverse, size = strategy.inverses[0], strategy.sensitivity("add-remove")
    return [size**2 * float(np.einsum("ij,ij->", inverse, gram @ inverse)) for gram in grams]


def _for_replacement(workload: Workload, progress: Progress | None) -> OptimalStrategy:
    if workload.cells <= _MOST_CELLS_FOR_PAIRS:
        part = replacement_factor(workload.gram(), progress)
        return OptimalStrategy(workload, Strategy([part.matrix]), "replace", part.certificate)
    strategy = _for_addition(workload, progress).strategy
    value = strategy.sensitivity("replace") ** 2 * squared_error(workload, strategy)
    bound = 0.0
    for term in workload.terms():
        spectra = [_singular_values(factor) for factor in term]
        roots = math.prod(float(np.sum(values)) for values in spectra)
        largest = math.prod(float(values[-1]) for values in spectra)
        bound += replacement_bound(roots, largest, workload.cells)
    return OptimalStrategy(workload, strategy, "replace", Certificate(value, bound))


def _singular_values(factor: Factor) -> FloatArray:
    return np.asarray(np.sqrt(np.maximum(linalg.eigvalsh(factor.gram()), 0.0)))
