r"""Lower bounds on the privacy loss of a mechanism, from samples of it on two neighbouring inputs.

If a mechanism is (epsilon, delta)-DP, every event E has ``P(E) <= e^epsilon Q(E) + delta``, with P
and Q its output on neighbouring inputs; if it is mu-Gaussian-DP, ``Phi^-1(P(E)) <= Phi^-1(Q(E)) +
mu`` as well. So an event that is likely under one input and unlikely under the other refutes a
claim. The events here are half-spaces. A quarter of the samples is used to choose a direction, on
which the outputs are projected, and a threshold. The others then bound both probabilities (Clopper
and Pearson 1934), so that the choice does not reduce the confidence.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from numpy.typing import NDArray

from matrixdp.covariance import Kronecker
from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.mechanisms.mechanism import Mechanism
from matrixdp.parameters import finite_array, positive_integer, proper_fraction
from matrixdp.privacy.bound import privacy_epsilon
from matrixdp.privacy.guarantee import Guarantee, HasGuarantee
from matrixdp.sensitivity.sets import FrobeniusBall

if TYPE_CHECKING:
    from matrixdp.mechanisms.matrix_mechanism import MatrixMechanism

__all__ = [
    "EmpiricalAudit",
    "audit_mechanism",
    "check_samples",
    "exposed_difference",
    "release_sampler",
    "simulation_sampler",
]

FloatArray = NDArray[np.float64]
Draw = Callable[[FloatArray], FloatArray]

_FEWEST_SAMPLES = 100  # a quarter of fewer is not enough to choose an event
_MOST_NUMBERS = 50_000_000  # of one input's samples: 400 MB
_THRESHOLDS = 400  # tried on the choosing quarter; more find hardly better events
# Two events, and for each of them two probabilities, are bounded at once.
_BOUNDS = 4
# Added to the variances, because the precision of a direction without noise would be infinite.
_RIDGE = 1e-12
# The part of an exposed difference that is spread over all entries, to find missing noise anywhere.
_SPREAD = 0.05
_SMALLEST_BOUND = 1e-300  # below, the entries of a difference would be subnormal


@dataclass(frozen=True, slots=True, kw_only=True)
class EmpiricalAudit:
    """What samples prove of a mechanism, at a confidence, beside what it claims.

    Attributes
    ----------
    epsilon : float
        The mechanism has at least this epsilon at ``guarantee.delta``; whatever its noise is.
    mu : float
        It has at least this mu: it is not mu-Gaussian-DP for any smaller one.
    guarantee : Guarantee
        What it claims.
    confidence : float
        The probability that both bounds hold, before the samples were drawn.
    samples : int
        How many were drawn of each input.
    """

    epsilon: float
    mu: float
    guarantee: Guarantee
    confidence: float
    samples: int

    @property
    def gaussian_epsilon(self) -> float:
        """The epsilon at ``guarantee.delta`` of Gaussian noise with that mu: usually closer."""
        return privacy_epsilon(self.mu, self.guarantee.delta)

    @property
    def refuted(self) -> bool:
        """Whether the samples contradict the claim."""
        return self.epsilon > self.guarantee.epsilon or self.mu > self.guarantee.mu


def simulation_sampler(mechanism: Mechanism[Any], generator: np.random.Generator) -> Draw:
    """Return how to draw from a mechanism's simulation: fast, and the same for the same seed."""
    return lambda matrix: np.asarray(mechanism.simulate(matrix, generator).array)


def release_sampler(mechanism: Mechanism[Any]) -> Draw:
    """Return how to draw exact releases with fresh keys: what really leaves the mechanism."""
    return lambda matrix: np.asarray(mechanism.release(matrix).value)


def audit_mechanism(
    mechanism: HasGuarantee,
    matrix: Any,
    neighbour: Any,
    draw: Draw,
    *,
    difference: Any = None,
    samples: int = 50_000,
    confidence: float = 0.999,
) -> EmpiricalAudit:
    """Lower-bound the epsilon and the mu of a mechanism from samples on two neighbouring inputs.

    Parameters
    ----------
    mechanism : Mechanism
        Its guarantee is what is audited; anything that has one will do.
    matrix, neighbour : array_like
        Two answers that the mechanism's relation allows to be neighbours; two histograms for a
        `MatrixMechanism`. The larger their difference, the more is found. See `exposed_difference`.
    draw : callable
        ``draw(matrix)`` returns one output: see `simulation_sampler` and `release_sampler`.
    difference : array_like, optional
        By how much the outputs would differ without noise, where that is not ``neighbour -
        matrix``, or the answers to it for a `MatrixMechanism`: several outputs side by side, for
        instance. It is only used to choose where to look.
    samples : int, optional
        How many outputs of each input.
    confidence : float, optional
        The probability with which a mechanism that keeps its claim passes; above 0, below 1.

    Notes
    -----
    A mechanism that passes is not proven private: bounds from samples are below the truth, by about
    ``10 / sqrt(samples)`` in mu at the default confidence, and one pair of inputs says nothing
    about others.

    Examples
    --------
    >>> import numpy as np
    >>> import matrixdp as mdp
    >>> ball = mdp.FrobeniusBall(1.0, neighbouring="replace")
    >>> mechanism = mdp.IMGM(ball, mdp.Budget(1.0, 1e-5))
    >>> matrix = np.zeros((2, 2))
    >>> found = mdp.audit.audit_mechanism(
    ...     mechanism, matrix, matrix + mdp.audit.exposed_difference(mechanism, (2, 2)),
    ...     mdp.audit.simulation_sampler(mechanism, np.random.default_rng(1)), samples=4000,
    ... )
    >>> found.refuted, 0 < found.mu < mechanism.mu
    (False, True)
    """
    first, second = finite_array(matrix, "matrix"), finite_array(neighbour, "neighbour")
    if first.shape != second.shape or np.array_equal(first, second):
        raise ShapeError(
            f"matrix of shape {first.shape} and neighbour of shape {second.shape} must have one "
            "shape and not be equal"
        )
    for array in (first, second):
        array.setflags(write=False)  # or a draw could change what the next one is made of
    change = _checked_difference(
        _without_noise(mechanism, second - first) if difference is None else difference
    )
    count, level = check_samples(samples, change.size), proper_fraction(confidence, "confidence")
    # In units of the difference, so that the size of the matrices does not matter.
    unit = float(np.max(np.abs(change)))
    with np.errstate(over="ignore"):
        before = _outputs(draw, first, count, change.size) / unit
        after = _outputs(draw, second, count, change.size) / unit
    # Outputs are finite, but dividing them by a tiny unit may overflow.
    if not (np.isfinite(before).all() and np.isfinite(after).all()):
        raise InvalidParameterError(
            f"matrix and neighbour differ by at most {unit!r}, too little beside the noise for "
            "floats: choose a neighbour that is further away"
        )
    choosing = count // 4
    # Centred before projecting: large common values would cost the scores their digits.
    centre = before[:choosing].mean(axis=0)
    before, after = before - centre, after - centre
    direction = _direction(before[:choosing], after[:choosing], change.ravel() / unit)
    scores = _Scores(before @ direction, after @ direction)
    miss = (1.0 - level) / _BOUNDS
    # Union bound: all four probabilities are within their bounds with the whole confidence.
    guarantee = mechanism.guarantee
    return EmpiricalAudit(
        epsilon=_best_bound(scores, choosing, miss, _epsilon_bound(guarantee.delta)),
        mu=_best_bound(scores, choosing, miss, _mu_bound),
        guarantee=guarantee,
        confidence=level,
        samples=count,
    )


def exposed_difference(mechanism: Mechanism[Any], shape: tuple[int, ...]) -> FloatArray:
    """Return a difference that a mechanism on the Frobenius ball protects nearly the least.

    It has the direction of the weakest noise, and a small part in every entry, so that an audit
    with it also finds noise that is missing somewhere else.

    For a `MatrixMechanism` it is the change of a histogram by the record whose measurements are the
    hardest to hide: one count more, or one count moved, which leaves a -1 where it was.

    Raises
    ------
    InvalidParameterError
        If the mechanism's set is not the Frobenius ball: choose a member of the set yourself.
    ShapeError
        If the shape does not fit the covariance, or a histogram the workload.
    """
    of_histograms = _of_histograms(mechanism)
    if of_histograms is not None:
        return _hardest_record(of_histograms, shape)
    if len(shape) != 2:
        raise ShapeError(f"shape={shape} must have two axes, as a matrix does")
    if not isinstance(mechanism.sensitivity, FrobeniusBall):
        raise InvalidParameterError(
            f"sensitivity is a {type(mechanism.sensitivity).__name__}: a difference is "
            "chosen only for a FrobeniusBall; pass a neighbour of your own"
        )
    bound = mechanism.sensitivity.bound
    if not bound >= _SMALLEST_BOUND:
        raise InvalidParameterError(
            f"sensitivity={bound!r} is below {_SMALLEST_BOUND!r}, where floats lose "
            "their digits: rescale the matrix"
        )
    covariance = mechanism.covariance
    covariance.check_shape((shape[0], shape[1]))
    if isinstance(covariance, Kronecker):
        # Along a side that is left out all are equally weak.
        rows, columns = (
            np.ones(length) if side.vectors is None else side.vectors[:, 0]
            for side, length in zip(covariance.sides, shape, strict=True)
        )
        weakest = np.outer(rows, columns)
    else:
        scales = covariance.entry_scales((shape[0], shape[1]))
        # Independent noise: all entries with the least noise alike.
        weakest = (scales <= scales.min()).astype(np.float64)
    difference = weakest / np.linalg.norm(weakest) + _SPREAD / math.sqrt(math.prod(shape))
    length = bound * (1.0 - 1e-12)  # inside the ball, however it is rounded
    return np.asarray(difference * (length / np.linalg.norm(difference)))


def _hardest_record(mechanism: "MatrixMechanism", shape: tuple[int, ...]) -> FloatArray:
    """Return the change of a histogram whose measurements are furthest apart."""
    cells = mechanism.workload.cells
    if shape not in {(cells,), mechanism.workload.dimensions}:
        raise ShapeError(
            f"shape={shape} is not that of a histogram for the workload: pass {(cells,)} or "
            f"{mechanism.workload.dimensions}"
        )
    records = np.eye(cells)
    measured = np.stack([mechanism.strategy.measure(record) for record in records])
    if mechanism.neighbouring == "add-remove":
        index = int(np.argmax(np.sum(np.square(measured), axis=1)))
        return np.asarray(records[index]).reshape(shape)
    # |a - b|^2 of all pairs, by |a|^2 - 2 a.b + |b|^2: the last digits do not matter here.
    products = measured @ measured.T
    squares = np.diagonal(products)
    apart = squares[:, None] - 2.0 * products + squares
    after, before = np.unravel_index(int(np.argmax(apart)), apart.shape)
    return np.asarray(records[after] - records[before]).reshape(shape)


def _without_noise(mechanism: HasGuarantee, change: FloatArray) -> FloatArray:
    """Return by how much outputs differ without noise if the inputs differ by a change."""
    of_histograms = _of_histograms(mechanism)
    return change if of_histograms is None else of_histograms.workload.apply(change)


def _of_histograms(mechanism: object) -> "MatrixMechanism | None":
    """Return a mechanism if its inputs are histograms and its outputs answers."""
    # Late: workloads are slow to import, and most audits need none.
    from matrixdp.mechanisms.matrix_mechanism import MatrixMechanism  # noqa: PLC0415

    return mechanism if isinstance(mechanism, MatrixMechanism) else None


@dataclass(frozen=True, slots=True)
class _Scores:
    """Projections of the outputs of both inputs; the second input's tend to be larger."""

    before: FloatArray
    after: FloatArray


_Bound = Callable[[FloatArray, FloatArray], FloatArray]


def _direction(before: FloatArray, after: FloatArray, difference: FloatArray) -> FloatArray:
    """Return Fisher's discriminant: the difference, weighted by the precision found in samples."""
    residuals = np.concatenate([before - before.mean(axis=0), after - after.mean(axis=0)])
    covariance = residuals.T @ residuals / len(residuals)
    largest = max(float(np.max(np.diagonal(covariance))), float(np.max(np.abs(difference))) ** 2)
    # Relative to the larger of noise and difference, so that it works without any noise, too.
    covariance[np.diag_indices_from(covariance)] += _RIDGE * largest
    return np.asarray(scipy.linalg.solve(covariance, difference, assume_a="pos"))


def _best_bound(scores: _Scores, choosing: int, miss: float, bound: _Bound) -> float:
    """Choose an event on the first scores and bound it on the others."""
    first = _Scores(scores.before[:choosing], scores.after[:choosing])
    second = _Scores(scores.before[choosing:], scores.after[choosing:])
    levels = np.linspace(0.0, 1.0, _THRESHOLDS + 2)[1:-1]
    thresholds = np.quantile(np.concatenate([first.before, first.after]), levels)
    # Both sides of each threshold: which one is the likelier event depends on the direction.
    found = {above: _bounds(first, thresholds, miss, bound, above=above) for above in (True, False)}
    # Only the choice is made on these samples; the bound below comes from the others.
    above = bool(found[True].max() >= found[False].max())
    chosen = thresholds[[int(np.argmax(found[above]))]]
    return max(0.0, float(_bounds(second, chosen, miss, bound, above=above)[0]))


def _bounds(
    scores: _Scores, thresholds: FloatArray, miss: float, bound: _Bound, *, above: bool
) -> FloatArray:
    """Return the bounds of the events that a score is above a threshold, or those below it.

    Scores above one are likelier after the change, scores below it before. ``bound(p, q)`` gets a
    lower bound of the likelier and an upper bound of the other probability.
    """
    count = len(scores.before)
    counts = [_count(side, thresholds, above=above) for side in (scores.after, scores.before)]
    likely, unlikely = counts if above else counts[::-1]
    rest = count - unlikely
    # Clopper and Pearson's quantiles. They are undefined at counts of 0 and of all, where the
    # bounds are 0 and 1; the maxima only avoid NaN there.
    lower = scipy.special.betaincinv(np.maximum(likely, 1), count - likely + 1, miss)
    upper = scipy.special.betaincinv(unlikely + 1, np.maximum(rest, 1), 1.0 - miss)
    return bound(np.where(likely > 0, lower, 0.0), np.where(rest > 0, upper, 1.0))


def _count(values: FloatArray, thresholds: FloatArray, *, above: bool) -> NDArray[np.intp]:
    """Return how many values lie above, or below, each threshold."""
    ordered = np.sort(values)
    if above:
        return len(ordered) - np.searchsorted(ordered, thresholds, side="right")
    return np.searchsorted(ordered, thresholds, side="left")


def _epsilon_bound(delta: float) -> _Bound:
    """Return the bound ``log((p - delta) / q)``, which is -inf where p is below delta."""

    def bound(lower: FloatArray, upper: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore"):
            return np.log(np.maximum(lower - delta, 0.0) / upper)

    return bound


def _mu_bound(lower: FloatArray, upper: FloatArray) -> FloatArray:
    """Return ``Phi^-1(p) - Phi^-1(q)``."""
    return np.asarray(scipy.special.ndtri(lower) - scipy.special.ndtri(upper))


def check_samples(samples: int, entries: int) -> int:
    """Return a number of samples, or raise if it is too small or does not fit in memory."""
    count = positive_integer(samples, "samples")
    # Several samples per entry, because a covariance of all entries is estimated from a quarter.
    fewest, most = max(_FEWEST_SAMPLES, 8 * entries), _MOST_NUMBERS // entries
    if not fewest <= most:
        raise InvalidParameterError(
            f"outputs of {entries} entries are too large to learn their noise from: audit a matrix "
            f"of at most {math.isqrt(_MOST_NUMBERS // 8)} entries"
        )
    if not fewest <= count <= most:
        raise InvalidParameterError(
            f"samples={count} must be from {fewest} to {most} for outputs of {entries} entries, "
            "to learn their noise from"
        )
    return count


def _checked_difference(difference: Any) -> FloatArray:
    found = finite_array(difference, "difference")
    if not found.any():
        raise InvalidParameterError("difference is zero: equal outputs show nothing")
    return found


def _outputs(draw: Draw, matrix: FloatArray, count: int, size: int) -> FloatArray:
    """Return outputs as rows, or raise if one has another size or is not finite."""
    found = np.empty((count, size))
    for row in found:
        output = np.ravel(draw(matrix))
        if output.size != size:
            raise ShapeError(
                f"draw returned {output.size} numbers where {size} differ: pass the difference of "
                "its outputs"
            )
        row[:] = output
    if not np.isfinite(found).all():
        raise InvalidParameterError(
            "draw returned numbers beyond the range of a float: rescale the matrix"
        )
    return found
