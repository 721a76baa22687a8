"""Saved workload releases: read back with their guarantee proven, or refused."""

import hashlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matrixdp import (
    IMGM,
    Budget,
    FrobeniusBall,
    InvalidParameterError,
    MatrixMechanism,
    RowBox,
    WorkloadRelease,
)
from matrixdp.covariance import Diagonal
from matrixdp.errors import FileFormatError, ShapeError
from matrixdp.noise import simulation_generator
from matrixdp.workloads import (
    Dense,
    Identity,
    Prefix,
    Product,
    ProductStrategy,
    Ranges,
    StackedStrategy,
    Total,
    Union,
    Workload,
    marginals,
    optimal_strategy,
)

BUDGET = Budget(1.0, 1e-5)
UNION = Union([Product([Prefix(3), Total(4)]), Product([Total(3), Ranges(4, 2)])])
ODD = Dense([[1.0, 0.3, 0.0], [0.1, 1.0, 1.0], [0.0, 2.0, 1.0 / 3.0]])
WORKLOADS: dict[str, Workload] = {
    "prefixes": Prefix(5),
    "ranges": Ranges(6, longest=2),
    "product": Product([Prefix(3), Identity(2)]),
    "tables": marginals([2, 3], [(0,), (1,)]),
    "dense": ODD,
    "dense in a product": Product([ODD, Total(2), Dense([[1.0, -1.0], [1.0, 1.0]])]),
    "union": UNION,
    "nested": Union([Union([Prefix(3), Identity(3)]), ODD]),
}
WEIGHTED = ProductStrategy([[[1.0, 1.0], [1.0, -1.0]]], [0.5, 0.75])


def stack_for(union: Union) -> StackedStrategy:
    parts = [
        optimal_strategy(Product(term), neighbouring="add-remove").strategy
        for term in union.terms()
    ]
    return StackedStrategy([part for part in parts if isinstance(part, ProductStrategy)])


def made_release(workload: Workload, relation: Any, strategy: Any = None) -> WorkloadRelease:
    mechanism = MatrixMechanism(workload, BUDGET, neighbouring=relation, strategy=strategy)
    return mechanism.release(np.arange(workload.cells))


def assert_read_back(release: WorkloadRelease, path: Path) -> WorkloadRelease:
    release.save(path)
    again = WorkloadRelease.load(path)
    np.testing.assert_array_equal(again.measurements.value, release.measurements.value)
    assert again.guarantee == release.guarantee
    assert again.sensitivity == release.sensitivity
    assert repr(again.workload) == repr(release.workload)
    assert again.estimate is not None
    assert release.estimate is not None
    np.testing.assert_allclose(again.estimate, release.estimate, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(again.answers, release.answers, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(again.standard_errors(), release.standard_errors(), rtol=1e-12)
    return again


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
@pytest.mark.parametrize("name", WORKLOADS)
def test_what_is_saved_is_what_is_loaded(name: str, relation: str, tmp_path: Path) -> None:
    release = made_release(WORKLOADS[name], relation)
    again = assert_read_back(release, tmp_path / "out.npz")
    assert type(again.strategy) is type(release.strategy)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.npz", "out.npz.json"]


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
def test_stacks_are_read_back(relation: str, tmp_path: Path) -> None:
    release = made_release(UNION, relation, stack_for(UNION))
    assert isinstance(assert_read_back(release, tmp_path / "out.npz").strategy, StackedStrategy)


def test_weights_are_read_back(tmp_path: Path) -> None:
    release = made_release(Prefix(2), "add-remove", WEIGHTED)
    again = assert_read_back(release, tmp_path / "out.npz").strategy
    assert isinstance(release.strategy, ProductStrategy)
    assert isinstance(again, ProductStrategy)
    assert release.strategy.weights is not None
    np.testing.assert_array_equal(again.weights, release.strategy.weights)


def test_the_files_hold_nothing_of_the_input(tmp_path: Path) -> None:
    mechanism = MatrixMechanism(Prefix(3), BUDGET, neighbouring="replace")
    mechanism.release([123456, 0, 0]).save(tmp_path / "out.npz")
    assert "123456" not in (tmp_path / "out.npz.json").read_text()
    with np.load(tmp_path / "out.npz") as archive:
        assert sorted(archive.files) == ["factor_0", "measurements"]


def edit(**fields: object) -> Callable[[Path], None]:
    """Change fields of the statement; a name with two underscores is a field within a field."""

    def change(folder: Path) -> None:
        path = folder / "out.npz.json"
        statement = json.loads(path.read_text())
        for name, value in fields.items():
            *outer, last = name.split("__")
            inner = statement
            for part in outer:
                inner = inner[part]
            inner[last] = value
        path.write_text(json.dumps(statement))

    return change


def forge(**arrays: Any) -> Callable[[Path], None]:
    """Put other arrays into the file, and its new digest into the statement; None removes one."""

    def change(folder: Path) -> None:
        with np.load(folder / "out.npz") as archive:
            held: dict[str, Any] = {name: archive[name] for name in archive.files}
        for name, array in arrays.items():
            held[name] = array(held[name]) if callable(array) else array
        content = io.BytesIO()
        np.savez(content, **{name: array for name, array in held.items() if array is not None})
        rewrite(content.getvalue())(folder)

    return change


def rewrite(data: bytes) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / "out.npz").write_bytes(data)
        edit(file__sha256=hashlib.sha256(data).hexdigest())(folder)

    return change


def with_simulated_noise(_: Any) -> Any:
    scale = MatrixMechanism(Prefix(5), BUDGET, neighbouring="replace").covariance.scale
    return scale * simulation_generator(1).standard_normal((5, 1))


def nearly(values: Any) -> Any:
    values[2, 0] = np.nextafter(values[2, 0], np.inf)
    return values


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        # measurements that no release can have
        (forge(measurements=nearly), "on the grid"),
        (forge(measurements=with_simulated_noise), "on the grid"),
        (forge(measurements=np.full((5, 1), 0.1)), "on the grid"),
        (forge(measurements=np.full((5, 1), np.nan)), "finite"),
        (forge(measurements=np.full((5, 1), np.inf)), "finite"),
        (forge(measurements=lambda values: values[:-1]), "5 measurements"),
        (forge(measurements=lambda values: values.T), "5 measurements"),
        (forge(measurements=lambda values: values[:, 0]), "not a matrix"),
        (forge(measurements=np.zeros((5, 1), np.int64)), "float64"),
        (forge(measurements=None), "float64"),
        # another strategy
        (forge(factor_0=lambda factor: 2.0 * factor), "states a sensitivity"),
        (forge(factor_0=lambda factor: factor * (1 + 1e-6)), "states a sensitivity"),
        (forge(factor_0=lambda factor: factor[:4]), "4 measurements"),
        (forge(factor_0=np.ones((5, 5)) / 9), "equal"),
        (forge(factor_0=np.diag([0.1, 0.1, 0.1, 0.1, 0.0])), "does not answer"),
        (forge(factor_0=np.full((5, 5), np.nan)), "NaN"),
        (forge(factor_0=None), "empty"),
        (forge(factor_2=np.eye(5)), "factor_0, factor_1"),
        (forge(other=np.eye(5)), "factor_0, factor_1"),
        (forge(part_0_factor_0=np.eye(5)), "part_0_factor_0"),
        # another workload
        (edit(workload=[[{"kind": "Prefix", "size": 4}]], workload_in_words="Prefix(4)"), "laid"),
        (edit(workload=[[{"kind": "Identity", "size": 5}]]), "workload_in_words"),
        (edit(workload_in_words="Prefix(6)"), "workload_in_words"),
        (edit(workload=[[{"kind": "Dense", "array": "queries_0"}]]), "queries_0"),
        (edit(workload=[[{"kind": "Dense", "array": "measurements"}]]), "measurements"),
        (forge(queries_0=np.eye(5)), "queries_0"),
        (edit(workload=[[{"kind": "Suffix", "size": 5}]]), "Suffix"),
        (edit(workload=[[{"kind": "Prefix", "size": 0}]]), "size=0"),
        (edit(workload=[[{"kind": "Prefix", "size": "5"}]]), r"\$.workload"),
        (edit(workload=[[{"kind": "Prefix", "size": 5, "longest": 2}]]), "longest"),
        (edit(workload=[[{"kind": "Prefix", "size": 8000}] * 3]), "merge their cells"),
        (forge(factor_0=np.ones((1, 200_000))), "laid out as"),
        (edit(workload=[]), "empty"),
        (edit(workload=[[]]), "empty"),
        # another guarantee
        (edit(guarantee__epsilon=0.5), "not guaranteed"),
        (edit(guarantee__delta=1e-9), "not guaranteed"),
        (edit(guarantee__mu=0.1), "noise gives mu"),
        (edit(guarantee__neighbouring="add-remove"), "neighbouring"),
        (edit(guarantee__records=2), "records=2"),
        (edit(guarantee__epsilon=2.0), "in_words"),
        (edit(in_words="(0, 0)-differential privacy"), "in_words"),
        (edit(noise="matrixdp-noise-2"), "noise"),
        (edit(covariance__scale=1.0), "grid|mu="),
        (edit(sensitivity__bound=0.5), "states a sensitivity"),
        (edit(sensitivity__bound=1e9), "mu="),
        (edit(sensitivity__kind="RowBox"), "sensitivity"),
        (edit(covariance__kind="Diagonal"), "covariance"),
        (edit(guarantee__mu=float("nan")), "malformed"),
        (edit(guarantee__mu=True), "guarantee.mu"),
        # another file
        (edit(file__sha256="0" * 64), "digest"),
        (edit(schema="matrixdp-release/2"), "schema"),
        (edit(promise="perfect secrecy"), "promise"),
        (lambda folder: (folder / "out.npz").write_bytes(b"PK"), "digest"),
        (rewrite(b"PK"), "damaged"),
        (rewrite(b""), "damaged"),
        (lambda folder: (folder / "out.npz").unlink(), "out.npz does not exist"),
        (lambda folder: (folder / "out.npz.json").unlink(), "out.npz.json is missing"),
        (lambda folder: (folder / "out.npz.json").write_text("{"), "not a statement"),
        (lambda folder: (folder / "out.npz.json").write_text("[]"), "not a statement"),
        (lambda folder: (folder / "out.npz.json").write_bytes(b"\xff\xfe"), "not a statement"),
        (lambda folder: (folder / "out.npz.json").write_text("[" * 10**5), "not a statement"),
    ],
)
def test_what_does_not_prove_itself_is_refused(
    damage: Callable[[Path], None], message: str, tmp_path: Path
) -> None:
    made_release(Prefix(5), "replace").save(tmp_path / "out.npz")
    WorkloadRelease.load(tmp_path / "out.npz")
    damage(tmp_path)
    with pytest.raises(FileFormatError, match=message) as refusal:
        WorkloadRelease.load(tmp_path / "out.npz")
    assert "pickle" not in str(refusal.value)


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    made_release(Prefix(5), "replace").save(tmp_path / "out.npz")
    data = (tmp_path / "out.npz").read_bytes()
    for length in (1, 100, len(data) // 2, len(data) - 1):
        rewrite(data[:length])(tmp_path)
        with pytest.raises(FileFormatError, match="damaged"):
            WorkloadRelease.load(tmp_path / "out.npz")


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
@pytest.mark.parametrize("name", ["product", "weighted", "tables", "dense", "stacked"])
def test_a_heavier_strategy_is_refused_whatever_its_kind(
    name: str, relation: str, tmp_path: Path
) -> None:
    if name == "stacked":
        release = made_release(UNION, relation, stack_for(UNION))
    elif name == "weighted":
        release = made_release(Prefix(2), relation, WEIGHTED)
    else:
        release = made_release(WORKLOADS[name], relation)
    release.save(tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as archive:
        named = [name for name in archive.files if name.endswith("weights")]
        heaviest = [*named, archive.files[1]][0]
    # A millionth more: what a strategy that was found is above the norm that it was scaled to.
    forge(**{heaviest: lambda array: 1.00001 * array})(tmp_path)
    with pytest.raises(FileFormatError, match="states a sensitivity"):
        WorkloadRelease.load(tmp_path / "out.npz")


def test_a_swapped_matrix_of_queries_is_refused(tmp_path: Path) -> None:
    narrow = Dense([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    made_release(narrow, "add-remove").save(tmp_path / "out.npz")
    forge(queries_0=np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]))(tmp_path)
    with pytest.raises(FileFormatError, match="does not answer"):
        WorkloadRelease.load(tmp_path / "out.npz")


def test_targets_are_checked(tmp_path: Path) -> None:
    release = made_release(Prefix(5), "replace")
    for name in ("out.npz", "out.npz.json"):
        (tmp_path / name).write_text("precious")
        with pytest.raises(InvalidParameterError, match="exists"):
            release.save(tmp_path / "out.npz")
        assert [path.read_text() for path in tmp_path.iterdir()] == ["precious"]
        (tmp_path / name).unlink()
    with pytest.raises(InvalidParameterError, match=r"\.npz"):
        release.save(tmp_path / "out.npy")
    with pytest.raises(InvalidParameterError, match="folder"):
        release.save(tmp_path / "no" / "out.npz")
    release.save(tmp_path / "out.npz")
    other = made_release(Prefix(4), "replace")
    other.save(tmp_path / "out.npz", force=True)
    assert WorkloadRelease.load(tmp_path / "out.npz").workload.rows == 4
    with pytest.raises(FileFormatError, match="folder"):
        WorkloadRelease.load(tmp_path)


class Doubled(Prefix):
    """Queries that a saved Prefix would not ask."""

    def along(self, array: np.ndarray) -> np.ndarray:
        return 2.0 * super().along(array)


def test_workloads_of_other_kinds_are_not_saved(tmp_path: Path) -> None:
    release = made_release(Prefix(5), "replace")
    other = WorkloadRelease(
        measurements=release.measurements, workload=Doubled(5), strategy=release.strategy
    )
    with pytest.raises(InvalidParameterError, match="Doubled"):
        other.save(tmp_path / "out.npz")
    assert not list(tmp_path.iterdir())


def test_a_release_by_hand_proves_its_strategy() -> None:
    release = made_release(Prefix(5), "replace")
    assert isinstance(release.strategy, ProductStrategy)

    def by_hand(**changes: Any) -> WorkloadRelease:
        parts: dict[str, Any] = {
            "measurements": release.measurements,
            "workload": release.workload,
            "strategy": release.strategy,
        }
        return WorkloadRelease(**(parts | changes))

    assert by_hand().guarantee == release.guarantee
    for name in ("measurements", "workload", "strategy"):
        with pytest.raises(InvalidParameterError, match=f"{name} is a str"):
            by_hand(**{name: "x"})
    with pytest.raises(InvalidParameterError, match="states a sensitivity"):
        by_hand(strategy=ProductStrategy([1.001 * release.strategy.factors[0]]))
    with pytest.raises(ShapeError, match="4 measurements"):
        by_hand(strategy=ProductStrategy([release.strategy.factors[0][:4]]))
    box = IMGM(RowBox([5.0], neighbouring="replace"), BUDGET).release(np.zeros((5, 1)))
    with pytest.raises(InvalidParameterError, match="states a RowBox"):
        by_hand(measurements=box)
    ball = FrobeniusBall(5.0, neighbouring="replace")
    uneven = IMGM(ball, BUDGET, Diagonal(np.full((5, 1), 99.0))).release(np.zeros((5, 1)))
    with pytest.raises(InvalidParameterError, match="Diagonal noise"):
        by_hand(measurements=uneven)


ELSEWHERE = """
import sys
from matrixdp import WorkloadRelease
for path in sys.argv[1:]:
    print(WorkloadRelease.load(path).guarantee.mu)
"""


def test_other_processors_prove_it_too(tmp_path: Path) -> None:
    # Another kernel of the linear algebra: other last digits of norms and distances.
    releases = [
        made_release(workload, relation)
        for workload in (Identity(50), Prefix(60), WORKLOADS["tables"])
        for relation in ("add-remove", "replace")
    ]
    paths = [tmp_path / f"{number}.npz" for number in range(len(releases))]
    for release, path in zip(releases, paths, strict=True):
        release.save(path)
    for kernel in ("Prescott", "Haswell"):
        done = subprocess.run(
            [sys.executable, "-c", ELSEWHERE, *paths],
            env=os.environ | {"OPENBLAS_CORETYPE": kernel},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == [repr(release.guarantee.mu) for release in releases]
