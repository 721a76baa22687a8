"""Figures of the comparison, drawn from its tables alone."""

import io
from typing import TYPE_CHECKING, Any

from matrixdp.rounding import shown_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrixdp.audit.comparison import Contender
    from matrixdp.audit.curves import Curve

__all__ = ["draw_bars", "draw_curve"]

_WASTE_COLOUR, _LEAST_COLOUR = "#b0b7c3", "#1f77b4"


def draw_bars(contenders: "Sequence[Contender]", title: str, file_format: str) -> bytes:
    """Draw the noise scale of every contender as a bar, labelled with its true epsilon."""
    shown = [one for one in contenders if one.noise_scale is not None][::-1]
    scales = [one.noise_scale or 0.0 for one in shown]
    canvas, axes = _canvas(8.0, 1.2 + 0.35 * len(shown))  # inches
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
    return _content(canvas, file_format)


def draw_curve(curve: "Curve", file_format: str) -> bytes:
    """Draw one line for each contender; one that coincides with IMGM's is dashed."""
    canvas, axes = _canvas(8.0, 4.2)
    shown = [row for row in curve.rows if row[0]]  # epsilon = 0 has no place on a log axis
    for column, name in enumerate(curve.contenders, start=1):
        points = [(row[0], row[column]) for row in shown if row[column] is not None]
        coincides = [row[column] for row in shown] == [row[1] for row in shown] and column > 1
        axes.plot(*zip(*points, strict=True), "--" if coincides else "-", label=name, linewidth=1.5)
    axes.set_xscale("log")
    axes.set_yscale("log")
    # It is drawn as a horizontal line instead.
    limits = [row for row in curve.rows if row[0] == 0.0]
    if limits:
        axes.axhline(limits[0][1], color="grey", linewidth=0.8, linestyle=":")
        axes.annotate("IMGM at epsilon 0", (shown[0][0], limits[0][1]), fontsize=8, va="top")
    axes.set_xlabel({"side": "side of a square matrix"}.get(curve.axis, curve.axis))
    axes.set_ylabel("noise scale")
    axes.set_title(curve.configuration(), fontsize="small")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return _content(canvas, file_format)


def _canvas(width: float, height: float) -> Any:
    # Late, because matplotlib takes a second to load; not pyplot, which may want a display.
    from matplotlib.figure import Figure  # noqa: PLC0415

    canvas = Figure(figsize=(width, height), layout="constrained")
    return canvas, canvas.subplots()


def _content(canvas: Any, file_format: str) -> bytes:
    """Return the figure as a file's content; the same figure gives the same bytes."""
    import matplotlib as mpl  # noqa: PLC0415

    content = io.BytesIO()
    # A fixed salt instead of random ids, and text as text: the file can be compared and searched.
    with mpl.rc_context({"svg.hashsalt": "matrixdp", "svg.fonttype": "none"}):
        metadata = {"Date": None} if file_format == "svg" else {}
        canvas.savefig(content, format=file_format, dpi=120, metadata=metadata)
    return content.getvalue()
