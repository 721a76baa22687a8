"""Contingency tables: named categories and bins."""

import numpy as np
import pytest

from matrixdp import Budget, MatrixMechanism
from matrixdp.queries import Bins, Categories, ContingencyTable
from matrixdp.workloads import Prefix

SEX = Categories("sex", ["F", "M"])
AGE = Bins("age", [0, 18, 65, np.inf])
ROWS = [("F", 17), ("M", 18), ("F", 80), ("F", 64.9), ("M", 0)]


def test_counts_and_labels() -> None:
    table = ContingencyTable([SEX, AGE], "add-remove")
    assert table.evaluate(ROWS).tolist() == [[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]]
    assert table.index == ["sex=F", "sex=M"]
    assert table.columns == ["age=[0; 18)", "age=[18; 65)", "age=[65; inf]"]
    assert str(table) == "counts of records by sex (F, M), age ([0; 18), [18; 65), [65; inf])"
    three = ContingencyTable([AGE, SEX, Categories("k", [1, 2])], "replace")
    assert three.columns[1] == "sex=F, k=2"
    assert three.evaluate([(5, "F", 2)]).shape == (3, 4)


def test_many_cells_are_counted_and_edges_keep_their_digits() -> None:
    table = ContingencyTable([Bins("x", range(100))], "replace")
    assert str(table) == "counts of records by x (99 cells)"
    assert Bins("x", [1234567, 1234568]).labels == ["[1234567; 1234568]"]


def test_blocks_frames_and_arrays_give_the_same_counts() -> None:
    table = ContingencyTable([SEX, AGE], "replace")
    expected = table.evaluate(ROWS).tolist()
    frame = pytest.importorskip("pandas").DataFrame(ROWS, columns=["sex", "age"])
    tables = pytest.importorskip("polars")
    other = tables.DataFrame(
        {"sex": [row[0] for row in ROWS], "age": [float(row[1]) for row in ROWS]}
    )
    for data in (
        frame,
        other,
        iter([ROWS[:2], ROWS[2:]]),
        np.array(ROWS, dtype=object),
        tuple(ROWS),
        [(sex, np.float32(age) if age == 17 else np.float64(age)) for sex, age in ROWS],
        [(sex, np.int64(age) if age == 17 else age) for sex, age in ROWS],
        pytest.importorskip("pyarrow").Table.from_pandas(frame),
    ):
        assert table.evaluate(data).tolist() == expected


def test_one_attribute_may_be_given_as_values() -> None:
    numbers = ContingencyTable([Bins("x", [0, 1, 2])], "replace")
    for data in ([0.5, 1.5, 2.0], np.array([0.5, 1.5, 2.0]), np.array([[0.5], [1.5], [2.0]])):
        assert numbers.evaluate(data).tolist() == [[1.0], [2.0]]
    assert numbers.columns == ["count"]
    text = ContingencyTable([SEX], "replace")
    assert text.evaluate(np.array(["M", "M"])).tolist() == [[0.0], [2.0]]
    series = pytest.importorskip("pandas").Series(["M", "M"])
    assert text.evaluate(series).tolist() == [[0.0], [2.0]]
    whole = ContingencyTable([Categories("k", [3, 5])], "replace")
    assert whole.evaluate(np.array([5, 5, 3])).tolist() == [[1.0], [2.0]]


def test_counts_are_what_the_matrix_mechanism_takes() -> None:
    table = ContingencyTable([Bins("x", range(9))], "add-remove")
    mechanism = MatrixMechanism(Prefix(8), Budget(1.0, 1e-6), neighbouring="add-remove")
    release = mechanism.release(table.counts(np.arange(8.0)))
    assert release.answers.shape == (8,)


@pytest.mark.parametrize("size", [1, 2, 7])
def test_bins_are_those_of_numpy(size: int) -> None:
    rng = np.random.default_rng(size)
    edges = np.sort(rng.uniform(0, 10, size + 1))
    values = np.concatenate([rng.uniform(edges[0], edges[-1], 200), edges])
    counts = ContingencyTable([Bins("x", edges)], "replace").counts(values)
    np.testing.assert_array_equal(counts, np.histogram(values, edges)[0])
