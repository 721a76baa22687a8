"""Bounds of the privacy curve from atoms on one lattice: for plans of a few steps."""

from collections.abc import Iterator
from dataclasses import replace

from matrixdp.privacy.events import TooLittleNoiseError
from matrixdp.privacy.loss.composition import Composed, composed
from matrixdp.privacy.loss.curve import CurveBounds, Steps
from matrixdp.privacy.loss.lattice import (
    Lattice,
    cells_of,
    coarsened,
    contracted,
    exchanged,
    spread,
)
from matrixdp.privacy.loss.pairs import Pair
from matrixdp.privacy.loss.tilting import Cumulants, Saddle

__all__ = ["LatticeCurve"]

# Twice coarsened, e^-step still leaves all masses of a step's lowest losses normal floats.
_WIDEST_STEP = 128.0


class LatticeCurve(CurveBounds):
    """Bounds from the atoms of one lattice, whose step is what the lower bound needs.

    The upper bound is closer by itself, so that a lattice with twice the step will do for it; and
    one with four times for the direction that nearly always costs less.
    """

    def __init__(self, steps: Steps, step: float, tail: float) -> None:
        super().__init__(steps, tail)
        if not step <= _WIDEST_STEP:
            raise TooLittleNoiseError(f"noise whose losses are resolved in steps of {step!r} only")
        cells = [(cells_of(pair, step, tail), count) for pair, count in steps]
        self._upper = [(coarsened(spread(part)), count) for part, count in cells]
        self._lower = [(contracted(part), count) for part, count in cells]
        self._cumulants = Cumulants(steps, tail)

    def _own(self, saddle: Saddle) -> tuple[Composed, Composed]:
        tilted = self._cumulants.softened(saddle)
        return composed(self._upper, tilted), composed(self._lower, tilted, for_lower=True)

    def _exchanged(self, epsilon: float, log_delta: float) -> Iterator[Composed]:
        cumulants = Cumulants(self._steps, self._tail, exchanged=True)
        own, enough = cumulants.for_epsilon(epsilon), cumulants.below(log_delta)
        saddle = replace(min(own, enough, key=lambda one: one.tilt), epsilon=epsilon)
        for coarse in (True, False):
            yield composed(
                [
                    (_exchanged(pair, coarsened(lattice) if coarse else lattice), count)
                    for (lattice, count), (pair, _) in zip(self._upper, self._steps, strict=True)
                ],
                saddle,
            )


def _exchanged(pair: Pair, lattice: Lattice) -> Lattice:
    """Return atoms that dominate the exchanged pair; of a symmetric pair they are the same ones.

    Those of a release could not be had by exchanging: where Q is, P may be no float.
    """
    return lattice if pair.symmetric else exchanged(lattice)
