"""Lots really are Poisson samples: a test that accepts them and rejects shuffled batches."""

import os
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    TensorDataset,
)

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.noise.application.tensors import cuda_kernel
from matrixdp.noise.kernels.cuda import kernel as kernel_module
from matrixdp.noise.kernels.cuda.kernel import TensorKernel
from matrixdp.training.lots.records import checked_records, record_source
from matrixdp.training.lots.sampling import (
    Coins,
    DeviceCoins,
    SecureCoins,
    SeededCoins,
    WordCoins,
    drawn_records,
    secure_coins,
)
from reference.gpu_kernels import has_gpu, host_kernel

RECORDS, LOTS, RATE = 60, 3000, Fraction(1, 5)
# Of a false alarm, for the tests whose randomness is fresh in every run.
RARE = 1e-9


def poisson(coins: Coins) -> NDArray[np.bool_]:
    taken = np.zeros((LOTS, RECORDS), dtype=bool)
    for step in range(LOTS):
        taken[step, drawn_records(coins, RECORDS, RATE, step)] = True
    return taken


def shuffled() -> NDArray[np.bool_]:
    """Return the batches of shuffled passes, as a loader makes them: each of 12 records."""
    generator = np.random.default_rng(0)
    taken = np.zeros((LOTS, RECORDS), dtype=bool)
    for start in range(0, LOTS, 5):
        order = generator.permutation(RECORDS)
        for lot in range(5):
            taken[start + lot, order[12 * lot : 12 * lot + 12]] = True
    return taken


def fixed_size() -> NDArray[np.bool_]:
    """Return samples of a fixed size, drawn afresh each time."""
    generator = np.random.default_rng(1)
    return np.array(
        [np.isin(np.arange(RECORDS), generator.permutation(RECORDS)[:12]) for _ in range(LOTS)]
    )


def too_often() -> NDArray[np.bool_]:
    """Return lots at a rate that is three per cent too large."""
    taken = np.zeros((LOTS, RECORDS), dtype=bool)
    for step in range(LOTS):
        taken[step, drawn_records(SeededCoins(2), RECORDS, RATE * Fraction(103, 100), step)] = True
    return taken


def twice() -> NDArray[np.bool_]:
    """Return lots of which every second one is drawn by the words of the one before."""
    coins = SeededCoins(4)
    taken = np.zeros((LOTS, RECORDS), dtype=bool)
    for step in range(LOTS):
        taken[step, drawn_records(coins, RECORDS, RATE, step // 2)] = True
    return taken


def p_values(taken: NDArray[np.bool_]) -> dict[str, float]:
    """Test that all entries are independent coins: by lot, by record, and from lot to lot."""
    rate, cells = float(RATE), taken.size
    sizes = taken.sum(axis=1)
    expected = RECORDS * rate * (1 - rate)
    # The variance of sizes: that of a binomial distribution, not 0.
    spread = float(np.sum((sizes - RECORDS * rate) ** 2)) / expected
    again = int(np.sum(taken[1:] & taken[:-1]))
    return {
        "rate": stats.binomtest(int(taken.sum()), cells, rate).pvalue,
        "sizes": 2 * min(stats.chi2.cdf(spread, LOTS), stats.chi2.sf(spread, LOTS)),
        "records": stats.chisquare(taken.sum(axis=0)).pvalue,
        "repetition": stats.binomtest(again, (LOTS - 1) * RECORDS, rate * rate).pvalue,
    }


def device_kernel() -> TensorKernel:
    """Return the kernel of a GPU, or as the processor runs it."""
    return cuda_kernel(0) if has_gpu() else host_kernel()


COINS = {
    "secure": SecureCoins,
    "seeded": partial(SeededCoins, 3),
    "device": lambda: DeviceCoins(device_kernel()),
}


@pytest.mark.parametrize("make", COINS.values(), ids=COINS)
def test_lots_are_poisson(make: Callable[[], Coins]) -> None:
    assert min(p_values(poisson(make())).values()) > RARE


@pytest.mark.parametrize(
    ("make", "fails"),
    [
        (shuffled, {"sizes", "repetition"}),
        (fixed_size, {"sizes"}),
        (too_often, {"rate"}),
        (twice, {"repetition"}),
    ],
)
def test_other_lots_are_found_out(make: Callable[[], NDArray[np.bool_]], fails: set[str]) -> None:
    values = p_values(make())
    assert {name for name, value in values.items() if value < RARE} >= fails


class GivenWords(WordCoins):
    kind = "seeded"

    def __init__(self, *words: int) -> None:
        self._words = np.array(words, dtype=np.uint64)

    def words(self, number: int, step: int) -> NDArray[np.uint64]:
        del step
        return self._words[:number]


def test_the_coin_is_exact_and_never_above_the_rate() -> None:
    third = 2**64 // 3  # a third is no multiple of 2**-64: rounded down
    coins = GivenWords(0, third - 1, third, 2**64 - 1)
    assert drawn_records(coins, 4, Fraction(1, 3), 0).tolist() == [0, 1]
    assert drawn_records(coins, 4, Fraction(1), 0).tolist() == [0, 1, 2, 3]
    smallest = Fraction(1, 2**64)
    assert drawn_records(coins, 4, smallest, 0).tolist() == [0]


@given(st.fractions(Fraction(1, 2**64), 1))
def test_the_last_word_that_takes_a_record(rate: Fraction) -> None:
    taking = rate.numerator * 2**64 // rate.denominator  # so many words out of 2**64
    assert rate - Fraction(1, 2**64) < Fraction(taking, 2**64) <= rate
    words = [taking - 1, *([taking] if taking < 2**64 else [])]
    assert drawn_records(GivenWords(*words), len(words), rate, 0).tolist() == [0]


def test_secure_words_are_blocks_of_aes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block is the encryption of its number, by the mode of AES that does just that."""
    key = bytes(range(32))
    asked: list[int] = []

    def entropy(size: int) -> bytes:
        asked.append(size)
        return key

    monkeypatch.setattr(os, "urandom", entropy)
    blocks = b"".join(number.to_bytes(16, "big") for number in range(501))
    encrypted = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(blocks)  # noqa: S305
    words = SecureCoins().words(1001, 0)
    assert words.tobytes() == encrypted[: 8 * 1001]
    assert asked == [32]


@pytest.mark.parametrize("number", [1, 2, 999, 5000])
@pytest.mark.parametrize("rate", [Fraction(1, 3), Fraction(1), Fraction(1, 2**64)])
def test_coins_of_a_device_are_those_of_the_processor(
    monkeypatch: pytest.MonkeyPatch, number: int, rate: Fraction
) -> None:
    device = DeviceCoins(device_kernel())
    monkeypatch.setattr(os, "urandom", lambda size: bytes(range(7, 7 + size)))
    found = drawn_records(device, number, rate, 0)
    assert found.dtype == np.int64
    assert np.array_equal(found, drawn_records(SecureCoins(), number, rate, 0))


def test_ranges_of_a_device_have_keys_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = device_kernel()
    monkeypatch.setattr(kernel_module, "RANGE_ELEMENTS", 100)
    keys = [bytes([byte]) * 32 for byte in (1, 2, 3)]
    given = iter(2 * keys)
    monkeypatch.setattr(os, "urandom", lambda _size: next(given))
    whole = kernel.coins(250, 2**63).cpu().numpy()
    parts = [SecureCoins().taken(count, 2**63, 0) + start for start, count in RANGES]
    assert np.flatnonzero(whole).tolist() == np.concatenate(parts).tolist()


RANGES = (0, 100), (100, 100), (200, 50)


@pytest.mark.parametrize("records", [1 << 16, (1 << 16) - 1])
def test_few_records_are_drawn_on_the_processor(records: int) -> None:
    kind = DeviceCoins if has_gpu() and records == 1 << 16 else SecureCoins
    assert isinstance(secure_coins(torch.device("cuda" if has_gpu() else "cpu"), records), kind)


def test_secure_words_are_never_those_of_another_lot() -> None:
    coins = SecureCoins()
    first, same, third = coins.words(100, 0), coins.words(100, 0), coins.words(100, 1)
    assert len({*first.tolist(), *same.tolist(), *third.tolist()}) == 300


@pytest.mark.parametrize("rate", [Fraction(0), Fraction(5, 4)])
def test_what_is_no_probability(rate: Fraction) -> None:
    with pytest.raises(InvalidParameterError, match="probability"):
        drawn_records(SeededCoins(0), 4, rate, 0)


def test_seeded_lots_depend_on_seed_and_step_alone() -> None:
    first = drawn_records(SeededCoins(1), 100, RATE, 7).tolist()
    coins = SeededCoins(1)
    other = drawn_records(coins, 100, RATE, 8).tolist()
    assert drawn_records(coins, 100, RATE, 7).tolist() == first != other
    assert drawn_records(SeededCoins(2), 100, RATE, 7).tolist() != first


class Squares(Dataset[tuple[int, int]]):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, number: int) -> tuple[int, int]:
        return number, number * number


class Doubled(TensorDataset):
    """A subclass that transforms what it returns."""

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        first, second = self.tensors
        return first[number], first[number] + second[number]


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(10))


@pytest.mark.parametrize("views", [1, 2])
def test_records_are_looked_up(views: int) -> None:
    numbers = np.array([2, 5])
    rows = [2, 5] if views == 1 else [2, 2, 5, 5]
    values = torch.arange(10)
    by_record = [(number, number**2) for number in range(10)]
    for data in ((values, values**2), by_record, Squares(), Doubled(values, values**2 - values)):
        ((first, second),) = record_source(data).batches([numbers], views)
        assert first.tolist() == rows
        assert second.tolist() == [number**2 for number in rows]
    source = record_source(TensorDataset(values, values**2))
    ((first, second),) = source.batches([numbers], views)
    assert second.tolist() == [number**2 for number in rows]
    (alone,) = record_source(values).batches([numbers], views)
    assert alone.tolist() == rows


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (DataLoader(Squares(), batch_size=2), r"DataLoader.*not Poisson.*loader\.dataset"),
        (Stream(), "IterableDataset"),
        (7, "is a int"),
        (Squares(), "has 10 records, but the plan is for records=11"),
        (torch.zeros(12, 2), "has 12 records"),
    ],
)
def test_what_lots_cannot_be_drawn_from(data: object, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        checked_records(record_source(data), 11)


def test_tensors_of_different_lengths() -> None:
    with pytest.raises(ShapeError, match="first axis"):
        record_source((torch.zeros(11, 2), torch.zeros(10)))
