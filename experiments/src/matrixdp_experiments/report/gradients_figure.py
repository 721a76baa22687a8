"""The figure of Type I: test accuracy against epsilon, a panel for each data set."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from matrixdp_experiments.gradients.accounts import MECHANISMS
from matrixdp_experiments.gradients.settings import SETTINGS
from matrixdp_experiments.report.drawing import (
    Style,
    draw_legend,
    draw_series,
    file_content,
    points,
)
from matrixdp_experiments.report.gradients_table import Row
from matrixdp_experiments.report.page_text import accuracies

__all__ = ["draw_accuracies"]

_PANEL_WIDTH, _PANEL_HEIGHT, _LEGEND_HEIGHT = 4.3, 3.1, 1.3  # inches
_LEAST_WIDTH = 8.6  # inches: what the legend needs
# Bars of several mechanisms at one epsilon stand side by side: each is moved by this factor.
_APART = 1.035


# Sampling credited: solid. Sampling ignored: dashed. One colour for a mechanism under both, from a
# palette that colour-blind readers can tell apart.
_STYLES = {
    "imgm-pld": Style("#0072b2", "-", "o"),
    "rdp": Style("#56b4e9", "-", "s"),
    "moments": Style("#009e73", "-", "^"),
    "imgm-theorem-3": Style("#0072b2", "--", "o"),
    "analytic-amplified": Style("#e69f00", "-", "D"),
    "classic-amplified": Style("#d55e00", "-", "v"),
    "analytic": Style("#e69f00", "--", "D"),
    # It coincides with the analytic Gaussian: dots on its dashes.
    "matrix": Style("#000000", ":", "x"),
    "classic": Style("#d55e00", "--", "v"),
    "mvg": Style("#cc79a7", "--", "P"),
}
_PLAIN, _COMMONEST = "no noise", "always the most frequent class"


def draw_accuracies(rows: Sequence[Row], file_format: str) -> bytes:
    """Draw the mean over seeds as a line with a bar from the least to the largest accuracy.

    Data sets without a finished run have no panel. A panel says how many of its cells are missing.
    """
    # Late, because matplotlib takes a second to load; not pyplot, which may want a display.
    from matplotlib.figure import Figure  # noqa: PLC0415

    datasets = list(dict.fromkeys(row.dataset for row in rows if row.accuracy))
    # As square as possible: 2 by 2 for four panels, 3 by 2 for five or six.
    columns = 1 if len(datasets) < 2 else 2 if len(datasets) in {2, 4} else 3
    lines = max(1, -(-len(datasets) // columns))
    size = (max(_LEAST_WIDTH, columns * _PANEL_WIDTH), lines * _PANEL_HEIGHT + _LEGEND_HEIGHT)
    canvas = Figure(figsize=size, layout="constrained")
    panels = canvas.subplots(lines, columns, squeeze=False, sharey=True).ravel().tolist()
    handles: dict[str, Any] = {}
    for dataset, panel in zip(datasets, panels, strict=False):
        handles |= _draw_panel(panel, dataset, [row for row in rows if row.dataset == dataset])
    for panel in panels[::columns]:
        panel.set_ylabel("test accuracy, %")
    for unused in panels[len(datasets) :]:
        unused.set_visible(False)
    draw_legend(
        canvas,
        handles,
        [_PLAIN, *(MECHANISMS[name].title for name in _STYLES), _COMMONEST],
        "mean over seeds, bars from the least to the largest, moved sideways a little",
    )
    return file_content(canvas, file_format)


def _draw_panel(axes: Any, dataset: str, rows: Sequence[Row]) -> dict[str, Any]:
    """Draw one data set; return what the legend shows, by name."""
    handles = {}
    for index, (name, style) in enumerate(_STYLES.items()):
        found = points([row for row in rows if row.mechanism == name])
        if found:
            shift = _APART ** (index - (len(_STYLES) - 1) / 2)
            handles[MECHANISMS[name].title] = draw_series(axes, found, style, shift)
    return handles | _draw_surroundings(axes, dataset, rows)


def _draw_surroundings(axes: Any, dataset: str, rows: Sequence[Row]) -> dict[str, Any]:
    """Draw the levels that accuracies are compared with, the axes, and what is missing."""
    setting, handles = SETTINGS[dataset], {}
    plain = accuracies(row for row in rows if row.mechanism == "none")
    if plain:
        handles[_PLAIN] = axes.axhline(fmean(plain), color="black", linewidth=1.0)
    handles[_COMMONEST] = axes.axhline(
        100.0 * setting.commonest_class, color="grey", linewidth=1.0, linestyle="-."
    )
    missing = sum(row.note == "not run" for row in rows)
    if missing:
        found = len({(row.mechanism, row.epsilon) for row in rows})
        axes.text(
            *(0.98, 0.05, f"{missing} of {found} cells not run"),
            transform=axes.transAxes,
            ha="right",
            fontsize=8,
        )
    axes.set_xscale("log")
    ticks = sorted({row.epsilon for row in rows if row.epsilon}, key=float)
    axes.set_xticks([float(one) for one in ticks], ticks)
    axes.minorticks_off()
    if ticks:
        # The same room on both sides in every panel, for what was moved sideways.
        axes.set_xlim(float(ticks[0]) * 0.75, float(ticks[-1]) / 0.75)
    axes.set_ylim(0.0, 102.0)
    axes.set_title(f"{setting.title}, {setting.model}", fontsize="medium")
    axes.set_xlabel("claimed epsilon")
    axes.grid(visible=True, alpha=0.3)
    return handles
