"""The figure of released features: accuracy against epsilon, a column for each data set."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any, NamedTuple

from matrixdp.rounding import shown_up
from matrixdp_experiments.released_features.accounts import MECHANISMS
from matrixdp_experiments.released_features.cells import METHODS
from matrixdp_experiments.released_features.settings import FEATURE_SETTINGS
from matrixdp_experiments.report.drawing import (
    Style,
    draw_legend,
    draw_series,
    file_content,
    points,
)
from matrixdp_experiments.report.features_table import FeatureRow
from matrixdp_experiments.report.page_text import accuracies

__all__ = ["draw_features"]

_PANEL_WIDTH, _PANEL_HEIGHT, _LEGEND_HEIGHT = 3.6, 2.8, 1.4  # inches
_LEAST_WIDTH = 9.0  # inches: what the legend needs
# A row of panels each. The protocols never share one.
_PANELS = (("exact", "public"), ("exact", "random"), ("paper", "public"), ("paper", "random"))


class _Line(NamedTuple):
    mechanism: str
    clip: str
    method: str
    style: Style

    @property
    def title(self) -> str:
        name = MECHANISMS[self.mechanism]
        if self.clip == "tanh":
            return f"{name}, clip tanh"
        method = next(title for one, title in METHODS.items() if one == self.method)
        return name if self.method == "rows" else f"{name}, {method}"

    def is_of(self, row: FeatureRow) -> bool:
        return (row.mechanism, row.clip, row.method) == (self.mechanism, self.clip, self.method)


# The paper's comparison dashed, what goes beyond it solid, from a palette that colour-blind readers
# can tell apart.
_LINES = (
    _Line("imgm", "public", "rows", Style("#0072b2", "--", "o")),
    _Line("imgm", "tanh", "rows", Style("#56b4e9", "--", "s")),
    # It coincides with IMGM: dots on its dashes.
    _Line("analytic", "public", "rows", Style("#000000", ":", "x")),
    _Line("classic", "public", "rows", Style("#d55e00", "--", "v")),
    _Line("mvg", "public", "rows", Style("#cc79a7", "--", "P")),
    _Line("imgm", "public", "projected", Style("#e69f00", "-", "<")),
    _Line("imgm", "public", "shrunk", Style("#f0e442", "-", ">")),
    _Line("imgm", "public", "linear", Style("#999999", "-", "D")),
    _Line("imgm", "public", "corrected", Style("#009e73", "-", "^")),
    _Line("imgm", "public", "moments", Style("#d55e00", "-", "o")),
)
_PLAIN, _PUBLIC, _COMMONEST = "no noise", "public part alone", "always the most frequent class"


def draw_features(rows: Sequence[FeatureRow], file_format: str) -> bytes:
    """Draw the mean over seeds with bars from the least to the largest accuracy.

    Each protocol has panels of its own, and those of ``paper`` name the true epsilons below every
    claimed one. Data sets without a finished run have no column.
    """
    # Late, because matplotlib takes a second to load; not pyplot, which may want a display.
    from matplotlib.figure import Figure  # noqa: PLC0415

    datasets = list(dict.fromkeys(row.dataset for row in rows if row.accuracy))
    columns = max(1, len(datasets))
    size = (
        max(_LEAST_WIDTH, columns * _PANEL_WIDTH),
        len(_PANELS) * _PANEL_HEIGHT + _LEGEND_HEIGHT,
    )
    canvas = Figure(figsize=size, layout="constrained")
    panels = canvas.subplots(len(_PANELS), columns, squeeze=False, sharey=True)
    handles: dict[str, Any] = {}
    for index, (protocol, network) in enumerate(_PANELS):
        panels[index][0].set_ylabel("test accuracy, %")
        for dataset, axes in zip(datasets, panels[index], strict=False):
            there = [row for row in rows if row.dataset == dataset]
            handles |= _draw_panel(axes, there, protocol, network)
            title = FEATURE_SETTINGS[dataset].title
            axes.set_title(f"{title}, {network} network, {protocol}", fontsize="small")
    if not datasets:
        panels[0][0].set_visible(False)
    draw_legend(
        canvas,
        handles,
        [_PLAIN, _PUBLIC, _COMMONEST, *(line.title for line in _LINES)],
        "mean over seeds, bars from the least to the largest; "
        "features are covered, labels by private moments only",
    )
    return file_content(canvas, file_format)


def _draw_panel(
    axes: Any, rows: Sequence[FeatureRow], protocol: str, network: str
) -> dict[str, Any]:
    """Draw one data set under one protocol and network; return what the legend shows."""
    there = [row for row in rows if (row.protocol, row.network) == (protocol, network)]
    handles: dict[str, Any] = {}
    for line in _LINES:
        found = points([row for row in there if line.is_of(row)])
        if found:
            handles[line.title] = draw_series(axes, found, line.style)
    _draw_epsilons(axes, there, protocol)
    return handles | _draw_levels(axes, rows, network)


def _draw_levels(axes: Any, rows: Sequence[FeatureRow], network: str) -> dict[str, Any]:
    """Draw what accuracies are compared with; these levels do not depend on the protocol."""
    handles = {}
    plain = accuracies(
        row
        for row in rows
        if (row.mechanism, row.network, row.clip, row.method) == ("none", network, "public", "rows")
    )
    public = accuracies(row for row in rows if row.mechanism == "public")
    if plain:
        handles[_PLAIN] = axes.axhline(fmean(plain), color="black", linewidth=1.0)
    if public:
        handles[_PUBLIC] = axes.axhline(
            fmean(public), color="black", linewidth=1.0, linestyle=(0, (1, 3))
        )
    commonest = 100.0 * FEATURE_SETTINGS[rows[0].dataset].commonest_class
    handles[_COMMONEST] = axes.axhline(commonest, color="grey", linewidth=1.0, linestyle="-.")
    axes.set_ylim(0.0, 102.0)
    axes.grid(visible=True, alpha=0.3)
    return handles


def _draw_epsilons(axes: Any, rows: Sequence[FeatureRow], protocol: str) -> None:
    """Draw the axis of claims, under ``paper`` with the true epsilons of every mechanism."""
    # The analytic Gaussian is the same run as IMGM.
    true = {
        name: {row.epsilon: row.true_epsilon for row in rows if row.mechanism == name}
        for name in ("imgm", "classic", "mvg")
    }
    ticks = sorted(true["imgm"], key=float)
    labels, name = ticks, "epsilon"
    if protocol == "paper":
        labels = [
            f"{one}\n{_shown(true['imgm'].get(one))}\n{_shown(true['classic'].get(one))}"
            for one in ticks
        ]
        name = "claimed epsilon; below it the true one\nof IMGM, and of the classic Gaussian"
        mvg = [float(epsilon) for epsilon in true["mvg"].values() if epsilon]
        # Small numbers with long digits: one for all claims fits.
        name += f"\n(that of MVG is at most {shown_up(max(mvg), 3)})" if mvg else ""
    axes.set_xscale("log")
    axes.set_xticks([float(one) for one in ticks], labels, fontsize=8)
    axes.minorticks_off()
    if ticks:
        axes.set_xlim(float(ticks[0]) * 0.75, float(ticks[-1]) / 0.75)
    axes.set_xlabel(name, fontsize=8)


def _shown(epsilon: str | None) -> str:
    """Return an epsilon rounded up, or a dash where the mechanism does not apply."""
    return shown_up(float(epsilon), 3) if epsilon else "–"
