"""Records of ranks, by their numbers, and the coins that they draw for these."""

from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("torch", reason="private training needs the extra `train`")

from hypothesis import given
from hypothesis import strategies as st

from matrixdp.training.lots.sampling import SecureCoins, SeededCoins, drawn_records
from matrixdp.training.ranks.own_records import OwnCoins, own_records

RATE = Fraction(1, 4)


def ranks_of(size: int) -> list[Any]:
    return [SimpleNamespace(number=number, size=size) for number in range(size)]


@given(st.integers(1, 200), st.integers(1, 20))
def test_every_record_belongs_to_one_rank(records: int, size: int) -> None:
    ranges = [own_records(rank, records) for rank in ranks_of(size)]
    assert [number for own in ranges for number in own] == list(range(records))
    assert max(map(len, ranges)) - min(map(len, ranges)) <= 1


@given(st.integers(1, 100), st.integers(1, 7), st.integers(0, 5))
def test_seeded_lots_of_all_ranks_are_those_of_one_process(
    records: int, size: int, step: int
) -> None:
    coins = SeededCoins(7)
    parts = [
        drawn_records(OwnCoins(coins, own_records(rank, records)), records, RATE, step)
        for rank in ranks_of(size)
    ]
    assert np.concatenate(parts).tolist() == drawn_records(coins, records, RATE, step).tolist()


def test_secure_lots_have_own_records_at_the_right_rate_and_differ_by_rank() -> None:
    records, steps = 3000, 40
    first, last = (OwnCoins(SecureCoins(), own_records(rank, records)) for rank in ranks_of(2))
    lots = [
        (drawn_records(first, records, RATE, step), drawn_records(last, records, RATE, step))
        for step in range(steps)
    ]
    for one, other in lots:
        assert one.max() < 1500 <= other.min()
        assert not np.array_equal(one, other - 1500)
    for drawn in zip(*lots, strict=True):
        number = sum(map(len, drawn))
        assert stats.binomtest(number, 1500 * steps, 0.25).pvalue > 1e-9
    assert first.kind == "secure"
