"""The page ``docs/benchmarks.md``, made from the tables in ``results`` and from nothing else.

Run it by ``make figures``. The words are in ``page.md`` beside this script, with formulas for the
numbers: ``{ratio[table][row]}`` is a saved ratio of times, ours over theirs, and ``{inverse[...]}``
the same of a table that says how many times as fast we are. ``{excess[...]}`` is our error over
theirs where the table says by how many per cent theirs exceeds ours.
"""

import csv
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[1]
TEMPLATE = ROOT / "benchmarks" / "page.md"
PAGE = ROOT / "docs" / "benchmarks.md"
USUAL = "AMD EPYC"
PROVENANCE = {"commit", "processor", "device", "python", "torch"}
Answer = TypeVar("Answer")
Row = tuple[str, str, float]


class Computed(dict[str, Answer]):
    """A mapping whose values are computed from their keys, as a template asks for them."""

    def __init__(self, compute: Callable[[str], Answer]) -> None:
        super().__init__()
        self._compute = compute

    def __missing__(self, key: str) -> Answer:
        """Return the value of a key."""
        return self._compute(key)


def records(name: str) -> list[dict[str, str]]:
    """Return the rows of a saved table, its provenance among them."""
    with (ROOT / "results" / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def figures(name: str) -> dict[str, float]:
    """Return the figures of a table that has one in each row."""
    rows = {row["what"]: row["figure"] for row in records(name)}
    return {what: float(figure) for what, figure in rows.items() if what not in PROVENANCE}


def shown(ratio: float) -> str:
    """Return a ratio with three digits."""
    return f"{ratio:,.0f}" if ratio >= 1000 else f"{ratio:.3g}"


def ratios(convert: Callable[[float], float]) -> Computed[dict[str, str]]:
    """Return the shown ratios of every table, from what the table says."""
    return Computed(
        lambda name: {what: shown(convert(x)) for what, x in figures(name).items() if x > 0}
    )


def made(names: str) -> str:
    """Return the command that made tables, machines other than the usual one, and links."""
    command, *tables = names.split()
    rows = [list(row.values()) for name in tables for row in records(name)]
    machines = sorted({row[1] for row in rows if row[0] in {"processor", "device"}} - {USUAL})
    links = [f"[{name}.csv](../results/{name}.csv)" for name in tables]
    return ", ".join([f"`make {command}`", *machines, *links])


def table(rows: Iterable[Row]) -> str:
    """Return rows of what is ours, what is theirs, and the ratio."""
    lines = [f"| {ours} | {theirs} | {shown(ratio)} |" for ours, theirs, ratio in rows]
    return "\n".join(["| ours | theirs | ratio |", "|---|---|---|", *lines])


def noise_for_a_promise() -> str:
    """Return noise scales of one release and of a hundred."""
    (one,) = [row for row in records("comparison_epsilon") if row["epsilon"] == "1"]
    (many,) = [row for row in records("comparison_steps") if row["steps"] == "100"]
    cases = (
        ("IMGM", "the analytic Gaussian mechanism", one, "IMGM", "analytic"),
        ("IMGM", "the classic formula", one, "IMGM", "classic"),
        ("IMGM", "MVG in its sharpest form", one, "IMGM", "MVG sharp"),
        ("100 releases", "Rényi accounting", many, "IMGM, exact", "analytic, RDP"),
        ("100 releases", "Theorem 3.4", many, "IMGM, exact", "analytic, Theorem 3.4"),
    )
    return table(
        (our_name, their_name, float(row[ours]) / float(row[theirs]))
        for our_name, their_name, row, ours, theirs in cases
    )


def accounts() -> str:
    """Return times of the plan that is most usual, and of the search."""
    found, plan = figures("accountants"), "q=0.01, T=1000, s=1, delta=1e-05"

    def over(case: str, peer: str) -> float:
        ours, theirs = (found[f"{case}, {who}, milliseconds"] for who in ("matrixdp", peer))
        return ours / theirs

    widths = {
        what.removeprefix(f"{plan}, ").removesuffix(", relative width"): width
        for what, width in found.items()
        if what.startswith(plan) and what.endswith("relative width")
    }
    rows = [
        ("`LossAccount`", f"{peer}: bounds within {width:.1e}", over(plan, peer))
        for peer, width in widths.items()
        if peer != "matrixdp" and not peer.endswith("error 0.01")
    ]
    searches = ("dp-accounting", "Opacus PRV")
    rows += [("`noise_multiplier_for`", peer, over("search", peer)) for peer in searches]
    return table(rows)


def rates() -> dict[tuple[str, str, str], float]:
    """Return the giga-elements a second of a GPU, by what, how many and of which type."""
    return {
        (row["what"], row["elements"], row["type"]): float(row["giga_elements_per_second"])
        for row in records("gpu_noise")
        if row["type"]
    }


def noise_on_a_gpu() -> str:
    """Return times of releases."""
    found = rates()
    return table(
        (
            f"`release`, {size[:-6]} million of {kind}",
            "`torch.randn`",
            found["torch.randn", size, kind] / found["release", size, kind],
        )
        for size in ("15000000", "134000000")
        for kind in ("float32", "float64")
    )


def training() -> str:
    """Return times of steps: whole ones where they were measured, and parts."""
    peers = ("plain", "Opacus, hooks", "Opacus, ghost clipping")
    lines = [
        "| ratio | plain PyTorch | Opacus, hooks | Opacus, ghost clipping |",
        "|---|---|---|---|",
    ]
    for device in ("gpu", "cpu"):
        saved = [row for row in records(f"training_speed_{device}") if row["eager_ms"]]
        found = {(row["setting"], row["way"]): row for row in saved}
        for setting, way in found:
            kept = "matrixdp" if (setting, "matrixdp") in found else "matrixdp, engine"
            if way not in {kept, "matrixdp, mode exact"}:
                continue
            # A GPU has whole steps and mode exact, a CPU a part of a step alone.
            if way == {"gpu": "matrixdp, engine", "cpu": "matrixdp, mode exact"}[device]:
                continue
            for form, column in (("captured", "graph_ms"), ("in a loop", "eager_ms")):
                ours = found[setting, way][column]
                if not ours:
                    continue
                # Opacus has no captured steps: eager ones are what its users get.
                cells = [
                    shown(float(ours) / float(found[setting, peer][theirs]))
                    if (setting, peer) in found
                    else "–"
                    for peer, theirs in zip(peers, (column, "eager_ms", "eager_ms"), strict=True)
                ]
                part = way.removeprefix("matrixdp").lstrip(", ")
                name = f"*{setting}, {form}, {part}*" if part else f"{setting}, {form}"
                lines.append(f"| {' | '.join([name, *cells])} |")
    return "\n".join(lines)


def post_processing() -> str:
    """Return errors after post-processing over those before."""
    found, start = figures("postprocess"), "rectangular, {}, epsilon 1, {}, Frobenius"
    kinds = {"fast": "halving", "slow": "falling as 1/i", "flat": "all equal"}
    return table(
        (
            f"after, singular values {words}",
            "as released",
            found[start.format(kind, "SingularValueShrinkage")]
            / found[start.format(kind, "released")],
        )
        for kind, words in kinds.items()
    )


def scores(task: str) -> dict[tuple[str, str], float]:
    """Return the mean scores of a task by method and epsilon, where one record is replaced."""
    return {
        (row["method"], row["epsilon"]): float(row["mean"])
        for row in records(f"estimators_{task}")
        if row["mean"] and row["relation"] != "add-remove"
    }


def estimators() -> str:
    """Return what is left to a perfect score at epsilon 1, ours over that of others."""
    classifiers = ("scikit-learn 1.9.1 logistic regression", "diffprivlib 0.6.6 logistic")
    regressions = (
        "scikit-learn 1.9.1 ridge",
        "diffprivlib 0.6.6 linear",
        "opendp 0.16.0 theil sen",
    )
    rows = []
    # Accuracies are in per cent, and R² is a share of 1.
    for task, words, method, perfect, peers in (
        ("mnist", "MNIST", "logistic regression", 100.0, classifiers),
        ("adult", "Adult", "logistic regression", 100.0, classifiers),
        ("diabetes", "patients", "ridge", 1.0, regressions),
    ):
        found = scores(task)
        ours = perfect - found[f"matrixdp {method}", "1"]
        for peer in peers:
            private = (peer, "1") in found
            theirs = perfect - found[peer, "1" if private else ""]
            name = peer.split()[0] if private else f"{peer.split()[0]}, not private"
            rows.append((f"{words}, {method}", name, ours / theirs))
    return table(rows)


TABLES = (noise_for_a_promise, accounts, noise_on_a_gpu, training, post_processing, estimators)


def page() -> str:
    """Return the whole page."""
    mnist = {
        f"epsilon {epsilon}": score
        for (method, epsilon), score in scores("mnist").items()
        if method == "matrixdp logistic regression"
    }
    return TEMPLATE.read_text().format(
        made=Computed(made),
        found=Computed(figures),
        ratio=ratios(lambda ratio: ratio),
        inverse=ratios(lambda times: 1 / times),
        excess=ratios(lambda per_cent: 1 / (1 + per_cent / 100)),
        tables={function.__name__: function() for function in TABLES},
        mnist=mnist,
        gpu={", ".join(case): rate for case, rate in rates().items()},
    )


if __name__ == "__main__":
    PAGE.write_text(page())
