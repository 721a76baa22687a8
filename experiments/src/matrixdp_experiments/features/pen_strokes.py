"""Images of random pen strokes: public stand-ins for handwriting."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from matrixdp.parameters import checked_integer, positive_integer

__all__ = ["pen_strokes"]

_MOST_CURVES = 3
_JOINED = 0.6  # how often a curve starts where the one before ends
_POINTS = 40  # of a curve
_EXTENT = 0.65  # the longer side of what is drawn, over that of the image
_PEN = (0.027, 0.05)  # the least and largest radius of the pen, over the side of the image


def pen_strokes(number: int, *, side: int = 28, seed: int = 0) -> NDArray[np.float32]:
    """Return images of one to three random curves, drawn by a soft pen of random width.

    Each curve is a cubic Bézier curve with four control points uniform in a square. What is drawn
    is scaled to a common extent and moved so that its centre of mass is the centre of the image.
    No record and no real image enters.

    Parameters
    ----------
    number : int
        How many images.
    side : int, optional
        Their side in pixels.
    seed : int, optional
        Of the generator.

    Returns
    -------
    ndarray of float32, shape (number, side, side)
        Grey levels from 0, the paper, to 1.

    Examples
    --------
    >>> strokes = pen_strokes(5)
    >>> strokes.shape, float(strokes.min()), bool(strokes.max() <= 1.0)
    ((5, 28, 28), 0.0, True)
    """
    number, side = positive_integer(number, "number"), positive_integer(side, "side")
    generator = np.random.default_rng(checked_integer(seed, "seed"))
    return np.stack([_drawing(generator, side) for _ in range(number)])


def _drawing(generator: np.random.Generator, side: int) -> NDArray[np.float32]:
    corners = generator.uniform(size=(generator.integers(1, _MOST_CURVES + 1), 4, 2))
    for before, after in pairwise(corners):
        if generator.random() < _JOINED:
            after[0] = before[3]
    curves = [_BERNSTEIN @ each for each in corners]
    # Ink runs evenly along a curve, so a point of a longer one has more of it.
    lengths = [np.linalg.norm(np.diff(curve, axis=0), axis=1).sum() for curve in curves]
    ink = np.repeat(np.array(lengths) / _POINTS, _POINTS)
    points = np.concatenate(curves)
    scale = _EXTENT * side / np.ptp(points, axis=0).max()
    points = scale * (points - ink @ points / ink.sum()) + (side - 1) / 2.0
    pen = side * generator.uniform(*_PEN)
    rows, columns = (
        np.exp(-((points[:, axis, None] - np.arange(side)) ** 2) / (2.0 * pen**2))
        for axis in (0, 1)
    )
    density = (rows * (scale * ink / pen)[:, None]).T @ columns
    # Ink saturates; the factor lets the middle of a stroke reach 1.
    grey = np.minimum(1.3 * -np.expm1(-1.2 * density), 1.0)
    return np.asarray(grey, dtype=np.float32)


def _bernstein() -> NDArray[np.float64]:
    """Return the weights of four control points at evenly spaced parameters of a cubic curve."""
    t = np.linspace(0.0, 1.0, _POINTS)
    return np.stack([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3], axis=1)


_BERNSTEIN = _bernstein()
