"""Figures: their canvas, their bytes, and bars of noise scales."""

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matrixdp.rounding import shown_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrixdp.audit.comparison import Contender

__all__ = ["draw_bars", "empty_figure", "figure_content", "file_format"]

_WASTE_COLOUR, _LEAST_COLOUR = "#b0b7c3", "#1f77b4"


def draw_bars(contenders: "Sequence[Contender]", title: str, file_format: str) -> bytes:
    """Draw the noise scale of every contender as a bar, labelled with its true epsilon."""
    shown = [one for one in contenders if one.noise_scale is not None][::-1]
    scales = [one.noise_scale or 0.0 for one in shown]
    canvas, axes = empty_figure(8.0, 1.2 + 0.35 * len(shown))  # inches
    least = min(scales)
    # Equal to four digits counts as least: some scales are found by a search.
    colours = [_LEAST_COLOUR if scale <= least * 1.0001 else _WASTE_COLOUR for scale in scales]
    bars = axes.barh([one.name for one in shown], scales, color=colours)
    axes.bar_label(
        bars, [f" true epsilon {shown_up(one.true_epsilon or 0.0, 3)}" for one in shown], fontsize=8
    )
    axes.set_xscale("log")
    # Room on the right for the labels of the bars.
    axes.set_xlim(least / 2, max(scales) * 30)
    axes.set_xlabel("noise scale of each step")
    axes.set_title(title, fontsize="medium")
    return figure_content(canvas, file_format)


def file_format(path: Path) -> str:
    """Return the format that the name of a figure's file says."""
    return path.suffix.lower().removeprefix(".")


def empty_figure(width: float, height: float) -> Any:
    """Return a figure of so many inches, and its axes."""
    # Late, because matplotlib takes a second to load; not pyplot, which may want a display.
    from matplotlib.figure import Figure  # noqa: PLC0415

    canvas = Figure(figsize=(width, height), layout="constrained")
    return canvas, canvas.subplots()


def figure_content(canvas: Any, file_format: str) -> bytes:
    """Return the figure as a file's content; the same figure gives the same bytes."""
    import matplotlib as mpl  # noqa: PLC0415

    content = io.BytesIO()
    # A fixed salt instead of random ids, and text as text: the file can be compared and searched.
    with mpl.rc_context({"svg.hashsalt": "matrixdp", "svg.fonttype": "none"}):
        metadata = {"Date": None} if file_format == "svg" else {}
        canvas.savefig(content, format=file_format, dpi=120, metadata=metadata)
    return content.getvalue()
