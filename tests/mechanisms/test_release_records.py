"""Tables released from records: the same numbers as from cells, and no cell written out."""

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from matrixdp import (
    Budget,
    InvalidParameterError,
    MatrixMechanism,
    PrivacyFilter,
    ReleaseKey,
    WorkloadRelease,
)
from matrixdp.errors import ShapeError
from matrixdp.integer_sums import Integers, Part
from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.queries import Bins, Categories, ContingencyTable
from matrixdp.workloads import (
    Identity,
    Prefix,
    ResidualStrategy,
    Workload,
    count_cells,
    marginals,
)
from matrixdp.workloads.strategies.product import ProductStrategy

BUDGET = Budget(1.0, 1e-5)
# Fourteen attributes, 6.6e12 cells.
SIZES = (2, 9, 16, 7, 15, 6, 5, 2, 10, 10, 9, 42, 12, 8)
LARGE = marginals(SIZES, [(0, 1), (1, 2, 3), (11, 13), (7,), *combinations(range(4, 8), 2)])
RELATIONS: list[Neighbouring] = ["add-remove", "replace"]
SUMS = [np.ones((1, 8192)), np.ones((1, 21))]


def records_of(sizes: tuple[int, ...], count: int) -> np.ndarray:
    rng = np.random.default_rng(4)
    return np.stack([rng.integers(0, size, count) for size in sizes], axis=1)


def truth_of(records: np.ndarray, workload: Workload) -> np.ndarray:
    """Count every table by itself, from what its factors keep."""
    tables = []
    for term in workload.terms():
        kept = [index for index, factor in enumerate(term) if isinstance(factor, Identity)]
        sizes = [workload.dimensions[index] for index in kept]
        table = np.zeros(sizes)
        for record in records[:, kept]:
            table[tuple(record)] += 1
        tables.append(table.ravel())
    return np.concatenate(tables)


def key() -> ReleaseKey:
    return ReleaseKey.from_bytes(bytes(range(32)))


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    "workload", [marginals([3, 4, 2], [(0, 1), (2,)]), Prefix(5), marginals([3, 4], [(0, 1)])]
)
def test_records_and_their_histogram_give_the_same_release(
    workload: Workload, relation: Neighbouring
) -> None:
    mechanism = MatrixMechanism(workload, BUDGET, neighbouring=relation)
    records = records_of(workload.dimensions, 100)
    counted = mechanism.release(count_cells(records, workload.dimensions), key=key())
    blocks = mechanism.release_records((records[at : at + 7] for at in range(0, 100, 7)), key=key())
    for release in (mechanism.release_records(records, key=key()), blocks):
        np.testing.assert_array_equal(release.measurements.value, counted.measurements.value)
        np.testing.assert_array_equal(release.answers, counted.answers)


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_table_beyond_memory_has_the_errors_that_were_stated(relation: Neighbouring) -> None:
    assert LARGE.cells > 2**42
    mechanism = MatrixMechanism(LARGE, BUDGET, neighbouring=relation)
    records = records_of(SIZES, 500)
    truth = truth_of(records, LARGE)
    bits, stated = np.random.default_rng(1), mechanism.standard_errors()
    errors = []
    for _ in range(60):
        release = mechanism.release_records(records, key=ReleaseKey.from_bytes(bits.bytes(32)))
        errors.append((release.answers - truth) / stated)
        np.testing.assert_allclose(release.standard_errors(), stated, rtol=1e-12)
    # Answers of one release are correlated; every single one is standard normal over the releases.
    means = np.sqrt(len(errors)) * np.mean(errors, axis=0)
    assert np.max(np.abs(means)) < 5.0
    squares = float(np.mean(np.square(errors)))
    assert abs(squares - 1.0) < 0.02
    for wrong in (0.9, 1.1):
        assert abs(wrong**2 * squares - 1.0) > 0.1
    assert mechanism.expected_error == pytest.approx(math.sqrt(np.mean(stated**2)), rel=1e-9)
    # The measurements themselves are independent, and as noisy as the guarantee needs.
    exact = mechanism.strategy.measure_tables(  # type: ignore[attr-defined]
        {kept: _counted(records, kept) for kept in mechanism.strategy.tables}  # type: ignore[attr-defined]
    )
    noise = np.asarray(release.measurements.value).ravel() - exact
    scaled = float(np.sum(np.square(noise))) / mechanism.covariance.scale**2
    assert 1e-4 < stats.chi2.cdf(scaled, len(noise)) < 1 - 1e-4


def _counted(records: np.ndarray, kept: tuple[int, ...]) -> np.ndarray:
    table = np.zeros([SIZES[index] for index in kept], dtype=np.int64)
    np.add.at(table, tuple(records[:, index] for index in kept), 1)
    return table


def _measured(mechanism: MatrixMechanism, records: np.ndarray) -> list[Fraction]:
    tables = {kept: _counted(records, kept) for kept in mechanism.strategy.tables}  # type: ignore[attr-defined]
    return [Fraction(x) for x in mechanism.strategy.measure_tables(tables).tolist()]  # type: ignore[attr-defined]


def _distance(one: list[Fraction], other: list[Fraction]) -> Fraction:
    return sum(((a - b) ** 2 for a, b in zip(one, other, strict=True)), Fraction(0))


@pytest.mark.parametrize("relation", RELATIONS)
def test_neighbours_beyond_memory_are_within_the_claim_and_reach_it(relation: Neighbouring) -> None:
    workload = marginals(SIZES, [(0, 7), (1, 7), (0, 6)])
    mechanism = MatrixMechanism(workload, BUDGET, neighbouring=relation)
    claimed = Fraction(mechanism.sensitivity.bound) ** 2
    records = records_of(SIZES, 200)
    base = _measured(mechanism, records)
    distances = []
    if relation == "add-remove":
        distances = [_distance(base, _measured(mechanism, records[at:])) for at in (1,)]
    else:
        for differing in product((0, 1), repeat=4):
            other = records.copy()
            for index, differs in zip((0, 1, 6, 7), differing, strict=True):
                other[0, index] = (other[0, index] + differs) % SIZES[index]
            distances.append(_distance(base, _measured(mechanism, other)))
    assert max(distances) <= claimed
    assert max(distances) >= claimed * (1 - Fraction(1, 10**5))


def test_tables_agree_and_may_be_turned() -> None:
    release = MatrixMechanism(LARGE, BUDGET, neighbouring="replace").release_records(
        records_of(SIZES, 300), key=key()
    )
    table = release.table((1, 2, 3))
    assert table.shape == (9, 16, 7)
    np.testing.assert_allclose(release.table((3, 1, 2)), table.transpose(2, 0, 1))
    np.testing.assert_allclose(release.table((2, 1)), table.sum(axis=2).T, atol=1e-6)
    # Both tables with attribute 1 agree about it, and all know the public number of records.
    by_one = release.table((0, 1)).sum(axis=0)
    np.testing.assert_allclose(by_one, table.sum(axis=(1, 2)), atol=1e-6)
    assert release.table(()).shape == ()
    # Which it is next to exact about, compared with the counts.
    assert abs(float(release.table(())) - 300.0) < 5.0 * float(release.table_errors(()))
    assert float(release.table_errors(())) < 0.1 * float(release.table_errors((7,))[0])
    assert release.table_errors((3, 1)).shape == (7, 9)
    start = 2 * 9
    np.testing.assert_allclose(release.answers[start : start + table.size], table.ravel())
    np.testing.assert_allclose(
        release.standard_errors()[start : start + table.size],
        release.table_errors((1, 2, 3)).ravel(),
    )
    with pytest.raises(InvalidParameterError, match=r"attributes \(3, 4\) together"):
        release.table((3, 4))
    assert release.estimate is None  # its cells do not fit in memory


def test_tables_follow_from_any_strategy() -> None:
    mechanism = MatrixMechanism(marginals([3, 4], [(0, 1)]), BUDGET, neighbouring="add-remove")
    assert isinstance(mechanism.strategy, ProductStrategy)
    release = mechanism.release_records(records_of((3, 4), 50), key=key())
    cells = release.answers.reshape(3, 4)
    np.testing.assert_allclose(release.table((1, 0)), cells.T)
    np.testing.assert_allclose(release.table((1,)), cells.sum(axis=0))
    # Three cells of independent noise add up.
    expected = np.full(4, math.sqrt(3.0) * release.noise_scale)
    np.testing.assert_allclose(release.table_errors((1,)), expected, rtol=1e-9)


def test_a_release_beyond_memory_is_read_back(tmp_path: Path) -> None:
    release = MatrixMechanism(LARGE, BUDGET, neighbouring="replace").release_records(
        records_of(SIZES, 300)
    )
    release.save(tmp_path / "out.npz")
    again = WorkloadRelease.load(tmp_path / "out.npz")
    assert again.guarantee == release.guarantee
    np.testing.assert_allclose(again.answers, release.answers)


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([[0.0] * 14], "integers"),
        ([[0] * 13], "14 columns"),
        ([0] * 14, "14 columns"),
        ([[2] + [0] * 13], r"outside 0 .. 1 in column 1, counted from 1"),
        ([[0] * 13 + [-1]], r"outside 0 .. 7 in column 14, "),
        (np.full((1, 14), 2**63, dtype=np.uint64), "2\\*\\*53|outside"),
        (7, "records is a int"),
        ({0: 1}, "records is a dict"),
        (iter([[[0] * 14], [[9] * 14]]), "outside 0 .. 1"),
    ],
)
def test_what_are_no_records_is_refused_and_costs_nothing(records: Any, message: str) -> None:
    mechanism = MatrixMechanism(LARGE, BUDGET, neighbouring="replace")
    purse, unspent = PrivacyFilter(BUDGET, neighbouring="replace"), key()
    with pytest.raises((InvalidParameterError, ShapeError), match=message):
        mechanism.release_records(records, key=unspent, privacy_filter=purse)
    assert purse.remaining == PrivacyFilter(BUDGET, neighbouring="replace").remaining
    mechanism.release_records([[0] * 14], key=unspent, privacy_filter=purse)


@pytest.mark.parametrize("none", [[], iter([]), iter([[], []]), np.zeros((0, 14), dtype=int)])
def test_no_records_are_released_like_some(none: Any) -> None:
    # Data without records neighbours data with one: an error would tell them apart.
    mechanism = MatrixMechanism(LARGE, BUDGET, neighbouring="add-remove")
    release = mechanism.release_records(none, key=key())
    one = mechanism.release_records([[0] * 14], key=key())
    assert float(one.table(()) - release.table(())) == pytest.approx(1.0, abs=1e-3)


def test_more_records_than_the_bound_are_refused() -> None:
    mechanism = MatrixMechanism(LARGE, BUDGET, neighbouring="add-remove", most_records=5)
    mechanism.release_records([[0] * 14] * 5)
    with pytest.raises(InvalidParameterError, match="more than 5"):
        mechanism.release_records(iter([[[0] * 14] * 3] * 2))
    counted = MatrixMechanism(Prefix(4), BUDGET, neighbouring="add-remove", most_records=5)
    counted.release([1, 2, 0, 2])
    for release in (counted.release, lambda data: counted.simulate(data, np.random.default_rng(0))):
        with pytest.raises(InvalidParameterError, match="at most 5 records"):
            release([1, 2, 0, 3])


def grown(times: int) -> Callable[..., Part]:
    """Return what counts every record many times, as if the data were that much larger."""

    def collected(partial: Callable[[Any], Part], data: Any, *_more: Any) -> Part:
        part = partial(data)
        sums = (Integers(each.low * times, None, each.largest * times) for each in part.sums)
        return Part(part.records * times, tuple(sums))

    return collected


def test_more_than_a_billion_records_by_a_stated_bound(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    records = [[n % 2] * 14 for n in range(7)]
    monkeypatch.setattr("matrixdp.mechanisms.measuring.collected", grown(2**31))
    usual = MatrixMechanism(LARGE, BUDGET, neighbouring="replace")
    with pytest.raises(InvalidParameterError, match="most_records="):
        usual.release_records(records)
    mechanism = MatrixMechanism(LARGE, BUDGET, neighbouring="replace", most_records=2**34)
    assert usual.sensitivity.bound < mechanism.sensitivity.bound < usual.sensitivity.bound * 1.001
    release = mechanism.release_records_to(tmp_path / "out.npz", records)
    loaded = WorkloadRelease.load(tmp_path / "out.npz")
    assert loaded.guarantee == mechanism.guarantee
    assert abs(float(release.table(())) - 7 * 2**31) < 1000


@pytest.mark.parametrize("neighbouring", ["add-remove", "replace"])
def test_neighbours_of_many_records_are_as_close_as_stated(neighbouring: Any) -> None:
    # In exact rationals, on counts near the bound that are rounded as floats.
    most, rng = 2**36, np.random.default_rng(5)
    workload = marginals([3, 4], [(0, 1)])
    strategy = ResidualStrategy([3, 4], [(), (0,), (1,), (0, 1)], [0.7, 0.3, 0.9, 1.1])
    (table,) = strategy.tables
    mechanism = MatrixMechanism(
        workload, BUDGET, neighbouring=neighbouring, strategy=strategy, most_records=most
    )
    for _ in range(30):
        counts = rng.multinomial(most - 1, rng.dirichlet(np.ones(12) / 3)).reshape(3, 4)
        other = counts.copy()
        other[tuple(rng.integers(0, (3, 4)))] += 1
        if neighbouring == "replace":
            other[np.unravel_index(np.argmax(counts), counts.shape)] -= 1
        one, two = (strategy.measure_tables({table: each}) for each in (counts, other))
        pairs = zip(one.ravel().tolist(), two.ravel().tolist(), strict=True)
        squared = sum((Fraction(a) - Fraction(b)) ** 2 for a, b in pairs)
        assert squared <= Fraction(mechanism.sensitivity.bound) ** 2


def test_bounds_that_would_overflow_are_refused() -> None:
    with pytest.raises(InvalidParameterError, match="this strategy measures"):
        MatrixMechanism(LARGE, BUDGET, neighbouring="replace", most_records=2**61)
    with pytest.raises(InvalidParameterError, match=f"more than the {2**30}"):
        MatrixMechanism(Prefix(8), BUDGET, neighbouring="replace", most_records=2**31)
    strategy = ResidualStrategy([3, 2], [(0, 1)], [1.0])
    most = strategy.most_records
    tables: dict[tuple[int, ...], Any] = {(0, 1): np.array([[0, 0], [0, 0], [0, most]])}
    exact = (Fraction(2) * most) / (Fraction(6**0.5) * Fraction(2**0.5))
    assert float(np.abs(strategy.measure_tables(tables)).max()) == pytest.approx(float(exact))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MatrixMechanism(LARGE, BUDGET, neighbouring="replace").release([1]), "records"),
        (
            lambda: MatrixMechanism(
                marginals([20, 20, 8192, 21], [(0,), (1,)]),
                BUDGET,
                neighbouring="add-remove",
                strategy=ProductStrategy([np.eye(20), np.eye(20), *SUMS]),
            ),
            "histogram in memory",
        ),
    ],
)
def test_histograms_beyond_memory_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        make()


def test_named_attributes_are_released_from_any_data() -> None:
    codes = [Categories(f"code {n}", range(50)) for n in range(9)]
    table = ContingencyTable([Bins("age", [0, 40, 120]), *codes], "add-remove")
    rows = [(20 + n, *[(n * k) % 50 for k in range(9)]) for n in range(60)]
    workload = table.marginals([("code 3", "age"), ("code 7",)])
    budget = Budget(epsilon=1e6, delta=1e-9)  # next to no noise
    mechanism = MatrixMechanism(workload, budget, neighbouring=table.neighbouring)
    release = mechanism.release_records(table.cells(rows), key=key())
    expected = np.zeros((50, 2))
    for row in rows:
        expected[row[4], int(row[0] >= 40)] += 1
    found = release.table(table.numbers(("code 3", "age")))
    np.testing.assert_allclose(found, expected, atol=0.1)
