"""Consistent tables, against least squares on all cells written out."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import linalg

from matrixdp import (
    IMGM,
    Budget,
    Diagonal,
    FrobeniusBall,
    InvalidParameterError,
    Release,
    ReleaseKey,
    SymmetricBall,
)
from matrixdp.errors import ShapeError
from matrixdp.mechanisms.release import Release as ReleaseType
from matrixdp.postprocess import ConsistentMarginals, Marginal
from matrixdp.privacy import Guarantee, Neighbouring, composed_mu
from matrixdp.queries import Categories, ContingencyTable

FloatArray = NDArray[np.float64]
SIZES = {"age": 3, "sex": 2, "town": 4, "one": 1}


def released(
    table: Any, number: int, epsilon: float = 1.0, neighbouring: Neighbouring = "add-remove"
) -> ReleaseType:
    matrix = np.asarray(table).reshape(len(table) if np.ndim(table) else 1, -1)
    key = ReleaseKey.from_bytes(bytes([number] * 32))
    return IMGM(FrobeniusBall(1.0, neighbouring), Budget(epsilon, 1e-6)).release(matrix, key=key)


def summing(attributes: Sequence[str]) -> FloatArray:
    """Return the matrix that sums all cells to a table, axes in the table's order."""
    names, shape = list(SIZES), [SIZES[name] for name in attributes]
    rows = np.zeros((int(np.prod(shape)), int(np.prod(list(SIZES.values())))))
    for number, cell in enumerate(itertools.product(*(range(n) for n in SIZES.values()))):
        index = tuple(cell[names.index(name)] for name in attributes)
        rows[np.ravel_multi_index(index, shape) if shape else 0, number] = 1.0
    return rows


def made(tables: Sequence[Sequence[str]]) -> tuple[list[Marginal], FloatArray]:
    counts = np.random.default_rng(0).integers(0, 50, size=tuple(SIZES.values())).astype(float)
    members = []
    for number, attributes in enumerate(tables):
        shape = tuple(SIZES[name] for name in attributes)
        table = (summing(attributes) @ counts.ravel()).reshape(shape)
        epsilon = 0.3 * (number + 1)
        members.append(Marginal(tuple(attributes), shape, released(table, number, epsilon)))
    return members, counts


@pytest.mark.parametrize(
    "tables",
    [
        [("sex", "age"), ("age", "town")],
        [("age", "sex", "town"), ("town", "age"), ("sex",), ()],
        [("town",), ("town",), ("town", "one")],
        [("sex", "town"), ("town", "age"), ("age", "sex")],
    ],
)
def test_the_closed_form_is_generalised_least_squares(tables: list[tuple[str, ...]]) -> None:
    members, _ = made(tables)
    found = ConsistentMarginals(members)
    weights = [np.full(int(np.prod(m.shape)), 1 / m.noise_scale) for m in members]
    maps = [summing(member.attributes) for member in members]
    whole = np.concatenate(weights)[:, None] * np.vstack(maps)
    data = np.concatenate([m.table().ravel() for m in members]) * np.concatenate(weights)
    inverse = linalg.pinv(whole)
    for one, table, error in zip(maps, found.tables, found.standard_errors, strict=True):
        np.testing.assert_allclose(table.ravel(), one @ inverse @ data, atol=1e-8)
        spread = np.sqrt(np.sum(np.square(one @ inverse), axis=1))
        np.testing.assert_allclose(spread, error, rtol=1e-9)


def test_shared_sums_agree_and_errors_never_grow() -> None:
    members, counts = made([("sex", "age"), ("age", "town"), ("town", "sex"), ()])
    found = ConsistentMarginals(members)
    sex_age, age_town, town_sex, total = found.tables
    np.testing.assert_allclose(sex_age.sum(axis=0), age_town.sum(axis=1), atol=1e-9)
    np.testing.assert_allclose(sex_age.sum(axis=1), town_sex.sum(axis=0), atol=1e-9)
    np.testing.assert_allclose(total, [t.sum() for t in found.tables], atol=1e-9)
    for member, error in zip(members, found.standard_errors, strict=True):
        assert error < member.noise_scale
    # Tables that agree already, noise or not, stay as they are.
    exact = [
        Marginal(member.attributes, member.shape, _with_value(member, counts)) for member in members
    ]
    for member, table in zip(exact, ConsistentMarginals(exact).tables, strict=True):
        np.testing.assert_allclose(table, member.table(), atol=1e-10)


def _with_value(member: Marginal, counts: FloatArray) -> ReleaseType:
    source = member.release
    table = (summing(member.attributes) @ counts.ravel()).reshape(source.shape)
    return Release(
        value=table,
        sensitivity=source.sensitivity,
        covariance=source.covariance,
        guarantee=source.guarantee,
        mechanism=source.mechanism,
    )


def test_the_guarantee_is_that_of_all_releases() -> None:
    members, _ = made([("sex",), ("age",)])
    found = ConsistentMarginals(members).guarantee
    assert found.mu == composed_mu([m.release.guarantee.mu for m in members])
    assert found.mu > max(m.release.guarantee.mu for m in members)
    assert found == Guarantee.of_mu(found.mu, delta=1e-6, neighbouring="add-remove")


def test_tables_of_queries_fit() -> None:
    attributes = [Categories("sex", ["F", "M"]), Categories("town", list("abcd"))]
    query = ContingencyTable([*attributes, Categories("age", list("xyz"))], "replace")
    records = [("F", "a", "x"), ("M", "d", "z"), ("F", "b", "y")] * 200
    release = query.release(records, Budget(5.0, 1e-6), key=ReleaseKey.from_bytes(bytes(range(32))))
    member = Marginal([a.name for a in query.attributes], query.dimensions, release)  # type: ignore[arg-type]
    found = ConsistentMarginals([member])
    np.testing.assert_allclose(found.tables[0], member.table(), atol=1e-10)
    np.testing.assert_allclose(found.tables[0], query.counts(records), atol=6 * member.noise_scale)
    assert found.tables[0].shape == (2, 4, 3)
    assert repr(found).startswith("ConsistentMarginals(sex/town/age: (")


def test_bad_tables_are_refused() -> None:
    good = released(np.ones((2, 3)), 1)
    for attributes in (("a", "a"), ("a", 1), "ab", 3):
        with pytest.raises(InvalidParameterError, match=r"^attributes"):
            Marginal(attributes, (2, 3), good)  # type: ignore[arg-type]
    for shape in ((2, 0), (2, 3.0), 6):
        with pytest.raises(InvalidParameterError, match=r"^shape"):
            Marginal(("a", "b"), shape, good)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="3 numbers for 2 attributes"):
        Marginal(("a", "b"), (2, 3, 1), good)
    with pytest.raises(ShapeError, match="not a table of shape"):
        Marginal(("a", "b"), (2, 4), good)
    with pytest.raises(InvalidParameterError, match=r"^release is a ndarray"):
        Marginal(("a", "b"), (2, 3), np.ones((2, 3)))  # type: ignore[arg-type]
    shaped = IMGM(
        FrobeniusBall(1.0, "replace"), Budget(1.0, 1e-6), covariance=Diagonal([[9.0, 8.0]])
    ).release(np.ones((1, 2)))
    with pytest.raises(InvalidParameterError, match="one scale"):
        Marginal(("a",), (2,), shaped)
    square = IMGM(SymmetricBall(1.0, "replace"), Budget(1.0, 1e-6)).release(np.eye(2))
    with pytest.raises(InvalidParameterError, match="symmetric noise"):
        Marginal(("a", "b"), (2, 2), square)


def test_tables_that_do_not_go_together_are_refused() -> None:
    good = Marginal(("a", "b"), (2, 3), released(np.ones((2, 3)), 1))
    with pytest.raises(InvalidParameterError, match=r"^marginals is empty"):
        ConsistentMarginals([])
    with pytest.raises(InvalidParameterError, match=r"^marginals\[1\] is a str"):
        ConsistentMarginals([good, "b"])  # type: ignore[list-item]
    with pytest.raises(InvalidParameterError, match="not a sequence"):
        ConsistentMarginals(good)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="4 cells of 'b'"):
        ConsistentMarginals([good, Marginal(("b",), (4,), released(np.ones((4, 1)), 2))])
    with pytest.raises(InvalidParameterError, match="one release twice"):
        ConsistentMarginals([good, good])
    other = released(np.ones((3, 1)), 2, neighbouring="replace")
    with pytest.raises(InvalidParameterError, match="one relation"):
        ConsistentMarginals([good, Marginal(("b",), (3,), other)])
