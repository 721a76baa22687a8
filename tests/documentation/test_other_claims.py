"""Pages say of others' claims what the saved benchmark says."""

import csv
from pathlib import Path

from matrixdp.audit import rank_one_delta, rank_one_noise_scale
from matrixdp.rounding import shown_down

ROOT = Path(__file__).resolve().parents[2]
PAGE = " ".join((ROOT / "docs" / "comparison.md").read_text().split())
TABLES = (ROOT / "docs" / "tables" / "other_claims.md").read_text()
EPSILONS = ("0.1", "1", "10")
DELTA = 1e-5


def saved() -> dict[str, str]:
    with (ROOT / "results" / "other_claims.csv").open(newline="") as file:
        rows = {row["what"]: row["figure"] for row in csv.DictReader(file)}
    assert not rows["commit"].endswith("dirty")
    for package in ("autodp", "diffprivlib", "dp-accounting", "jax-privacy", "opacus", "opendp"):
        assert rows[f"version of {package}"]
    return rows


def says(*cells: str) -> bool:
    return f"| {' | '.join(cells)} |" in TABLES


def large(text: str) -> str:
    """Return a saved number with commas."""
    return f"{int(text):,}" if float(text) >= 1000 else text


def test_the_published_code_of_imgm() -> None:
    found = saved()
    for data, epsilon, settings in (
        ("MNIST", "1", "60,000, 512, 64, 60"),
        ("CIFAR-10", "1", "50,000, 256, 64, 60"),
        ("CIFAR-10", "10", "50,000, 256, 64, 60"),
    ):
        start = f"IMGM's published code, {data}, {epsilon}"
        bounds = [
            large(found[f"{start}, epsilon at least{which}"])
            for which in ("", ", of the updates made")
        ]
        undivided = found[f"{start}, epsilon at least, undivided"]
        noise = found[f"{start}, noise multiplier"]
        assert says(data, settings, epsilon, noise, *bounds, undivided)
        # The claim is false, and it is the division that makes that of 1 false.
        assert float(found[f"{start}, epsilon at least, of the updates made"]) > float(epsilon)
        assert (float(undivided) < 1.0) is (epsilon == "1")


def test_the_page_on_the_published_code() -> None:
    found = saved()
    spent = found["IMGM's published code, MNIST, 1, epsilon at least"]
    assert f"a claim of 1 on MNIST spends at least {spent}." in PAGE
    one, ten = (
        large(found[f"IMGM's published code, CIFAR-10, {epsilon}, epsilon at least"])
        for epsilon in ("1", "10")
    )
    assert (
        f"On CIFAR-10 a claim of 1 spends at least {one}, and a claim of 10 at least {ten}." in PAGE
    )


def test_rank_one_noise() -> None:
    found = saved()
    for numbers in (3, 4, 5, 10, 20, 100, 1000, 1_000_000):
        error, delta = (
            found[f"R1SMG, {numbers} numbers, {what}"] for what in ("error", "delta at least")
        )
        assert says(f"{numbers:,}", f"{float(error):,.4g}", delta)
        now = rank_one_delta(numbers, rank_one_noise_scale(numbers, 1.0, DELTA), 1.0)
        assert float(shown_down(now, 4)) == float(delta)
        assert (float(delta) > DELTA) is (numbers >= 4)
    assert (
        "A claim of (1, 1e-5) for 100 numbers has a delta of at least "
        f"{found['R1SMG, 100 numbers, delta at least']};"
    ) in PAGE


def excess(found: dict[str, str], name: str) -> float:
    """Return by how much a true delta exceeds the promised one at most, relatively."""
    keys = [f"{name}, epsilon {epsilon}, excess of delta" for epsilon in EPSILONS]
    return max(float(found[key]) for key in keys if key in found)


def test_mechanisms_and_libraries() -> None:
    found = saved()
    ending = ", epsilon 1, true epsilon"
    names = [what.removesuffix(ending) for what in found if what.endswith(ending)]
    assert len(names) == 11
    for name in names:
        scales = [found.get(f"{name}, epsilon {epsilon}, scale", "–") for epsilon in EPSILONS]
        too_large = excess(found, name)
        broken = f"{float(shown_down(too_large, 2)):.2g}" if too_large > 0 else "–"
        shown = found.get(f"{name}, delta at least by its floats")
        by_floats = "–" if shown is None else shown if float(shown) else "nothing"
        assert says(name, *scales, found[f"{name}{ending}"], broken, by_floats)
    excesses = [
        f"{float(shown_down(excess(found, name), 2)):.2g}"
        for name in (
            "diffprivlib, GaussianAnalytic",
            "dp_accounting, get_sigma_gaussian",
            "autodp, ana_gaussian",
        )
    ]
    assert "by a relative {}, {} and {}.".format(*excesses) in PAGE
    # What comes from this library keeps its promise.
    assert all(excess(found, name) <= 0 for name in names if name.startswith("matrixdp"))
    assert float(found["matrixdp, IMGM, delta at least by its floats"]) == 0.0


def test_what_is_no_scale_for_every_entry() -> None:
    found = saved()
    scales = [found[f"R1SMG, epsilon {epsilon}, scale"] for epsilon in EPSILONS]
    least = max(float(found[f"R1SMG, epsilon {epsilon}, delta at least"]) for epsilon in EPSILONS)
    broken = f"{float(shown_down(least / DELTA - 1, 2)):.2g}"
    assert says("R1SMG", *scales, "–", broken, "–")
    numpy, diffprivlib, jax, opacus, secure = (
        found[f"{name}, delta at least by its floats"]
        for name in (
            "numpy, x + normal",
            "diffprivlib, GaussianAnalytic",
            "jax-privacy, gaussian_privatizer",
            "Opacus, DPOptimizer",
            "Opacus, DPOptimizer in secure mode",
        )
    )
    assert (
        f"`x + rng.normal(...)` has a delta of at least {numpy} in this way, and so have "
        f"diffprivlib ({diffprivlib}), jax-privacy ({jax}), Opacus ({opacus}) and Opacus in its "
        f"secure mode ({secure})."
    ) in PAGE
    for name in (
        "jax-privacy, gaussian_privatizer",
        "Opacus, DPOptimizer",
        "Opacus, DPOptimizer in secure mode",
    ):
        assert says(name, *"–––––", found[f"{name}, delta at least by its floats"])
