"""Draw ``docs/figures/estimators.svg`` from ``results/estimators_*.csv``, and from nothing else."""

import csv
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[1]
TASKS = {
    "mnist": ("MNIST", "accuracy, %", (0.0, 102.0)),
    "adult": ("Adult, income", "accuracy, %", (68.0, 86.0)),
    "adult_age": ("Adult, age", "R²", (0.0, 0.5)),
    "diabetes": ("diabetes, one column", "R²", (-1.0, 0.5)),
    "adult_numbers": ("two components of six columns", "share of variance", (0.3, 0.55)),
    "mnist_components": ("five components of 49 pixels", "share of variance", (0.0, 0.6)),
}
# The first method of each library that a table has. Colour-blind readers can tell them apart.
LIBRARIES = {
    "matrixdp": ("#0072b2", "-", "o"),
    "diffprivlib": ("#d55e00", "--", "v"),
    "opendp": ("#009e73", ":", "s"),
}
Row = dict[str, str]


def rows_of(task: str) -> list[Row]:
    """Return the saved rows that have a score."""
    with (ROOT / "results" / f"estimators_{task}.csv").open(newline="") as file:
        return [row for row in csv.DictReader(file) if row["mean"]]


def draw_library(axes: Any, rows: list[Row], library: str) -> Any:
    """Draw means with bars from the least to the largest score; return nothing without a row."""
    methods = [row["method"] for row in rows if row["method"].startswith(library)]
    if not methods:
        return None
    found = [row for row in rows if (row["method"], row["relation"]) == (methods[0], "replace")]
    points = sorted(
        [float(row[name]) for name in ("epsilon", "mean", "least", "largest")] for row in found
    )
    epsilons, means, least, largest = zip(*points, strict=True)
    bars = [
        [mean - low for mean, low in zip(means, least, strict=True)],
        [high - mean for mean, high in zip(means, largest, strict=True)],
    ]
    colour, line, marker = LIBRARIES[library]
    look = {"color": colour, "linestyle": line, "marker": marker, "markersize": 4, "capsize": 2}
    return axes.errorbar(epsilons, means, yerr=bars, linewidth=1.4, **look)


def main() -> None:
    """Draw a panel for each task: score against epsilon, under replacing one record."""
    canvas = Figure(figsize=(9.6, 5.6), layout="constrained")
    handles = {}
    for axes, (task, (title, score, limits)) in zip(
        canvas.subplots(2, 3).flat, TASKS.items(), strict=True
    ):
        rows = rows_of(task)
        plain = next(row for row in rows if row["method"].startswith("scikit-learn"))
        handles["scikit-learn, no noise"] = axes.axhline(
            float(plain["mean"]), color="black", linewidth=1.0
        )
        for library in LIBRARIES:
            drawn = draw_library(axes, rows, library)
            if drawn is not None:
                handles[library] = drawn
        axes.set_xscale("log")
        axes.set_xticks([0.1, 1.0, 10.0], ["0.1", "1", "10"])
        axes.minorticks_off()
        axes.set_ylim(*limits)
        axes.set_title(title, fontsize="small")
        axes.set_xlabel("epsilon", fontsize=8)
        axes.set_ylabel(score, fontsize=8)
        axes.grid(visible=True, alpha=0.3)
    canvas.legend(
        list(handles.values()), list(handles), loc="outside lower center", ncols=4, fontsize=8
    )
    # A fixed salt instead of random ids, and text as text: the same tables give the same file.
    with mpl.rc_context({"svg.hashsalt": "matrixdp", "svg.fonttype": "none"}):
        target = ROOT / "docs" / "figures" / "estimators.svg"
        canvas.savefig(target, format="svg", metadata={"Date": None})
    print(f"wrote {target.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
