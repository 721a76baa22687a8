"""Draw ``docs/figures/postprocess.svg`` from ``results/postprocess.csv``, and from nothing else."""

import csv
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[1]
EPSILONS = ("0.1", "0.3", "1", "3")
SPECTRA = {
    "fast": "halving singular values",
    "slow": "singular values as 1/i",
    "flat": "equal singular values",
}
LINES = {
    "released": ("released", "black", "-"),
    "SingularValueShrinkage": ("SingularValueShrinkage", "#1f77b4", "-"),
    "SingularValueThreshold": ("SingularValueThreshold", "#ff7f0e", "--"),
    "JamesStein": ("JamesStein", "#2ca02c", "-."),
    "EfronMorris": ("EfronMorris", "#d62728", ":"),
    "PositiveSemidefinite": ("PositiveSemidefinite", "#9467bd", ":"),
}


def figures() -> dict[str, float]:
    """Return the saved errors."""
    with (ROOT / "results" / "postprocess.csv").open(newline="") as file:
        rows = {row["what"]: row["figure"] for row in csv.DictReader(file)}
    return {what: float(figure) for what, figure in rows.items() if "epsilon" in what}


def main() -> None:
    """Draw a panel for each shape and spectrum: relative error against epsilon."""
    found = figures()
    canvas = Figure(figsize=(9.6, 6.0), layout="constrained")
    panels = canvas.subplots(2, 3, sharex=True, sharey=True)
    handles = {}
    for across, shape in zip(panels, ("rectangular", "symmetric"), strict=True):
        for axes, (spectrum, title) in zip(across, SPECTRA.items(), strict=True):
            for name, (label, colour, line) in LINES.items():
                keys = [f"{shape}, {spectrum}, epsilon {e}, {name}, Frobenius" for e in EPSILONS]
                if not all(key in found for key in keys):
                    continue  # not every step fits every shape
                (handles[label],) = axes.plot(
                    [float(epsilon) for epsilon in EPSILONS],
                    [found[key] for key in keys],
                    color=colour,
                    linestyle=line,
                    marker="o",
                    markersize=3,
                    linewidth=1.4,
                )
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xticks([float(epsilon) for epsilon in EPSILONS], EPSILONS)
            axes.minorticks_off()
            axes.set_title(f"{shape}, {title}", fontsize="small")
            axes.grid(visible=True, alpha=0.3)
    for axes in panels[1]:
        axes.set_xlabel("epsilon")
    for axes in panels[:, 0]:
        axes.set_ylabel("relative error, Frobenius norm")
    canvas.legend(
        list(handles.values()), list(handles), loc="outside lower center", ncols=3, fontsize=8
    )
    # A fixed salt instead of random ids, and text as text: the same table gives the same file.
    with mpl.rc_context({"svg.hashsalt": "matrixdp", "svg.fonttype": "none"}):
        target = ROOT / "docs" / "figures" / "postprocess.svg"
        canvas.savefig(target, format="svg", metadata={"Date": None})
    print(f"wrote {target.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
