"""One vocabulary for formulas that serve both plain floats and numpy arrays.

A formula written against `Arithmetic` is evaluated by `SCALAR` without numpy's per-call overhead
and by `ARRAY` over whole vectors, so that there is one formula and not two.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
import scipy
from numpy.typing import NDArray

from matrixdp.privacy.single_numbers import erfcx, erfinv, normal_quantile

__all__ = ["ARRAY", "SCALAR", "Arithmetic", "FloatArray", "Real"]

FloatArray: TypeAlias = NDArray[np.float64]
Real = TypeVar("Real", float, FloatArray)


@dataclass(frozen=True, slots=True)
class Arithmetic(Generic[Real]):
    """The elementary functions a formula may use, for one kind of number.

    ``select(condition, chosen, otherwise)`` takes two functions without arguments: a float
    evaluates one of them, an array both. ``everywhere`` says whether a condition holds at every
    point.
    """

    exp: Callable[[Real], Real]
    log: Callable[[Real], Real]
    sqrt: Callable[[Real], Real]
    erf: Callable[[Real], Real]
    erfcx: Callable[[Real], Real]
    erfinv: Callable[[Real], Real]
    normal_quantile: Callable[[Real], Real]
    larger: Callable[[Real, Real], Real]
    smaller: Callable[[Real, Real], Real]
    upwards: Callable[[Real], Real]
    select: Callable[[Any, Callable[[], Real], Callable[[], Real]], Real]
    everywhere: Callable[[Any], bool]


def _scalar_log(value: float) -> float:
    # As numpy's, and unlike math.log, which raises: an iteration may pass a point where g is 0.
    return math.log(value) if value > 0 else -math.inf


def _scalar_select(
    condition: bool,  # noqa: FBT001
    chosen: Callable[[], float],
    otherwise: Callable[[], float],
) -> float:
    return chosen() if condition else otherwise()


def _array_select(
    condition: NDArray[np.bool_],
    chosen: Callable[[], FloatArray],
    otherwise: Callable[[], FloatArray],
) -> FloatArray:
    return np.where(condition, chosen(), otherwise())


def _special(name: str) -> Callable[[FloatArray], FloatArray]:
    """Return a function of scipy.special that is imported when it is first called."""
    # Importing it takes as long as importing numpy twice over.

    def function(value: FloatArray) -> FloatArray:
        found: FloatArray = getattr(scipy.special, name)(value)
        return found

    return function


# math where it has the function: numpy's are much slower on single numbers.
SCALAR: Arithmetic[float] = Arithmetic(
    exp=math.exp,
    log=_scalar_log,
    sqrt=math.sqrt,
    erf=math.erf,
    erfcx=erfcx,
    erfinv=erfinv,
    normal_quantile=normal_quantile,
    larger=max,
    smaller=min,
    upwards=lambda value: math.nextafter(value, math.inf),
    select=_scalar_select,
    everywhere=bool,
)

ARRAY: Arithmetic[FloatArray] = Arithmetic(
    exp=np.exp,
    log=np.log,
    sqrt=np.sqrt,
    erf=_special("erf"),
    erfcx=_special("erfcx"),
    erfinv=_special("erfinv"),
    normal_quantile=_special("ndtri"),
    larger=np.maximum,
    smaller=np.minimum,
    upwards=lambda value: np.nextafter(value, np.inf),
    select=_array_select,
    everywhere=lambda condition: bool(np.all(condition)),
)
