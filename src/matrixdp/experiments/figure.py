"""The figure of Type I: test accuracy against epsilon, a panel for each data set."""

import io
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from matrixdp.experiments.accounts import MECHANISMS
from matrixdp.experiments.report import accuracies
from matrixdp.experiments.results_table import Row
from matrixdp.experiments.settings import SETTINGS

__all__ = ["draw_accuracies"]

_PANEL_WIDTH, _PANEL_HEIGHT, _LEGEND_HEIGHT = 3.1, 2.9, 1.1  # inches
_MOST_COLUMNS = 3
# Sampling credited: solid. Sampling ignored: dashed. The order of colours is that of the legend.
_DASHED = {"imgm-theorem-3", "analytic", "classic", "matrix", "mvg"}
_COLOURS = {
    "imgm-pld": "#1f77b4",
    "rdp": "#17becf",
    "moments": "#2ca02c",
    "imgm-theorem-3": "#1f77b4",
    "analytic-amplified": "#ff7f0e",
    "classic-amplified": "#d62728",
    "analytic": "#ff7f0e",
    "matrix": "#000000",
    "classic": "#d62728",
    "mvg": "#9467bd",
}


def draw_accuracies(rows: Sequence[Row], file_format: str) -> bytes:
    """Draw the mean over seeds as a line with a bar from the least to the largest accuracy."""
    # Late, because matplotlib takes a second to load; not pyplot, which may want a display.
    from matplotlib.figure import Figure  # noqa: PLC0415

    datasets = list(dict.fromkeys(row.dataset for row in rows if row.accuracy))
    columns = max(1, min(_MOST_COLUMNS, len(datasets)))
    lines = max(1, -(-len(datasets) // columns))
    size = (max(6.4, columns * _PANEL_WIDTH), lines * _PANEL_HEIGHT + _LEGEND_HEIGHT)
    canvas = Figure(figsize=size, layout="constrained")
    panels = canvas.subplots(lines, columns, squeeze=False).ravel().tolist()
    handles: dict[str, Any] = {}
    for dataset, panel in zip(datasets, panels, strict=False):
        handles |= _draw_panel(panel, dataset, [row for row in rows if row.dataset == dataset])
    for unused in panels[len(datasets) :]:
        unused.set_visible(False)
    if handles:
        canvas.legend(
            handles.values(), handles.keys(), loc="outside lower center", ncols=2, fontsize=8
        )
    return _content(canvas, file_format)


def _draw_panel(axes: Any, dataset: str, rows: Sequence[Row]) -> dict[str, Any]:
    """Draw one data set; return what the legend shows, by name."""
    handles = {}
    for name, colour in _COLOURS.items():
        points = _points([row for row in rows if row.mechanism == name])
        if points:
            epsilons, means, below, above = zip(*points, strict=True)
            handles[MECHANISMS[name].title] = axes.errorbar(
                epsilons,
                means,
                yerr=[below, above],
                color=colour,
                # The Matrix Mechanism coincides with the analytic Gaussian: dots on its dashes.
                linestyle=":" if name == "matrix" else "--" if name in _DASHED else "-",
                marker=".",
                linewidth=1.2,
                capsize=2,
            )
    plain = accuracies(row for row in rows if row.mechanism == "none")
    if plain:
        handles["no noise"] = axes.axhline(fmean(plain), color="grey", linewidth=1.0, linestyle=":")
    axes.set_xscale("log")
    ticks = sorted({row.epsilon for row in rows if row.epsilon}, key=float)
    axes.set_xticks([float(one) for one in ticks], ticks)
    axes.minorticks_off()
    axes.set_ylim(0.0, 100.0)
    axes.set_title(f"{SETTINGS[dataset].title}, {SETTINGS[dataset].model}", fontsize="medium")
    axes.set_xlabel("epsilon claimed")
    axes.set_ylabel("test accuracy, %")
    axes.grid(visible=True, alpha=0.3)
    return handles


def _points(rows: Sequence[Row]) -> list[tuple[float, float, float, float]]:
    """Return epsilon, mean accuracy, and how far the seeds are below and above it."""
    points = []
    for epsilon in sorted({row.epsilon for row in rows}, key=float):
        found = accuracies(row for row in rows if row.epsilon == epsilon)
        if found:
            mean = fmean(found)
            points.append((float(epsilon), mean, mean - min(found), max(found) - mean))
    return points


def _content(canvas: Any, file_format: str) -> bytes:
    """Return the figure as a file's content; the same figure gives the same bytes."""
    import matplotlib as mpl  # noqa: PLC0415

    content = io.BytesIO()
    # A fixed salt instead of random ids, and text as text: the file can be compared and searched.
    with mpl.rc_context({"svg.hashsalt": "matrixdp", "svg.fonttype": "none"}):
        metadata = {"Date": None} if file_format == "svg" else {}
        canvas.savefig(content, format=file_format, dpi=120, metadata=metadata)
    return content.getvalue()
