"""Counts beside a release: stated only if the guarantee covers them, and proven when read."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matrixdp import IMGM, Budget, FrobeniusBall, Guarantee, InvalidParameterError, Release
from matrixdp.errors import FileFormatError, ShapeError
from matrixdp.files.publishing.releases import load_stated_release, save_release
from matrixdp.privacy import composed_mu
from matrixdp.queries import (
    ClippedRecords,
    Mean,
    MeanRelease,
    PublicBounds,
    Sum,
)

BUDGET = Budget(1.0, 1e-6)
BOUNDS = PublicBounds(2, norm=1.0)
ROWS = np.random.default_rng(0).standard_normal((500, 2))


def means() -> MeanRelease:
    released = Mean(BOUNDS, "add-remove").release(ROWS, BUDGET)
    assert isinstance(released, MeanRelease)
    return released


@pytest.mark.parametrize("name", ["means.csv", "means.npy", "means.npz"])
def test_means_over_a_private_count_are_saved_with_their_proof(name: str, tmp_path: Path) -> None:
    released, target = means(), tmp_path / name
    released.save(target, columns=["a", "b"])
    beside = tmp_path / name.replace("means.", "means.sum.")
    assert sorted(tmp_path.iterdir()) == sorted([target, beside, Path(f"{beside}.json")])
    loaded = MeanRelease.load(target)
    np.testing.assert_array_equal(loaded.value, released.value)
    assert loaded.guarantee == released.guarantee == Release.verify(beside)
    assert loaded.query == "mean of records over a private count, norm at most 1"
    assert loaded.shape == (1, 2)
    # Each part alone guarantees its share, as before.
    for part in ("total", "count"):
        mus = [getattr(which, part).guarantee.mu for which in (loaded, released)]
        assert mus[0] == mus[1]
    if name.endswith(".csv"):
        assert target.read_text().startswith(",a,b\nmean,")
        assert beside.read_text().startswith(",a,b\nsum,")


def test_the_standard_errors_of_means_are_those_of_many_releases() -> None:
    rows = np.tile([[0.5, 300.0]], (2000, 1))
    query = Mean(PublicBounds(2, lower=0, upper=[1.0, 1000.0]), "add-remove")
    released = [query.release(rows, Budget(1.0, 1e-6)) for _ in range(400)]
    found = np.array([means.value[0] for means in released]).std(axis=0)
    stated = np.mean([means.standard_errors()[0] for means in released], axis=0)
    np.testing.assert_allclose(found, stated, rtol=0.25)
    assert stated[1] == pytest.approx(1000 * stated[0], rel=0.15)


@pytest.mark.parametrize(("noisy", "divisor"), [(-3.0, 1.0), (0.25, 1.0), (4.0, 4.0)])
def test_a_noisy_count_below_one_counts_as_one(noisy: float, divisor: float) -> None:
    released = means()
    count = IMGM(FrobeniusBall(1.0, "add-remove"), BUDGET)
    noisy_count = Release.from_proof(np.array([[noisy]]), count.proof, count.guarantee, "IMGM")
    mu = composed_mu([released.total.guarantee.mu, count.guarantee.mu])
    both = Guarantee.of_mu(mu, delta=1e-6, neighbouring="add-remove")
    value = replace(released, count=noisy_count, guarantee=both).value
    np.testing.assert_array_equal(value, released.total.value / divisor)


def test_no_file_is_made_if_one_of_them_exists(tmp_path: Path) -> None:
    (tmp_path / "means.sum.npy.json").write_text("mine")
    with pytest.raises(InvalidParameterError, match="exists"):
        means().save(tmp_path / "means.npy")
    assert [path.name for path in tmp_path.iterdir()] == ["means.sum.npy.json"]
    means().save(tmp_path / "means.npy", force=True)
    assert MeanRelease.load(tmp_path / "means.npy").shape == (1, 2)


def test_bad_paths_and_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ShapeError, match="columns has 1 names for 2"):
        means().save(tmp_path / "means.csv", columns=["a"])
    for path in ("", str(tmp_path / "means.txt"), str(tmp_path / "none" / "means.csv")):
        with pytest.raises(InvalidParameterError):
            means().save(path)
    assert not list(tmp_path.iterdir())


def altered(statement: dict[str, Any], what: str) -> None:
    """Change a statement so that it no longer proves itself."""
    count, guarantee = statement["counts"]["records"], statement["guarantee"]
    match what:
        case "value off the grid":
            count["value"] += count["noise_scale"] * 2.0**-40
        case "value not finite":
            count["value"] = 1e999
        case "less noise":
            count["noise_scale"] /= 2
        case "one count more":
            statement["counts"]["clipped"] = dict(count)
        case "no noise":
            count["noise_scale"] = 0.0
        case "unknown count":
            statement["counts"]["rows"] = statement["counts"].pop("records")
        case "only the guarantee of the sum":
            alone = Guarantee.of_mu(
                guarantee["mu"] * 0.99,
                delta=guarantee["delta"],
                neighbouring=guarantee["neighbouring"],
            )
            guarantee.update(epsilon=alone.epsilon, mu=alone.mu)
            statement["in_words"] = str(alone)


@pytest.mark.parametrize(
    "what",
    [
        "value off the grid",
        "value not finite",
        "less noise",
        "one count more",
        "no noise",
        "unknown count",
        "only the guarantee of the sum",
    ],
)
def test_a_statement_that_was_altered_proves_nothing(what: str, tmp_path: Path) -> None:
    means().save(tmp_path / "means.npy")
    path = tmp_path / "means.sum.npy.json"
    statement = json.loads(path.read_text())
    altered(statement, what)
    path.write_text(json.dumps(statement))
    with pytest.raises(FileFormatError):
        MeanRelease.load(tmp_path / "means.npy")
    with pytest.raises(FileFormatError):
        Release.verify(tmp_path / "means.sum.npy")


def test_a_sum_without_a_count_is_not_of_means(tmp_path: Path) -> None:
    Sum(BOUNDS, "add-remove").release(ROWS, BUDGET).save(tmp_path / "means.sum.npy")
    with pytest.raises(FileFormatError, match="states no number of records"):
        MeanRelease.load(tmp_path / "means.npy")


def test_a_count_that_is_not_paid_for_is_not_stated(tmp_path: Path) -> None:
    total = Sum(BOUNDS, "replace").release(ROWS, BUDGET)
    count = ClippedRecords(BOUNDS, "replace").release(ROWS, BUDGET)
    with pytest.raises(InvalidParameterError, match="together"):
        save_release(total, tmp_path / "sum.npy", counts={"clipped": count})
    both = Guarantee.of_mu(
        composed_mu([total.proof.mu, count.proof.mu]), delta=1e-6, neighbouring="replace"
    )
    stated = Release.from_proof(total.value, total.proof, both, total.mechanism)
    save_release(stated, tmp_path / "sum.npy", counts={"clipped": count})
    loaded = load_stated_release(tmp_path / "sum.npy")
    assert float(loaded.counts["clipped"].value[0, 0]) == float(count.value[0, 0])
    assert loaded.release.guarantee == both
    # Loaded and saved again without the count, it keeps the guarantee, which then is not tight.
    loaded.release.save(tmp_path / "again.npy")
    assert Release.verify(tmp_path / "again.npy") == both


@pytest.mark.parametrize(
    ("shape", "bound", "relation", "message"),
    [
        ((1, 2), 1.0, "replace", "not a count"),
        ((1, 1), 2.0, "replace", "not a count"),
        ((1, 1), 1.0, "add-remove", "another relation"),
    ],
)
def test_what_is_not_a_count_is_not_stated_as_one(
    shape: tuple[int, int], bound: float, relation: Any, message: str, tmp_path: Path
) -> None:
    parts = BUDGET.split(2)
    total = Sum(BOUNDS, "replace").release(ROWS, parts[0])
    other = IMGM(FrobeniusBall(bound, relation), parts[1]).release(np.zeros(shape))
    both = Guarantee.of_mu(BUDGET.mu, delta=1e-6, neighbouring="replace")
    stated = Release.from_proof(total.value, total.proof, both, total.mechanism)
    with pytest.raises(InvalidParameterError, match=message):
        save_release(stated, tmp_path / "sum.npy", counts={"records": other})
    assert not list(tmp_path.iterdir())


def test_means_do_not_claim_less_than_was_spent() -> None:
    released = means()
    for smaller in (released.total.guarantee, released.count.guarantee):
        with pytest.raises(InvalidParameterError, match="together"):
            replace(released, guarantee=smaller)
    precise = IMGM(FrobeniusBall(1.0, "add-remove"), BUDGET).release(np.array([[500.0]]))
    with pytest.raises(InvalidParameterError, match="together"):
        replace(released, count=precise)
    other = Guarantee.of_mu(released.guarantee.mu, delta=1e-6, neighbouring="replace")
    with pytest.raises(InvalidParameterError, match="relation"):
        replace(released, guarantee=other)
