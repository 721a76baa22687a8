"""Moments by group: right, within what is claimed, and as cheap as one group."""

import itertools
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matrixdp import IMGM, Budget, Release
from matrixdp.cli.main import main
from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.queries import Bins, Categories, GroupMoments, PublicBounds
from matrixdp.sensitivity import ScaledBall

SEX, SITE = Categories("sex", ["F", "M"]), Bins("site", [0, 1, 2, 3])
BOUNDS: dict[str, PublicBounds] = {
    "positive box": PublicBounds(["age", "gain"], lower=[17, 0], upper=[90, 99999]),
    "box": PublicBounds(["age", "gain"], lower=[-1, -2e-3], upper=[0.5, 3e-3]),
    "far from 0": PublicBounds(["age", "gain"], lower=[100, 5], upper=[101, 6]),
    "norm": PublicBounds(["age", "gain"], norm=1.3),
    "both": PublicBounds(["age", "gain"], norm=1.1, lower=0, upper=[1.0, 0.7]),
}
RELATIONS: tuple[Neighbouring, ...] = ("add-remove", "replace")
every_query = pytest.mark.parametrize(
    "query",
    [
        pytest.param(GroupMoments(bounds, relation, by=[SEX, SITE], order=order), id=name)
        for kind, bounds in BOUNDS.items()
        for relation in RELATIONS
        for order in (1, 2)
        for name in [f"{kind}, {relation}, order {order}"]
    ],
)
Row = tuple[Any, ...]


def squared_share(members: ScaledBall, first: np.ndarray, second: np.ndarray) -> Fraction:
    """Return the squared norm of a change in the units of a set, over its squared bound."""
    units = [Fraction(unit) for unit in members.columns.tolist()]
    assert bool(np.all(members.rows == 1.0))
    square = sum(
        (
            ((Fraction(a) - Fraction(b)) / unit) ** 2
            for rows in zip(first.tolist(), second.tolist(), strict=True)
            for a, b, unit in zip(*rows, units, strict=True)
        ),
        start=Fraction(0),
    )
    return square / Fraction(members.bound) ** 2


def points(query: GroupMoments) -> list[tuple[float, ...]]:
    """Return corners of the bounds, the point nearest to 0 and points far outside."""
    lower, upper = query.bounds.intervals
    corners = list(itertools.product(*zip(lower.tolist(), upper.tolist(), strict=True)))
    nearest = np.clip(0.0, lower, upper)
    axes = [*np.eye(2), *-np.eye(2)]
    return [*corners, tuple(nearest), *map(tuple, axes), (1e9, -1e9), (0.3, -0.9)]


def neighbours(query: GroupMoments) -> list[tuple[list[Row], list[Row]]]:
    """Return neighbouring rows, also of records that move to another group."""
    rest: list[Row] = [("F", 0.5, 0.1, 0.2), ("M", 2.5, -0.3, 7.0), ("F", 0.5, 50.0, 3.0)]
    pairs = []
    for first, second in itertools.product(points(query), repeat=2):
        if query.neighbouring == "add-remove":
            pairs.append((rest, [*rest, ("F", 0.5, *first)]))
            continue
        pairs += [
            ([*rest, ("F", 0.5, *first)], [*rest, (*group, *second)])
            for group in (("F", 0.5), ("M", 0.5))
        ]
    return pairs


@every_query
def test_neighbours_stay_within_the_claim_and_come_close(query: GroupMoments) -> None:
    shares = [
        squared_share(query.sensitivity, query.evaluate(first), query.evaluate(second))
        for first, second in neighbours(query)
    ]
    assert max(shares) <= 1
    # Adding attains it, and so does moving, unless the change within a group is the larger one,
    # of which the proof adds up the largest sums and the largest products.
    attained = 0.99 if query.neighbouring == "add-remove" else 0.5
    assert max(shares) >= attained


@pytest.mark.parametrize("order", [1, 2])
def test_a_record_that_moves_needs_the_square_root_of_two(order: int) -> None:
    # The claim of adding a record, or one of a change within a group, is caught.
    bounds = BOUNDS["positive box"]
    adding = GroupMoments(bounds, "add-remove", by=[SEX, SITE], order=order)
    query = GroupMoments(bounds, "replace", by=[SEX, SITE], order=order)
    assert query.sensitivity.bound == pytest.approx(2**0.5 * adding.sensitivity.bound, rel=1e-12)
    shares = [
        squared_share(adding.sensitivity, query.evaluate(first), query.evaluate(second))
        for first, second in neighbours(query)
    ]
    assert max(shares) > Fraction(199, 100)
    same_group = [pair for pair in neighbours(query) if pair[1][-1][0] == "F"]
    shares = [
        squared_share(adding.sensitivity, query.evaluate(first), query.evaluate(second))
        for first, second in same_group
    ]
    assert max(shares) < 1


@pytest.mark.parametrize("relation", RELATIONS)
def test_many_groups_cost_what_one_costs(relation: Neighbouring) -> None:
    noise = [
        IMGM(
            GroupMoments(BOUNDS["box"], relation, by=[Categories("g", range(groups))], order=2),
            Budget(1.0, 1e-6),
        ).covariance.entry_scales((groups, 6))[0]
        for groups in (1, 2, 500)
    ]
    np.testing.assert_array_equal(noise[0], noise[1])
    np.testing.assert_array_equal(noise[0], noise[2])


def test_means_have_the_noise_of_those_over_a_private_count() -> None:
    # As `Mean` shares a budget: sqrt(columns) parts for the sum and 1 for the count.
    bounds = PublicBounds(["a", "b", "c", "d"], lower=0, upper=[1.0, 10.0, 100.0, 1000.0])
    budget = Budget(1.0, 1e-6)
    query = GroupMoments(bounds, "add-remove", by=[SEX])
    scales = IMGM(query, budget).covariance.entry_scales((2, 5))[0]
    shares = budget.split([2.0, 1.0])
    np.testing.assert_allclose(scales[0], 1 / shares[1].mu, rtol=1e-9)
    np.testing.assert_allclose(scales[1:], 2 * bounds.largest_entries / shares[0].mu, rtol=1e-9)


@every_query
def test_moments_are_those_of_numpy(query: GroupMoments) -> None:
    rng = np.random.default_rng(2)
    low, high = query.bounds.intervals
    inside = rng.uniform(np.maximum(low, -0.7), np.maximum(np.minimum(high, 0.7), low), (5000, 2))
    sex, site = rng.integers(0, 2, 5000), rng.uniform(0, 3, 5000)
    rows = [("FM"[s], t, *x) for s, t, x in zip(sex, site, inside.tolist(), strict=True)]
    answer = query.evaluate(rows)
    products = [inside[:, 0] ** 2, inside[:, 0] * inside[:, 1], inside[:, 1] ** 2]
    parts = np.column_stack([np.ones(5000), inside, *(products if query.order == 2 else [])])
    for s, t in itertools.product(range(2), range(3)):
        chosen = (sex == s) & (site.astype(int) == t)
        expected = parts[chosen].sum(axis=0)
        limits = query.sensitivity.columns * 2e-3
        assert bool(np.all(np.abs(answer[3 * s + t] - expected) <= limits))
    assert answer[:, 0].sum() == 5000


def test_blocks_frames_and_orders_of_columns_do_not_matter() -> None:
    pd = pytest.importorskip("pandas")
    query = GroupMoments(BOUNDS["positive box"], "replace", by=[SEX, SITE], order=2)
    rng = np.random.default_rng(4)
    rows = [
        ("FM"[rng.integers(2)], rng.uniform(0, 3), rng.uniform(17, 90), rng.uniform(0, 99999))
        for _ in range(5000)
    ]
    frame = pd.DataFrame(rows, columns=["sex", "site", "age", "gain"])
    expected = query.evaluate(rows)
    for data in (
        frame,
        frame[["gain", "sex", "age", "site"]],
        iter([rows[:7], rows[7:4000], rows[4000:]]),
        pytest.importorskip("pyarrow").Table.from_pandas(frame),
    ):
        np.testing.assert_array_equal(query.evaluate(data), expected)
    with pytest.raises(InvalidParameterError, match="no column 'site'"):
        query.evaluate(frame.drop(columns="site"))


def test_small_groups_are_flagged_by_their_noise() -> None:
    bounds = PublicBounds(["x"], lower=0, upper=1)
    query = GroupMoments(bounds, "add-remove", by=[Categories("g", ["a", "b", "c"])], order=2)
    rows = [("a", 0.25)] * 3000 + [("a", 0.75)] * 3000 + [("b", 1.0)] * 2
    release = query.release(rows, Budget(1.0, 1e-6))
    summary = query.summary(release)
    assert not summary.uncertain[0]
    assert summary.means[0, 0] == pytest.approx(0.5, abs=0.02)
    assert summary.covariances is not None
    assert summary.covariances[0, 0, 0] == pytest.approx(0.0625, abs=0.02)
    np.testing.assert_array_equal(
        summary.uncertain, release.value[:, 0] < 3 * release.standard_errors()[:, 0]
    )
    # A group of nobody is as uncertain as one of two: the noise of both is the same.
    assert summary.count_errors[1] == summary.count_errors[2]
    empty = [query.summary(query.release(rows, Budget(1.0, 1e-6))).uncertain[1:] for _ in range(60)]
    assert np.mean(empty) > 0.97
    assert list(summary.table().columns or [])[-1] == "uncertain"


def test_standard_errors_of_means_are_those_of_many_releases() -> None:
    query = GroupMoments(PublicBounds(["x"], lower=0, upper=10), "replace", by=[SEX])
    rows = [("F", 8.0)] * 900 + [("M", 2.0)] * 900
    found = [query.summary(query.release(rows, Budget(1.0, 1e-6))) for _ in range(400)]
    spread = np.array([summary.means[:, 0] for summary in found]).std(axis=0)
    stated = np.mean([summary.mean_errors[:, 0] for summary in found], axis=0)
    np.testing.assert_allclose(spread, stated, rtol=0.25)


def test_a_release_of_other_names_has_no_summary_here() -> None:
    bounds = PublicBounds(["x"], lower=0, upper=10)
    query = GroupMoments(bounds, "replace", by=[SEX])
    release = query.release([("F", 1.0), ("M", 2.0)], Budget(1.0, 1e-6))
    others = (
        GroupMoments(bounds, "replace", by=[Categories("sex", ["M", "F"])]),
        GroupMoments(PublicBounds(["y"], lower=0, upper=10), "replace", by=[SEX]),
    )
    for other in others:
        with pytest.raises(InvalidParameterError, match="other names"):
            other.summary(release)
    assert query.summary(release).groups == ("sex=F", "sex=M")


def test_labels() -> None:
    query = GroupMoments(BOUNDS["norm"], "replace", by=[SEX, SITE], order=2)
    assert query.index[:2] == ["sex=F, site=[0; 1)", "sex=F, site=[1; 2)"]
    assert query.columns == [
        *("count", "sum of age", "sum of gain"),
        *("sum of age * age", "sum of age * gain", "sum of gain * gain"),
    ]
    assert str(query) == (
        "counts, sums and second moments of age, gain by sex (F, M), site ([0; 1), [1; 2), "
        "[2; 3]), norm at most 1.3"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": []}, "by=\\(\\) is empty"),
        ({"by": ["sex"]}, r"by\[0\] is a str"),
        ({"by": [SEX], "order": 3}, "order=3"),
        ({"by": [SEX], "order": True}, "order=True"),
        ({"by": [SEX], "bounds": PublicBounds(1, norm=1.0)}, "must name their columns"),
        ({"by": [Bins("age", [0, 1])]}, "none as an attribute"),
        ({"by": [Categories(c, range(500)) for c in "abc"]}, "too many"),
    ],
)
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    bounds = options.pop("bounds", BOUNDS["norm"])
    with pytest.raises(InvalidParameterError, match=message):
        GroupMoments(bounds, "replace", **options)


@pytest.mark.parametrize(
    "rows",
    [
        [("X", 0.5, 8675309.0, 1.0)],
        [("F", 0.5, "8675309", 1.0)],
        [("F", 9.5, 8675309.0, 1.0)],
        [("F", 0.5, float("nan"), 1.0)],
        [("F", 0.5, 8675309.0)],
        [],
    ],
)
def test_bad_rows_are_refused_without_being_shown(rows: Any) -> None:
    query = GroupMoments(BOUNDS["norm"], "replace", by=[SEX, SITE])
    with pytest.raises((InvalidParameterError, ShapeError)) as caught:
        query.evaluate(rows)
    assert "8675309" not in str(caught.value)
    with pytest.raises(ShapeError, match="not one of this query"):
        query.summary(np.zeros((2, 2)))


CLEAR = ["--mu", "1000", "--delta", "1e-6", "--neighbouring", "add-remove"]


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.csv").write_text("age,sex,site,gain\n30,F,0.5,10\n50,M,1,20\n40,F,0.5,30\n")
    arguments = ["query", "groups", "in.csv", "out.csv", "--columns", "age,gain", *CLEAR]
    arguments += ["--lower", "0", "--upper", "100,1000", "--by", "sex,site"]
    arguments += ["--categories", "sex=F,M", "--bins", "site=0,1,2"]
    assert main([*arguments, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["files"] == ["out.csv", "out.means.csv", "out.csv.json"]
    release = Release.load("out.csv")
    expected = [[2, 70, 40], [0, 0, 0], [0, 0, 0], [1, 50, 20]]
    assert bool(np.all(np.abs(release.value - expected) <= 8 * release.standard_errors()))
    first = Path("out.means.csv").read_text().splitlines()
    assert first[0].startswith(",count,count error,mean of age,error of age,mean of gain")
    assert first[1].startswith('"sex=F, site=[0; 1)",')
    assert [line.rpartition(",")[2] for line in first[1:]] == ["0.0", "1.0", "1.0", "0.0"]
    assert main(arguments) == 2
    assert main([*arguments, "--force", "--order", "2"]) == 0
    assert Release.load("out.csv").shape == (4, 6)
    for wrong in (["--by", "sex"], ["--by", "sex,age"]):
        capsys.readouterr()
        assert main([*arguments, *wrong]) == 2
