"""The head: one record moves its sums by at most the bound, exactly, and moves no other record."""

import math
from fractions import Fraction
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from matrixdp import IMGM, Budget, FrobeniusBall
from matrixdp_experiments.procedural.account import Account, Descent
from matrixdp_experiments.procedural.blocks import Block
from matrixdp_experiments.procedural.centring import (
    ROW_BOUND,
    ROW_LENGTH,
    Centring,
    leading_columns,
    released_mean,
)
from matrixdp_experiments.procedural.head import (
    CLASSES,
    SUM_BOUND,
    Classifier,
    clipped_residuals,
    descend,
    gradient_sum,
)
from matrixdp_experiments.procedural.neighbours import NeighbourWatch, crafted_rows
from matrixdp_experiments.procedural.releasing import ExactNoise, SimulatedNoise
from matrixdp_experiments.procedural.whitening import BLOCK_BOUND, BlockWhitening, measured_integers

BLOCKS = [Block("mean-1", 0, 0, 20), Block("mean-2", 0, 1, 300), Block("enlarged-2", 0, 0, 12)]
RECORDS = 60


def unit_rows(raw: torch.Tensor) -> torch.Tensor:
    """Return rows scaled to norm 1, as integers."""
    columns = raw.shape[1]
    same = BlockWhitening(torch.zeros(columns).double(), 2.0**14 * torch.eye(columns).double())
    return same(measured_integers(raw))


def private_rows(seed: int, count: int = RECORDS) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    parts = []
    for block in BLOCKS:
        raw = torch.randn(count, block.columns, generator=generator)
        parts.append(unit_rows(raw))
    return torch.cat(parts, dim=1)


@cache
def centred(seed: int, count: int = RECORDS) -> torch.Tensor:
    rows = private_rows(seed, count)
    mean = released_mean(rows, BLOCKS, count, Budget(50.0, 1e-5), SimulatedNoise(seed))
    return Centring(BLOCKS, mean)(rows)


def labels_of(count: int = RECORDS) -> torch.Tensor:
    return torch.arange(count) % CLASSES


def exact_sum(rows: torch.Tensor, residuals: torch.Tensor) -> list[list[int]]:
    """Return the same sum in Python's integers."""
    whole = rows.to(torch.int64).numpy().astype(object)
    return [list(column) for column in residuals.to(torch.int64).numpy().astype(object).T @ whole]


def test_rows_of_a_whitening_are_bounded_exactly() -> None:
    rows = private_rows(0).to(torch.int64)
    for part in rows.split([block.columns for block in BLOCKS], dim=1):
        assert max(sum(int(v) ** 2 for v in row) for row in part) <= BLOCK_BOUND**2


def test_centred_rows_are_bounded_exactly_and_of_norm_one() -> None:
    for row in centred(1):
        square = sum(int(value) ** 2 for value in row)
        assert square <= ROW_BOUND**2
        assert Fraction(square, ROW_BOUND**2) > Fraction(99, 100)


def test_crafted_rows_are_bounded_too() -> None:
    mean = released_mean(private_rows(0), BLOCKS, RECORDS, Budget(1.0, 1e-5), SimulatedNoise(0))
    against = [
        part[0] for part in mean.split([end - start for start, end in leading_columns(BLOCKS)])
    ]
    assert against  # the mean has a part for each block
    for row in Centring(BLOCKS, mean)(crafted_rows(BLOCKS)):
        assert sum(int(value) ** 2 for value in row) <= ROW_BOUND**2


def test_the_mean_moves_by_at_most_its_bound() -> None:
    rows = private_rows(2)
    columns = leading_columns(BLOCKS)
    for row in torch.cat([rows, crafted_rows(BLOCKS)]):
        moved = sum(int(v) ** 2 for start, end in columns for v in row[start:end])
        assert moved <= len(BLOCKS) * BLOCK_BOUND**2


@given(
    scores=st.lists(st.floats(min_value=-1e6, max_value=1e6), min_size=CLASSES, max_size=CLASSES),
    label=st.integers(0, CLASSES - 1),
    clip=st.floats(min_value=1e-3, max_value=2.0),
)
@settings(deadline=None, max_examples=200)
def test_a_contribution_is_bounded_in_rationals(
    scores: list[float], label: int, clip: float
) -> None:
    residual = clipped_residuals(
        torch.tensor([scores], dtype=torch.float64), torch.tensor([label]), clip
    )[0]
    row = centred(3, 12)[0]
    squares = [sum(int(v) ** 2 for v in part.tolist()) for part in (residual, row)]
    # |r x^T| = |r| |x|
    assert Fraction(squares[0] * squares[1], SUM_BOUND**2) <= 1


def test_residuals_are_clipped_and_not_dropped() -> None:
    scores = torch.tensor([[30.0] + [0.0] * 9, [8.0] + [0.0] * 9], dtype=torch.float64)
    wrong, right = clipped_residuals(scores, torch.tensor([1, 0]), 0.2)
    # Surely wrong: of length sqrt(2), clipped to the whole bound, with its direction.
    assert (wrong[:2] / 2**14).tolist() == pytest.approx([0.5**0.5, -(0.5**0.5)], abs=1e-3)
    # Nearly right: short, and kept over the clip.
    missing = 9 / (9 + math.exp(8.0))
    assert float(right[0]) / 2**14 == pytest.approx(-missing / 0.2, abs=1e-3)


def test_noise_is_made_for_the_bounds() -> None:
    """Look at what is handed to the noise: nothing else ties it to what is summed."""
    bounds = []

    def look(total: torch.Tensor, mechanism: IMGM) -> torch.Tensor:
        ball = mechanism.sensitivity
        assert isinstance(ball, FrobeniusBall)
        assert ball.neighbouring == "add-remove"
        bounds.append(Fraction(ball.bound))
        assert mechanism.mu <= mechanism.budget.mu
        return total

    rows = private_rows(9)
    descent = Descent(steps=3, records=RECORDS)
    account = Account.of(Budget(1.0, 1e-5), descent)
    mean = released_mean(rows, BLOCKS, RECORDS, account.mean, look)
    descend(Centring(BLOCKS, mean)(rows), labels_of(), descent, account.steps, look)
    assert bounds[0] ** 2 >= len(BLOCKS) * BLOCK_BOUND**2
    assert bounds[1:] == [Fraction(SUM_BOUND)] * 3


def test_sums_are_those_of_integers() -> None:
    rows = centred(4)
    weights = Classifier.of(torch.randn(rows.shape[1], CLASSES, dtype=torch.float64))
    residuals = clipped_residuals(weights.scores(rows), labels_of(), 0.2)
    found = gradient_sum(rows, residuals)
    assert found.to(torch.int64).tolist() == exact_sum(rows, residuals)


def test_scores_are_those_of_rationals() -> None:
    rows = centred(5, 12)
    weights = Classifier.of(3 * torch.randn(rows.shape[1], CLASSES, dtype=torch.float64))
    whole = rows.to(torch.int64).numpy().astype(object)
    exact = whole @ weights.whole.to(torch.int64).numpy().astype(object)
    assert (rows @ weights.whole).to(torch.int64).tolist() == exact.tolist()


def test_a_record_changes_no_other_one() -> None:
    rows = centred(6)
    weights = Classifier.of(torch.randn(rows.shape[1], CLASSES, dtype=torch.float64))
    residuals = clipped_residuals(weights.scores(rows), labels_of(), 0.2)
    for number in range(0, RECORDS, 7):
        kept = torch.arange(RECORDS) != number
        again = clipped_residuals(weights.scores(rows[kept]), labels_of()[kept], 0.2)
        assert torch.equal(again, residuals[kept])


def test_neighbours_of_a_descent_move_by_at_most_one_and_nearly_one() -> None:
    rows = centred(7)
    descent = Descent(steps=6, records=RECORDS)
    account = Account.of(Budget(1.0, 1e-5), descent)
    mean = torch.zeros(sum(end - start for start, end in leading_columns(BLOCKS)))
    watch = NeighbourWatch(
        rows=rows,
        labels=labels_of(),
        clip=descent.clip / ROW_LENGTH,
        extra_rows=Centring(BLOCKS, mean.double())(crafted_rows(BLOCKS)),
        extra_labels=labels_of(5),
        removed=[0, 17, RECORDS - 1],
        steps=frozenset(range(6)),
    )
    descend(rows, labels_of(), descent, account.steps, ExactNoise(account.whole), watch=watch)
    assert watch.compared == 6 * 8
    assert 0.99 < watch.largest <= 1.0


def test_a_descent_learns_what_can_be_learnt() -> None:
    generator = torch.Generator().manual_seed(8)
    labels = torch.arange(400) % CLASSES
    centres = torch.randn(CLASSES, 332, generator=generator)
    raw = centres[labels] + 0.3 * torch.randn(400, 332, generator=generator)
    block = [Block("mean-2", 0, 3, 332)]
    rows = unit_rows(raw)
    descent = Descent(steps=20, records=400)
    account = Account.of(Budget(100.0, 1e-5), descent)
    noise = ExactNoise(account.whole)
    mean = released_mean(rows, block, 400, account.mean, noise)
    found = Centring(block, mean)(rows)
    classifier = descend(found, labels, descent, account.steps, noise)
    accuracy = (classifier.scores(found).argmax(dim=1) == labels).double().mean()
    assert float(accuracy) > 0.9
    assert noise.privacy_filter.spent <= account.whole.mu
