"""Parts that figures of experiments share: points over seeds, and a file with the same bytes."""

import io
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple, Protocol

from matrixdp_experiments.report.page_text import Judged, accuracies

__all__ = ["Claimed", "Style", "draw_legend", "draw_series", "file_content", "points"]


_LEGEND_COLUMNS = 3
Point = tuple[float, float, float, float]
"""Epsilon, mean accuracy, and how far the seeds are below and above it."""


class Style(NamedTuple):
    """The look of a line."""

    colour: str
    line: str
    marker: str


class Claimed(Judged, Protocol):
    """A row with a claimed epsilon."""

    @property
    def epsilon(self) -> str:
        """As text; empty if there is none."""


def points(rows: Sequence[Claimed]) -> list[Point]:
    """Return epsilon, mean accuracy, and how far the seeds are below and above it."""
    found = []
    for epsilon in sorted({row.epsilon for row in rows if row.epsilon}, key=float):
        some = accuracies(row for row in rows if row.epsilon == epsilon)
        if some:
            mean = fmean(some)
            found.append((float(epsilon), mean, mean - min(some), max(some) - mean))
    return found


def draw_series(axes: Any, found: Sequence[Point], style: Style, shift: float = 1.0) -> Any:
    """Draw a line through means with bars over the seeds, moved sideways by a factor."""
    epsilons, means, below, above = zip(*found, strict=True)
    return axes.errorbar(
        [epsilon * shift for epsilon in epsilons],
        means,
        yerr=[below, above],
        color=style.colour,
        linestyle=style.line,
        marker=style.marker,
        markersize=3.5,
        linewidth=1.2,
        elinewidth=0.8,
        capsize=1.5,
    )


def draw_legend(
    canvas: Any, handles: Mapping[str, Any], titles: Sequence[str], heading: str
) -> None:
    """Draw one legend for all panels, in the order of the titles; some may have no line."""
    # Not every panel has every line, so the order in which they were drawn is arbitrary.
    names = [title for title in titles if title in handles]
    if names:
        canvas.legend(
            [handles[name] for name in names],
            names,
            title=heading,
            title_fontsize=8,
            loc="outside lower center",
            ncols=_LEGEND_COLUMNS,
            fontsize=8,
            frameon=False,
        )


def file_content(canvas: Any, file_format: str) -> bytes:
    """Return the figure as a file's content; the same figure gives the same bytes."""
    import matplotlib as mpl  # noqa: PLC0415

    content = io.BytesIO()
    # A fixed salt instead of random ids, and text as text: the file can be compared and searched.
    with mpl.rc_context({"svg.hashsalt": "matrixdp", "svg.fonttype": "none"}):
        metadata = {"Date": None} if file_format == "svg" else {}
        canvas.savefig(content, format=file_format, dpi=120, metadata=metadata)
    return content.getvalue()
