"""Features with names: their ranges are given by name, and their order does not matter."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="private estimators need the extra `sklearn`")

from sklearn.preprocessing import FunctionTransformer

from matrixdp.errors import InvalidParameterError
from matrixdp.estimators import PrivatePCA, PrivatePipeline, PrivateRidge

pd = pytest.importorskip("pandas", reason="frames are tested with pandas")
pa = pytest.importorskip("pyarrow", reason="tables are tested with pyarrow")
pl = pytest.importorskip("polars", reason="frames are tested with polars")

RNG = np.random.default_rng(3)
VALUES = {
    "age": RNG.uniform(17, 90, 50),
    "hours": RNG.uniform(1, 99, 50),
    "gain": RNG.uniform(0, 1e5, 50),
}
ORDER = ["gain", "age", "hours"]
ROWS = np.column_stack([VALUES[name] for name in ORDER])


def test_estimators_go_by_name() -> None:
    frame = pd.DataFrame(VALUES)
    ranges = {"hours": (1, 99), "age": (17, 90), "gain": (0, 1e5)}
    target = VALUES["age"] / 90
    model = PrivateRidge(epsilon=100.0, bounds=ranges, target_bounds=(0, 1)).fit(frame, target)
    np.testing.assert_allclose(model.predict(frame), model.predict(frame[ORDER]), rtol=1e-9)
    assert model.guarantee_ is not None
    # The ranges are those of the columns that they name: age is not clamped to that of gain.
    found = PrivatePCA(epsilon=1e4, bounds=ranges).fit(pd.concat([frame[ORDER]] * 200)).mean_
    np.testing.assert_allclose(found, frame[ORDER].mean(), rtol=0.05)
    with pytest.raises(InvalidParameterError, match="bounds=\\{"):
        PrivatePCA(bounds=([17, 1, 0], [90, 99, 1e5])).fit(frame)
    for wrong in ({"age": (17, 90)}, {**ranges, "more": (0, 1)}):
        with pytest.raises(InvalidParameterError, match="exactly these names"):
            PrivatePCA(bounds=wrong).fit(frame)
    with pytest.raises(InvalidParameterError, match="exactly these names"):
        PrivatePCA(bounds=ranges).fit(ROWS)
    with pytest.raises(InvalidParameterError, match="two columns of one name"):
        PrivatePCA(bounds=(0, 1)).fit(pd.DataFrame(np.zeros((3, 2)), columns=["a", "a"]))


def test_names_that_are_not_text_are_refused() -> None:
    """scikit-learn ignores them, so that columns in another order would be mixed up."""
    target = VALUES["age"] / 90
    model = PrivateRidge(bounds=(0, 1e5), target_bounds=(0, 1)).fit(pd.DataFrame(ROWS), target)
    pairs = pd.MultiIndex.from_tuples([("a", 0), ("a", 1), ("a", 2)])
    for names in ([5, 6, 7], [1, 0, 2], [("a", 0), ("a", 1), ("a", 2)], pairs, ["a", "b", 2]):
        frame = pd.DataFrame(ROWS)
        frame.columns = names
        with pytest.raises(InvalidParameterError, match="not text"):
            PrivatePCA(bounds=([0, 17, 1], [1e5, 90, 99])).fit(frame)
    with pytest.raises(InvalidParameterError, match="not text"):
        model.predict(pd.DataFrame(ROWS)[[1, 0, 2]])


def test_names_stay_behind_a_step_that_keeps_them() -> None:
    frame, target = pd.DataFrame(VALUES), VALUES["age"] / 90
    ranges = {"hours": (1, 99), "age": (17, 90), "gain": (0, 1e5)}
    other_kind = pl.DataFrame(VALUES)
    for given, other in ((frame, frame[ORDER]), (other_kind, other_kind.select(ORDER))):
        last = PrivateRidge(bounds=ranges, target_bounds=(0, 1))
        steps = [("absolute", FunctionTransformer(abs_of)), ("last", last)]
        model = PrivatePipeline(steps).fit(given, target)
        np.testing.assert_allclose(model.predict(given), model.predict(other), rtol=1e-9)
        last = PrivateRidge(bounds=([0, 17, 1], [1e5, 90, 99]), target_bounds=(0, 1))
        with pytest.raises(InvalidParameterError, match="bounds=\\{"):
            PrivatePipeline([steps[0], ("last", last)]).fit(given, target)


def test_made_up_names_in_another_order_are_those_of_the_fit() -> None:
    """Also behind a step that drops names, from which no other step could tell the order."""
    target, order = VALUES["age"] / 90, [2, 0, 1]
    numbered, named = pd.DataFrame(ROWS), pl.DataFrame(ROWS)
    exchanged = named.select([f"column_{place}" for place in order])
    for given, other in (
        (numbered, numbered[order]),
        (numbered[order], numbered),
        (named, exchanged),
        (exchanged, named),
        (numbered, ROWS),
        (ROWS, numbered),
        (numbered, pd.DataFrame(ROWS, columns=ORDER)),
    ):
        last = PrivateRidge(bounds=(0, 1e5), target_bounds=(0, 1))
        steps = [("plain", FunctionTransformer(np.asarray)), ("last", last)]
        model = PrivatePipeline(steps).fit(given, target)
        np.testing.assert_allclose(model.predict(given), model.predict(other), rtol=1e-9)
    alone = PrivateRidge(bounds=(0, 1e5), target_bounds=(0, 1)).fit(exchanged, target)
    np.testing.assert_allclose(alone.predict(exchanged), alone.predict(named), rtol=1e-9)


def abs_of(table: Any) -> Any:
    return table.abs() if hasattr(table, "abs") else table.select(pl.all().abs())


def test_a_record_by_itself_does_not_show_the_categories_of_all() -> None:
    """With another record in the data, each record would have another code."""
    frame = pd.DataFrame({"job": ["b", "c", "b"]}).astype("category")
    codes = FunctionTransformer(lambda part: part.apply(lambda column: column.cat.codes))
    last = PrivatePCA(data_norm=1.0)
    model = PrivatePipeline([("codes", codes), ("last", last)])
    for shared in (frame, frame["job"], pl.DataFrame(frame), pa.Table.from_pandas(frame)):
        with pytest.raises(InvalidParameterError, match="'codes' would get categories"):
            model.fit(shared)
