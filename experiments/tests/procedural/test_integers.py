"""Rows of integers: bounded in exact arithmetic, whatever goes in, and each by itself."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from matrixdp_experiments.procedural.head import exponential
from matrixdp_experiments.procedural.integers import bounded_integers, squared_lengths

ANY = st.floats(allow_nan=True, allow_infinity=True, width=64)
NEAR_ONE = st.floats(min_value=-1.0, max_value=1.0)
BOUNDS = (2**14, 2**15 - 1, 2**16)


def squares(row: torch.Tensor) -> int:
    return sum(int(value) ** 2 for value in row.tolist())


@given(
    rows=arrays(np.float64, (4, 9), elements=st.one_of(ANY, NEAR_ONE)),
    bound=st.sampled_from(BOUNDS),
)
@settings(deadline=None, max_examples=300)
def test_the_norm_is_at_most_the_bound_whatever_goes_in(rows: np.ndarray, bound: int) -> None:
    for row in bounded_integers(torch.from_numpy(rows), bound):
        assert all(value == int(value) for value in row.tolist())
        assert squares(row) <= bound**2


@pytest.mark.parametrize("bound", BOUNDS)
def test_rows_at_the_edge_of_the_bound(bound: int) -> None:
    room = 1 / (1 - 2.0**-12)
    edge = torch.tensor(
        [[1.0, 0.0], [room, 0.0], [room * (1 + 2.0**-50), 0.0], [0.8, 0.6]]
    ).double()
    edge = torch.cat([edge, torch.tensor([[room, 1.0001 / bound * room], [1.001, 0.0]]).double()])
    whole = bounded_integers(edge, bound)
    assert max(map(squares, whole)) <= bound**2
    assert not whole[4:].any()  # one step too long: nothing of them is left
    assert squares(whole[0]) > 0.999 * bound**2


@given(arrays(np.float64, (3, 50), elements=st.floats(min_value=-1, max_value=1)))
@settings(deadline=None, max_examples=50)
def test_a_row_is_kept_up_to_one_step(rows: np.ndarray) -> None:
    unit = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6)
    whole = bounded_integers(torch.from_numpy(unit), 2**16).numpy()
    scaled = unit * 2**16
    assert np.all(np.abs(whole) <= np.abs(scaled))
    assert np.all(np.abs(scaled - whole) <= 1 + 2.0**-12 * np.abs(scaled))


def test_a_test_that_floats_would_fail() -> None:
    """A float norm says 1 here, and the exact one is above it."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.nn.functional.normalize(torch.randn(2000, 40, generator=generator))
    exact = [sum(Fraction(value) ** 2 for value in row) for row in rows.tolist()]
    assert max(exact) > 1  # so that clipping in floats alone does not bound anything
    whole = bounded_integers(rows.double(), 2**15 - 1)
    assert max(map(squares, whole)) <= (2**15 - 1) ** 2


def test_squared_lengths_do_not_depend_on_the_order() -> None:
    generator = torch.Generator().manual_seed(1)
    whole = torch.randint(-(2**15), 2**15, (5, 3000), generator=generator).double()
    order = torch.randperm(3000, generator=generator)
    assert torch.equal(squared_lengths(whole), squared_lengths(whole[:, order]))
    assert [int(value) for value in squared_lengths(whole)] == [squares(row) for row in whole]


@given(st.floats(min_value=-800.0, max_value=0.0))
@settings(deadline=None)
def test_the_exponential_is_close(value: float) -> None:
    found = float(exponential(torch.tensor([value], dtype=torch.float64)))
    assert math.isclose(found, math.exp(max(value, -700.0)), rel_tol=4e-15)


def test_the_exponential_does_not_depend_on_the_place() -> None:
    values = -10 * torch.rand(1003, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    whole = exponential(values)
    for start in range(1, 9):
        assert torch.equal(exponential(values[start:]), whole[start:])
        assert torch.equal(exponential(values[start : start + 1]), whole[start : start + 1])
    assert exponential(torch.tensor([math.nan]).double()).isnan().all()
