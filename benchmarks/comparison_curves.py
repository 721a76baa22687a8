"""The curves of ``docs/comparison.md``: tables in ``results``, figures in ``docs/figures``."""

from pathlib import Path

from matrixdp.audit.curves import CURVES, Curve
from matrixdp.cli.shared.output import empty_figure, figure_content

ROOT = Path(__file__).resolve().parents[1]


def draw_curve(curve: Curve) -> bytes:
    """Draw one line for each contender; one that coincides with IMGM's is dashed."""
    canvas, axes = empty_figure(8.0, 4.2)
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
    return figure_content(canvas, "svg")


def main() -> None:
    """Write a table and a figure for each curve."""
    for name, compute in CURVES.items():
        curve = compute()
        (ROOT / "results" / f"comparison_{name}.csv").write_text(curve.to_csv())
        (ROOT / "docs" / "figures" / f"comparison_{name}.svg").write_bytes(draw_curve(curve))


if __name__ == "__main__":
    main()
