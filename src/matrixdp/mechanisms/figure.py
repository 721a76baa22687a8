"""Releases as figures of matplotlib."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from numpy.typing import NDArray

from matrixdp.privacy.guarantee import Guarantee
from matrixdp.rounding import shown_up

__all__ = ["draw_heat_map", "draw_numbers"]

# More names than that cannot be read.
_MOST_NAMES = 40


def draw_heat_map(
    matrix: NDArray[Any],
    index: Sequence[object] | None,
    columns: Sequence[object] | None,
    guarantee: Guarantee,
    axes: Any,
) -> Any:
    """Draw a noisy matrix, with the names of rows and columns where there are any."""
    axes = _titled(axes, guarantee)
    image = axes.imshow(matrix, aspect="auto")
    axes.figure.colorbar(image, ax=axes, label="released")
    _name_ticks(axes.xaxis, columns)
    _name_ticks(axes.yaxis, index)
    return axes


def draw_numbers(
    numbers: NDArray[Any],
    errors: NDArray[Any],
    names: Sequence[object] | None,
    guarantee: Guarantee,
    axes: Any,
) -> Any:
    """Draw noisy numbers with their standard errors."""
    axes = _titled(axes, guarantee)
    axes.errorbar(np.arange(len(numbers)), numbers, yerr=errors, fmt="o", capsize=3)
    axes.set_ylabel("released, with standard errors")
    _name_ticks(axes.xaxis, names)
    return axes


def _titled(axes: Any, guarantee: Guarantee) -> Any:
    """Return axes with the promise as their title, of a new figure if there are none."""
    if axes is None:
        _, axes = plt.subplots(layout="constrained")
    epsilon, delta = shown_up(guarantee.epsilon, 4), shown_up(guarantee.delta, 4)
    axes.set_title(f"epsilon {epsilon}, delta {delta}")
    return axes


def _name_ticks(axis: Any, names: Sequence[object] | None) -> None:
    if names is None or len(names) > _MOST_NAMES:
        axis.get_major_locator().set_params(integer=True)
        return
    axis.set_ticks(range(len(names)), [str(name) for name in names])
    if axis.axis_name == "x" and len(names) > 4:
        axis.set_tick_params(rotation=90)
