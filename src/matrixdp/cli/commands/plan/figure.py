"""The figure of ``matrixdp plan``: errors against epsilon."""

from collections.abc import Mapping

import numpy as np

from matrixdp.cli.shared.output import empty_figure, figure_content
from matrixdp.parameters import EPSILON
from matrixdp.privacy import privacy_mu
from matrixdp.rounding import shown_up

__all__ = ["drawn_errors"]

_POINTS = 81
# Curves start where logarithms of epsilon still say something.
_SMALLEST = 1e-3


def drawn_errors(
    at_one: Mapping[str, float],
    *,
    epsilon: float,
    delta: float,
    steps: int,
    ranges: float | None,
    title: str,
    file_format: str,
) -> bytes:
    """Draw errors against the epsilon of all steps together, which is marked.

    Parameters
    ----------
    at_one : mapping of float
        Errors of one step at mu = 1; at mu they are these over mu.
    epsilon, delta : float
        What was asked about.
    steps : int
        How many releases share the budget.
    ranges : float or None
        The range of an entry, drawn as a line: errors above it say nothing.
    title : str
        What is released.
    file_format : str
        ``png`` or ``svg``.
    """
    canvas, axes = empty_figure(6.4, 4.2)
    centre = max(epsilon, _SMALLEST)
    epsilons = np.minimum(centre * np.logspace(-1.5, 1.0, _POINTS), EPSILON.largest)
    mus = np.asarray(privacy_mu(epsilons, delta)) / np.sqrt(steps)
    for name, error in at_one.items():
        (line,) = axes.loglog(epsilons, error / mus, label=name)
        marked = np.interp(centre, epsilons, error / mus)
        axes.plot([centre], [marked], "o", color=line.get_color())
    if ranges is not None:
        axes.axhline(ranges, color="#808080", linestyle="--", label="range of an entry")
    axes.set_xlabel(f"epsilon at delta {shown_up(delta)}")
    axes.set_ylabel("error of each release")
    axes.set_title(title, fontsize="medium")
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend(fontsize=8)
    return figure_content(canvas, file_format)
