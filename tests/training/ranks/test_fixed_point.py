"""The proven allowance for sums of ranks as integers, in exact arithmetic."""

import math
from fractions import Fraction

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import numpy as np
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn, optim

from matrixdp.errors import InvalidParameterError
from matrixdp.training import PrivateTraining, TrainingPlan, parts
from matrixdp.training.lots.exact_sum import Quantiser
from matrixdp.training.noise.block_noise import SimulatedNoise
from matrixdp.training.ranks import fixed_point
from matrixdp.training.ranks.fixed_point import grid_step, on_grid, shortened

bounds = st.floats(1e-10, 1e30)


def squares(numbers: Tensor) -> Fraction:
    return sum((Fraction(number) ** 2 for number in numbers.tolist()), Fraction(0))


@given(bounds)
def test_a_step_is_a_power_of_two_that_divides_sums_of_the_mode_exact(bound: float) -> None:
    step = grid_step(bound)
    assert math.frexp(step)[0] == 0.5
    assert Fraction(step) <= Fraction(bound) / 2**30 < 2 * Fraction(step)
    assert step == Quantiser(bound, 3).step


@given(bounds, st.integers(1, 2**40))
def test_the_clip_norm_and_its_allowance_are_within_the_bound(bound: float, size: int) -> None:
    """Compared as squares of rationals: ``sqrt(size) step <= bound - clip``."""
    clip, step = Fraction(shortened(bound, size)), Fraction(grid_step(bound))
    assert 0 < clip < bound
    assert size * step**2 <= (Fraction(bound) - clip) ** 2
    # No more is given away than the root rounded up, and a rounding of the float.
    assert Fraction(bound) - clip <= (math.isqrt(size) + 1) * step + Fraction(bound) / 2**52


def test_nothing_is_left_of_an_absurd_number_of_elements() -> None:
    with pytest.raises(InvalidParameterError, match="leaves nothing to a record"):
        shortened(1.0, 2**60)


@given(st.integers(0, 2**32), st.integers(1, 60), st.floats(1e-3, 1e3))
def test_neighbours_as_integers_are_within_the_bound(seed: int, size: int, bound: float) -> None:
    generator = np.random.default_rng(seed)
    whole = torch.from_numpy(generator.standard_normal(size) * bound)
    record = torch.from_numpy(generator.standard_normal(size))
    record *= shortened(bound, size) * (1.0 - 2.0**-40) / record.norm()
    step = grid_step(bound)
    other = whole + record  # rounded, which the margin is for
    moved = on_grid(whole.clone(), step, 2) - on_grid(other.clone(), step, 2)
    assert (moved / step).equal((moved / step).round())
    assert squares(moved) <= Fraction(bound) ** 2


def test_the_allowance_is_needed() -> None:
    """A tiny record moves every element over a boundary, as far as the allowance says."""
    size, bound = 49, 1.0
    step = grid_step(bound)
    below = torch.full((size,), 0.5 * step * (1.0 - 2.0**-20), dtype=torch.float64)
    above = torch.full((size,), 0.5 * step * (1.0 + 2.0**-20), dtype=torch.float64)
    moved = on_grid(above.clone(), step, 2) - on_grid(below.clone(), step, 2)
    assert moved.tolist() == [step] * size
    assert squares(above - below) < Fraction(1, 10**6) * size * Fraction(step) ** 2
    assert Fraction(bound) - Fraction(shortened(bound, size)) >= 7 * Fraction(step)


@given(
    st.lists(st.integers(-(2**50), 2**50), min_size=8, max_size=8),
    st.permutations(range(8)),
    bounds,
)
def test_multiples_stay_as_they_are_and_add_up_in_any_order(
    numbers: list[int], order: list[int], bound: float
) -> None:
    step = grid_step(bound)
    wide = torch.tensor(numbers, dtype=torch.float64) * step
    assert on_grid(wide.clone(), step, 8).equal(wide)
    total = torch.zeros((), dtype=torch.float64)
    for one in order:
        total += wide[one]
    assert Fraction(total.item()) == sum(numbers) * Fraction(step)


@given(st.floats(-(2.0**50), 2.0**50), bounds)
def test_numbers_are_rounded_to_the_nearest_multiple(number: float, bound: float) -> None:
    step = grid_step(bound)
    found = on_grid(torch.tensor([number * step], dtype=torch.float64), step, 2).item()
    assert Fraction(found) == round(Fraction(number)) * Fraction(step)


def test_infinite_and_huge_sums_are_cut_off_so_that_ranks_still_add_up() -> None:
    for ranks in (1, 2, 3, 512):
        huge = torch.tensor([math.inf, -math.inf, 1e300], dtype=torch.float64)
        cut = on_grid(huge, 1.0, ranks).tolist()
        assert cut[0] == cut[2] == -cut[1] == min(2**51, 2**53 // ranks)
        assert ranks * cut[0] <= 2**53


SIZE = 15
COARSE = 2.0**-10


@pytest.mark.parametrize("shortens", [True, False])
def test_crafted_records_move_the_sum_of_a_program_by_the_clip_norm_at_most(
    monkeypatch: pytest.MonkeyPatch, *, shortens: bool
) -> None:
    """One record puts every element just below a boundary, and the other one lifts it above.

    On a coarse grid, so that what is taken off shows beside the margins of the mode fast.
    """
    monkeypatch.setattr(fixed_point, "BITS", 10)
    monkeypatch.setattr(SimulatedNoise, "added_to_shard", lambda _self, values, *_: values)
    if not shortens:
        monkeypatch.setattr(parts, "shortened", lambda bound, _: bound)
    first = torch.full((SIZE,), 0.49 * COARSE, dtype=torch.float64)
    second = torch.full((SIZE,), 1.0, dtype=torch.float64)
    store = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        whole = sum_of(torch.stack([first, second]))
        without = sum_of(torch.stack([first, second * torch.nan]))
    finally:
        dist.destroy_process_group()
    (moved,) = (whole - without).unique().tolist()
    assert (moved / COARSE).is_integer()
    assert (SIZE * Fraction(moved) ** 2 <= 1) == shortens
    assert math.sqrt(SIZE) * moved > 0.99


def sum_of(records: Tensor) -> Tensor:
    """Return the un-noised sum of gradients, which are the records themselves."""
    model = nn.Linear(SIZE, 1, bias=False, dtype=torch.float64)
    nn.init.zeros_(model.weight)
    plan = TrainingPlan(
        records=2, lot_size=2, steps=1, clip_norm=1.0, noise_multiplier=1.0, delta=1e-3
    )

    def losses(rows: Tensor) -> Tensor:
        found: Tensor = model(rows)[:, 0]
        return found

    optimizer = optim.SGD(model.parameters(), lr=2.0)  # undoes the division
    group = dist.group.WORLD
    training = PrivateTraining(model, losses, optimizer, plan, seed=1, ranks=group)
    training.step(next(training.lots(records)), batch_size=2)
    return -model.weight.detach()[0]
