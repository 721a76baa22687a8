"""Bad input is refused by name, before anything is drawn, and without a private value."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from matrixdp import Budget, InvalidParameterError, PrivacyFilter, ReleaseKey
from matrixdp.baselines import AnalyticGaussian
from matrixdp.errors import FileFormatError, MatrixDPError, ShapeError
from matrixdp.queries import (
    Bins,
    Categories,
    ClippedRecords,
    ContingencyTable,
    CrossMoment,
    Features,
    GradientSum,
    Gram,
    JointMoments,
    Mean,
    PublicBounds,
    Query,
    SampleCovariance,
    Sum,
    parquet_blocks,
)

BUDGET = Budget(1.0, 1e-6)
BOUNDS = PublicBounds(2, norm=1.0)
SECRET = 8675309.0
QUERIES: list[Query] = [
    Sum(BOUNDS, "replace"),
    Mean(BOUNDS, "replace", count=2),
    Gram(PublicBounds(2, lower=0, upper=1), "replace"),
    SampleCovariance(BOUNDS, "replace", count=2),
    CrossMoment(PublicBounds(1, norm=1.0), PublicBounds(1, norm=1.0), "replace"),
    JointMoments(PublicBounds(1, norm=1.0), PublicBounds(1, norm=1.0), "replace"),
    Features(BOUNDS, "replace", count=2),
    ClippedRecords(BOUNDS, "replace"),
]
BAD_DATA: dict[str, Any] = {
    "wrong width": [[SECRET, 1.0, 2.0]],
    "one axis": [SECRET, 1.0],
    "three axes": np.full((2, 2, 2), SECRET),
    "ragged": [[SECRET, 1.0], [1.0]],
    "NaN": [[SECRET, np.nan], [1.0, 1.0]],
    "infinity": [[SECRET, np.inf], [1.0, 1.0]],
    "empty": [],
    "no rows": np.zeros((0, 2)),
    "no blocks": iter([]),
    "text": [[str(SECRET), "1"]],
    "None": [[SECRET, None]],
    "objects": np.array([[SECRET, {}]], dtype=object),
    "complex": [[SECRET, 1j]],
    "masked": np.ma.array([[SECRET, 1.0]], mask=[[False, True]]),
    "sparse": sparse.csr_array([[SECRET, 1.0]]),
    "large integers": [[2**60 + 1, 1]],
    "a number": SECRET,
    "nothing": None,
    "a mapping": {"a": SECRET},
    "a frozen set": frozenset([SECRET]),
    "bytes": bytearray(b"8675309"),
    "a view of memory": memoryview(b"8675309"),
    "blocks of another width": iter([np.ones((1, 2)), np.full((1, 3), SECRET)]),
    "NaN in a late block": iter([np.ones((1, 2)), np.array([[SECRET, np.nan]])]),
    "no file": "nowhere.npy",
    "another kind of file": "rows.txt",
}


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: type(query).__name__)
@pytest.mark.parametrize("kind", BAD_DATA)
def test_bad_data_are_refused_before_anything_is_drawn(query: Query, kind: str) -> None:
    data = BAD_DATA[kind]
    if hasattr(data, "__next__"):  # an iterator can be read once
        blocks = {
            "no blocks": [],
            "blocks of another width": [np.ones((1, 2)), np.full((1, 3), SECRET)],
            "NaN in a late block": [np.ones((1, 2)), np.array([[SECRET, np.nan]])],
        }
        data = iter(blocks[kind])
    key, purse = ReleaseKey.from_bytes(bytes(32)), PrivacyFilter(BUDGET, neighbouring="replace")
    with pytest.raises((InvalidParameterError, ShapeError, FileFormatError)) as refusal:
        query.release(data, BUDGET, key=key, privacy_filter=purse)
    assert "8675309" not in str(refusal.value)
    assert purse.spent == 0.0
    key.check_unbound()


@pytest.mark.parametrize(
    "query", [Mean(BOUNDS, "replace", 5), SampleCovariance(BOUNDS, "replace", 5)]
)
def test_a_public_count_must_be_the_number_of_records(query: Query) -> None:
    with pytest.raises(InvalidParameterError, match="count=5 is not the number of records"):
        query.release(np.zeros((7, 2)), BUDGET)


@pytest.mark.parametrize("rows", [1, 3])
def test_features_have_one_row_for_each_record(rows: int) -> None:
    with pytest.raises(ShapeError, match="count=2 is not the number of records"):
        Features(BOUNDS, "replace", count=2).evaluate(np.zeros((rows, 2)))


def test_a_private_count_that_is_not_paid_for_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match="count"):
        SampleCovariance(BOUNDS, "add-remove", count=None)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match=r"count=None.*public under replace"):
        Mean(BOUNDS, "replace")


def test_two_releases_take_no_key_and_are_no_matrix() -> None:
    query, purse = Mean(BOUNDS, "add-remove"), PrivacyFilter(BUDGET, neighbouring="add-remove")
    for more, message in (
        ({"key": ReleaseKey.from_bytes(bytes(32))}, "key is for one release"),
        ({"mechanism": AnalyticGaussian}, "mechanism is for"),
    ):
        with pytest.raises(InvalidParameterError, match=message):
            query.release([[1.0, 1.0]], BUDGET, privacy_filter=purse, **more)
    assert purse.spent == 0.0
    for ask in (lambda: query.sensitivity, lambda: query.evaluate([[1.0, 1.0]])):
        with pytest.raises(InvalidParameterError, match="call release"):
            ask()
    with pytest.raises(InvalidParameterError, match="how many records"):
        Features(BOUNDS, "add-remove", count=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"columns": 0, "norm": 1.0}, "columns=0"),
        ({"columns": 2.0, "norm": 1.0}, r"columns=2\.0"),
        ({"columns": 2**24 + 1, "norm": 1.0}, "columns=16777217"),
        ({"columns": 2}, "neither norm nor"),
        ({"columns": 2, "norm": 0.0}, r"norm=0\.0"),
        ({"columns": 2, "norm": -1.0}, r"norm=-1\.0"),
        ({"columns": 2, "norm": np.nan}, "norm=nan"),
        ({"columns": 2, "norm": np.inf}, "norm=inf"),
        ({"columns": 2, "norm": 1e-200}, "norm=1e-200"),
        ({"columns": 2, "norm": "1"}, "norm='1'"),
        ({"columns": 2, "norm": True}, "norm=True"),
        ({"columns": 2, "lower": 0}, "both lower and upper"),
        ({"columns": 2, "upper": 1}, "both lower and upper"),
        ({"columns": 2, "lower": [0, 0, 0], "upper": 1}, r"lower has shape \(3,\)"),
        ({"columns": 2, "lower": 0, "upper": [[1, 1]]}, r"upper has shape \(1, 2\)"),
        ({"columns": 2, "lower": 1, "upper": 1}, r"lower\[0\]=1\.0"),
        ({"columns": 2, "lower": [0, 2], "upper": 1}, r"lower\[1\]=2\.0"),
        ({"columns": 2, "lower": 0, "upper": np.nan}, "NaN"),
        ({"columns": 2, "lower": -np.inf, "upper": 1}, "NaN or infinity"),
        ({"columns": 2, "lower": 1, "upper": 2, "norm": 1.0}, "exclude 0"),
        ({"columns": 2, "lower": 1e6, "upper": 1e6 + 1}, "too close together"),
        ({"columns": 2, "lower": 0, "upper": 1e-9, "norm": 1.0}, "too close together"),
        ({"columns": 2, "lower": 0, "upper": 0.99 * 2.0**-14, "norm": 1.0}, "too close together"),
        ({"columns": 2, "lower": 0, "upper": 1e200}, "in size"),
    ],
)
def test_bad_bounds_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((InvalidParameterError, ShapeError), match=message):
        PublicBounds(**arguments)


def test_bad_relations_bounds_and_budgets_are_refused() -> None:
    for make in (Sum, Gram, ClippedRecords):
        with pytest.raises(InvalidParameterError, match="neighbouring"):
            make(BOUNDS, "both")  # type: ignore[arg-type]
        with pytest.raises(InvalidParameterError, match="bounds is a float"):
            make(1.0, "replace")  # type: ignore[arg-type]
    for pair in (CrossMoment, JointMoments):
        with pytest.raises(InvalidParameterError, match="y is a NoneType"):
            pair(BOUNDS, None, "replace")  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="budget is a float"):
        Sum(BOUNDS, "replace").release([[1.0, 1.0]], 1.0)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="budget is a float"):
        Mean(BOUNDS, "add-remove").release([[1.0, 1.0]], 1.0)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="privacy_filter is a Budget"):
        Mean(BOUNDS, "add-remove").release([[1.0, 1.0]], BUDGET, privacy_filter=BUDGET)  # type: ignore[arg-type]
    for count in (0, -1, 2.5, True):
        with pytest.raises(InvalidParameterError, match="count="):
            Mean(BOUNDS, "replace", count=count)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "data",
    [
        [np.ones((2, 3)), np.ones((2, 2))],
        [np.ones((2, 2))],
        [np.ones((2, 2)), np.ones((3, 2))],
        np.ones((2, 4)),
        iter([[np.full((1, 2), np.nan), np.ones((1, 2))]]),
        [np.ones((0, 2)), np.ones((0, 2))],
        iter([None]),
        iter(["ab"]),
        [],
        None,
    ],
)
def test_bad_gradients_are_refused(data: Any) -> None:
    with pytest.raises(MatrixDPError):
        GradientSum([(2,), (2,)], 1.0, "replace").evaluate(data)


def test_bad_shapes_of_parameters_are_refused() -> None:
    for shapes in ([], [(0,)], [(2.5,)], "ab", None):
        with pytest.raises(MatrixDPError, match="shapes"):
            GradientSum(shapes, 1.0, "replace")  # type: ignore[arg-type]


TABLE = ContingencyTable([Categories("sex", ["F", "M"]), Bins("age", [0, 40, 120])], "replace")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([("X8675309", 3)], "'sex' of data has a value that is not among"),
        ([(None, 3)], "'sex'"),
        ([([], 3)], "'sex'"),
        ([("F", 8675309)], "'age' of data has a value outside its bins"),
        ([("F", float("nan"))], "'age'"),
        ([("F", None)], "'age'"),
        ([("F", "8675309")], "'age'"),
        ([("F", True)], "'age'"),
        ([("F",)], "rows of 2 values"),
        ([("F", 3, 8675309)], "rows of 2 values"),
        (["F", "M"], "rows of 2 values"),
        ([((8675309, []), 3)], "'sex'"),
        ([("F", 10**400)], "'age'"),
        ([("F", -(10**400))], "'age'"),
        (iter([("F", 3)]), "iterator of tuples, which are rows"),
        (iter([None]), "rows of 2 values"),
        (iter([8675309]), "rows of 2 values"),
        (np.ma.array([[1.0, 2.0]], mask=[[True, False]]), "masked"),
        (np.ones((2, 3)), "rows of 2 values"),
        ([], "no records"),
        (iter([]), "no records"),
        (8675309, "data is a int"),
        ("8675309", "data is a path"),
        ({"sex": ["F"]}, "data is a dict"),
    ],
)
def test_bad_tables_are_refused(data: Any, message: str) -> None:
    with pytest.raises((InvalidParameterError, ShapeError), match=message) as refusal:
        TABLE.release(data, BUDGET)
    assert "8675309" not in str(refusal.value)


LARGE = ContingencyTable([Bins("a", np.arange(9999.0))] * 2, "replace")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Categories("a", []), "at least one"),
        (lambda: Categories("a", ["x", "x"]), "twice"),
        (lambda: Categories("a", [1, True]), "twice"),
        (lambda: Categories("a", [1.5]), "text or integers"),
        (lambda: Categories("a", "xy"), "not a sequence"),
        (lambda: Bins("a", [1]), "two or more"),
        (lambda: Bins("a", [1, 1]), "increase"),
        (lambda: Bins("a", [2, 1]), "increase"),
        (lambda: Bins("a", [0, np.nan]), "increase"),
        (lambda: ContingencyTable([], "replace"), "at least one"),
        (lambda: ContingencyTable(["sex"], "replace"), r"attributes\[0\] is a str"),  # type: ignore[list-item]
        (lambda: LARGE.counts([]), "merge cells"),
        (lambda: LARGE.numbers(["b"]), "'b', which 0 attributes"),
        (lambda: LARGE.marginals([("a",)]), "'a', which 2 attributes"),
        (lambda: LARGE.numbers("a"), "not a sequence"),
        (lambda: ContingencyTable([Bins("a", [0, 1])], "no"), "neighbouring"),  # type: ignore[arg-type]
    ],
)
def test_bad_attributes_are_refused(make: Any, message: str) -> None:
    with pytest.raises((InvalidParameterError, ShapeError), match=message):
        make()


def test_errors_do_not_say_how_many_records_there_are() -> None:
    for data in (np.ones(309), np.ones((309, 3)), np.ones((2, 309, 2))):
        with pytest.raises(ShapeError) as refusal:
            Sum(BOUNDS, "add-remove").evaluate(data)
        assert "309" not in str(refusal.value)


@pytest.mark.parametrize("name", ["none.parquet", "text.parquet", "folder.parquet"])
def test_files_that_are_not_parquet_are_refused_by_name(name: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "text.parquet").write_text("8675309, which is no Parquet file")
    (tmp_path / "folder.parquet").mkdir()
    with pytest.raises(FileFormatError, match=name) as refusal:
        next(parquet_blocks(tmp_path / name, ["a"]))
    assert "8675309" not in str(refusal.value)


@pytest.mark.parametrize("columns", [[], "a", None])
def test_columns_of_parquet_files_are_names(columns: Any) -> None:
    with pytest.raises(InvalidParameterError, match="columns"):
        next(parquet_blocks("rows.parquet", columns))


def test_text_is_not_a_block_of_records() -> None:
    # Its letters would be counted: one record, of which the neighbour has none, in two cells.
    table = ContingencyTable([Categories("sex", ["F", "M"])], "add-remove")
    for data in (iter(["FM"]), iter([b"FM"]), (letters for letters in ("F", "M"))):
        with pytest.raises(ShapeError, match="rows of 1 values"):
            table.evaluate(data)
    series = pytest.importorskip("pandas").Series(["F", "FM"])
    with pytest.raises(InvalidParameterError, match="'sex'"):
        table.evaluate(series)


def test_a_row_is_not_a_block_of_records() -> None:
    # Each of its numbers would count as a record of one column.
    table, total = (
        ContingencyTable([Bins("age", [0, 50, 100])], "replace"),
        Sum(PublicBounds(["age"], lower=0, upper=9), "replace"),
    )
    for query in (table, total):
        with pytest.raises(InvalidParameterError, match="iterator of tuples, which are rows"):
            query.evaluate(iter([(31, 40), (50, 60)]))
        rows = ((31,), (50,))
        np.testing.assert_array_equal(query.evaluate(iter([rows])), query.evaluate([31, 50]))


def test_sparse_data_are_refused_by_name() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    for kind in ("csr", "dia"):
        for query in (Sum(BOUNDS, "replace"), TABLE):
            with pytest.raises(InvalidParameterError, match="data is sparse"):
                query.evaluate(sparse.eye(2, format=kind))


def test_a_filter_does_not_pay_for_noise_that_cannot_be_drawn() -> None:
    purse = PrivacyFilter(BUDGET, neighbouring="add-remove")
    with pytest.raises(InvalidParameterError, match="rescale"):
        Mean(PublicBounds(2, norm=1e90), "add-remove").release(
            [[1.0, 2.0]], Budget(0.0, 1e-200), privacy_filter=purse
        )
    assert purse.spent == 0.0
