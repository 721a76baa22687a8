"""Units of columns do not matter: proven in rationals, for columns that differ by thousands."""

import itertools
import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matrixdp import Budget, FrobeniusBall, Release, RowBox, SymmetricBall
from matrixdp.cli.main import main
from matrixdp.queries import (
    CrossMoment,
    Features,
    Gram,
    JointMoments,
    Mean,
    PublicBounds,
    Query,
    SampleCovariance,
    Sum,
)
from matrixdp.queries.units import in_units
from matrixdp.sensitivity import ScaledBall, ScaledSymmetricBall

Box = tuple[list[float], list[float]]
BUDGET = Budget(1.0, 1e-6)
COUNT = 4
# Age, years of education, capital gain and hours of the Adult data; then ranges far from 0, and
# ranges on both sides of it.
BOXES: dict[str, Box] = {
    "adult": ([17.0, 1.0, 0.0, 1.0], [90.0, 16.0, 99999.0, 99.0]),
    "far from 0": ([1000.0, -3.0], [1001.0, 1e-3]),
    "both sides": ([-2.0, -1e-6], [1.0, 3e-6]),
}
Maker = Callable[[Box], Query]


def whole(box: Box) -> PublicBounds:
    return PublicBounds(len(box[0]), lower=box[0], upper=box[1])


def halves(box: Box) -> tuple[PublicBounds, PublicBounds]:
    first = len(box[0]) - 1
    return whole((box[0][:first], box[1][:first])), whole((box[0][first:], box[1][first:]))


def makers(relation: Any) -> dict[str, Maker]:
    return {
        "sum": lambda box: Sum(whole(box), relation),
        "mean": lambda box: Mean(whole(box), relation, count=COUNT),
        "gram": lambda box: Gram(whole(box), relation),
        "covariance": lambda box: SampleCovariance(whole(box), relation, count=COUNT),
        "joint": lambda box: JointMoments(*halves(box), relation),
        "cross": lambda box: CrossMoment(*halves(box), relation),
    }


CASES = [
    pytest.param(relation, make, box, id=f"{name}, {relation}, {kind}")
    for relation in ("add-remove", "replace")
    for name, make in makers(relation).items()
    for kind, box in BOXES.items()
]
every_case = pytest.mark.parametrize(("relation", "make", "box"), CASES)


def units_of_entries(query: Query) -> tuple[list[list[Fraction]], Fraction]:
    """Return the unit of every entry of the answer, and the squared bound in these units."""
    match query.sensitivity:
        case ScaledSymmetricBall(bound=bound, units=units):
            sides = units.tolist(), units.tolist()
        case ScaledBall(bound=bound, rows=rows, columns=columns):
            sides = rows.tolist(), columns.tolist()
        case RowBox(bounds=bounds):
            # A box whose corner is one unit of each column away.
            return [[Fraction(side) for side in bounds.tolist()]], Fraction(len(bounds))
        case FrobeniusBall(bound=bound):
            return [[Fraction(1)]], Fraction(bound) ** 2
        case other:
            raise AssertionError(other)
    exact = [[Fraction(row) * Fraction(column) for column in sides[1]] for row in sides[0]]
    return exact, Fraction(bound) ** 2


def weighted_move(query: Query, first: np.ndarray, second: np.ndarray) -> Fraction:
    """Return the squared norm of a difference in the units of the set, over its squared bound."""
    units, square = units_of_entries(query)
    move = sum(
        (
            ((Fraction(float(a)) - Fraction(float(b))) / unit) ** 2
            for row in zip(first, second, units, strict=True)
            for a, b, unit in zip(*row, strict=True)
        ),
        start=Fraction(0),
    )
    return move / square


def corner_pairs(box: Box, relation: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return neighbours whose records are corners of the box, its middle or far outside."""
    lower, upper = map(np.array, box)
    corners = [np.array(corner) for corner in itertools.product(*zip(*box, strict=True))]
    middle = (lower + upper) / 2
    ends = [*corners, middle, np.full_like(lower, 1e9), np.full_like(lower, -1e9)]
    pairs = []
    for moved in ends:
        for others in (corners[0], corners[-1], middle, corners[len(corners) // 2]):
            rest = np.tile(others, (COUNT - 1, 1))
            if relation == "add-remove":
                many = np.tile(others, (150, 1))
                pairs.append((many, np.vstack([moved, many])))
            else:
                starts = (corners[0], corners[-1], middle)
                pairs += [(np.vstack([one, rest]), np.vstack([moved, rest])) for one in starts]
    return pairs


@every_case
def test_the_largest_weighted_move_is_within_the_claim(
    relation: str, make: Maker, box: Box
) -> None:
    query = make(box)
    moves = [
        weighted_move(query, query.evaluate(first), query.evaluate(second))
        for first, second in corner_pairs(box, relation)
    ]
    assert max(moves) <= 1
    # Nor is the claim far too large: a quarter is what the loosest proof leaves.
    assert max(moves) >= Fraction(1, 4)


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
def test_a_wrong_scale_is_caught(relation: str) -> None:
    # A unit, or a bound, that is half a per cent too small does not contain the same pairs.
    box = BOXES["adult"]
    query = Gram(whole(box), relation)  # type: ignore[arg-type]
    right = query.sensitivity
    assert isinstance(right, ScaledSymmetricBall)
    pairs = [
        (query.evaluate(first), query.evaluate(second))
        for first, second in corner_pairs(box, relation)
    ]
    wrong = [ScaledSymmetricBall(0.995 * right.bound, right.units, right.neighbouring)]
    for column in range(4):
        units = right.units.copy()
        units[column] *= 0.9
        wrong.append(ScaledSymmetricBall(right.bound, units, right.neighbouring))
    for members in wrong:
        twin = Gram(whole(box), relation)  # type: ignore[arg-type]
        twin.__dict__["sensitivity"] = members
        assert max(weighted_move(twin, *pair) for pair in pairs) > 1


def errors(query: Query, shape: tuple[int, int]) -> np.ndarray:
    return query.sensitivity.best_covariance(BUDGET).entry_scales(shape)


@every_case
def test_no_entry_is_noisier_than_of_columns_that_are_divided_first(
    relation: str, make: Maker, box: Box
) -> None:
    query = make(box)
    lower, upper = map(np.array, box)
    differences = isinstance(query, SampleCovariance) or (
        isinstance(query, Sum | Mean) and relation == "replace"
    )
    units = upper - lower if differences else np.maximum(np.abs(lower), np.abs(upper))
    divided = make(((lower / units).tolist(), (upper / units).tolist()))
    shape = query.evaluate(np.tile(lower, (COUNT, 1))).shape
    sides = {
        (1, len(units)): (np.ones(1), units),
        (len(units), len(units)): (units, units),
        (len(units) - 1, 1): (units[:-1], units[-1:]),
    }[shape]
    by_hand = errors(divided, shape) * np.multiply.outer(*sides)
    assert bool(np.all(errors(query, shape) <= by_hand * (1 + 1e-12)))


@pytest.mark.parametrize(
    ("make", "box"), [pytest.param(*case.values[1:], id=case.id) for case in CASES]
)
@pytest.mark.parametrize("factor", [60.0, 0.1, 2.0**-9])
def test_a_column_in_other_units_changes_the_unit_of_the_answer_alone(
    make: Maker, box: Box, factor: float
) -> None:
    lower, upper = map(np.array, box)
    change = np.ones(len(lower))
    change[-1] = factor
    query, other = make(box), make(((lower * change).tolist(), (upper * change).tolist()))
    records = np.random.default_rng(0).uniform(lower, upper, (COUNT, len(lower)))
    answer = query.evaluate(records)
    follows = other.evaluate(records * change) / answer
    # The answer follows up to the grid, the noise up to rounding.
    noise = errors(other, answer.shape) / errors(query, answer.shape)
    expected = {
        (1, len(lower)): change[None],
        (len(lower), len(lower)): np.multiply.outer(change, change),
        (len(lower) - 1, 1): np.full((len(lower) - 1, 1), factor),
    }[answer.shape]
    np.testing.assert_allclose(noise, expected, rtol=1e-9)
    np.testing.assert_allclose(follows, expected, rtol=1e-2)


@pytest.mark.parametrize("seed", range(20))
def test_ranges_in_units_contain_the_exact_quotients(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lower = 10.0 ** rng.uniform(-90, 90, 9) * rng.choice([-1.0, 0.0, 0.3], 9)
    upper = np.abs(lower) * rng.uniform(1.0, 3.0, 9) + (lower == 0.0)
    bounds = PublicBounds(9, lower=lower, upper=upper)
    for units in (bounds.largest_entries, bounds.widths):
        scaled = in_units(bounds, units)
        for column, unit in enumerate(map(Fraction, units.tolist())):
            low, high = (Fraction(ends[column].item()) / unit for ends in (lower, upper))
            assert Fraction(scaled.intervals[0][column].item()) <= low
            assert high <= Fraction(scaled.intervals[1][column].item())
    assert bool(np.all(in_units(bounds, bounds.largest_entries).largest_entries == 1.0))


def test_a_norm_says_that_columns_are_comparable() -> None:
    bounds = PublicBounds(2, lower=0, upper=[1.0, 1000.0], norm=1000.0)
    assert isinstance(Gram(bounds, "replace").sensitivity, SymmetricBall)
    assert isinstance(CrossMoment(bounds, bounds, "replace").sensitivity, FrobeniusBall)
    assert isinstance(SampleCovariance(bounds, "replace", 9).sensitivity, SymmetricBall)
    with_norm = JointMoments(PublicBounds(2, lower=0, upper=[1, 9]), bounds, "replace")
    assert isinstance(with_norm.sensitivity, SymmetricBall)
    # A part of a cross-moment that has ranges alone is in units of its own.
    mixed = CrossMoment(PublicBounds(2, lower=0, upper=[1, 9]), bounds, "add-remove").sensitivity
    assert isinstance(mixed, ScaledBall)
    assert mixed.rows.tolist() == [1.0, 9.0]
    assert mixed.columns.tolist() == [1.0, 1.0]
    assert mixed.bound == pytest.approx(2**0.5 * 1000, rel=1e-5)


def test_equal_ranges_have_one_noise_scale() -> None:
    bounds = PublicBounds(3, lower=0, upper=7.0)
    assert isinstance(Gram(bounds, "replace").sensitivity, SymmetricBall)
    assert isinstance(SampleCovariance(bounds, "replace", 9).sensitivity, SymmetricBall)


def test_rows_of_features_have_noise_in_proportion_to_their_ranges() -> None:
    query = Features(PublicBounds(2, lower=0, upper=[1.0, 1000.0]), "replace", count=3)
    scales = errors(query, (3, 2))
    np.testing.assert_allclose(scales[:, 1], 1000 * scales[:, 0], rtol=1e-12)


def test_a_release_has_the_standard_error_of_each_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rng, count = np.random.default_rng(0), 30_000
    lower, upper = BOXES["adult"]
    rows = np.column_stack([
        rng.normal(38, 13.6, count).clip(17, 90),
        rng.integers(1, 17, count),
        np.where(rng.uniform(size=count) < 0.08, rng.uniform(0, 99999, count), 0),
        rng.normal(40, 12, count).clip(1, 99),
    ])  # fmt: skip
    names = "age,education,gain,hours"
    np.savetxt("in.csv", rows, delimiter=",", header=names, comments="")
    arguments = ["query", "covariance", "in.csv", "out.csv", "--columns", names]
    arguments += ["--lower", ",".join(map(str, lower)), "--upper", ",".join(map(str, upper))]
    arguments += ["--count", str(count), "--epsilon", "1", "--delta", "1e-6"]
    assert main([*arguments, "--neighbouring", "replace", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    release = Release.load("out.csv")
    scales = release.standard_errors()
    assert said["standard_errors"] == scales.tolist()
    # 4 73² / (30000 mu): three years squared, not the millions of the capital gains.
    assert 2.9 < scales[0, 0] < 3.1
    truth = np.cov(rows.T, bias=True)
    assert bool(np.all(np.abs(release.value - truth) <= 7 * scales + 1e-3 * np.abs(truth)))
