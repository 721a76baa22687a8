"""Units with several records: lots of users, one clipped gradient for each, and what is said."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn, optim
from torch.utils.data import TensorDataset

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.training import PrivateTraining, TrainingPlan, Units
from matrixdp.training.checks import model as model_check
from matrixdp.training.checks import taken_apart
from matrixdp.training.lots.records import record_source
from matrixdp.training.lots.sampling import SecureCoins, SeededCoins
from matrixdp.training.lots.unit_records import UnitRecords, checked_units
from matrixdp.training.noise.block_noise import SimulatedNoise
from training.chosen_way import AT_ONCE, BY_LAYER, ONE_BY_ONE
from training.small_training import cross_entropy, private, sgd, small_model, weights

USERS, MOST = 12, 3
# Some users have one record, some as many as a step takes, and some more.
LABELS = np.repeat(np.arange(USERS), [1, 2, 3, 4, 7, 1, 3, 5, 2, 9, 1, 2])
RECORDS = len(LABELS)


def unit_plan(**changes: Any) -> TrainingPlan:
    parts: dict[str, Any] = {
        "units": Units(USERS, MOST, "user"),
        "lot_size": USERS,
        "steps": 1,
        "clip_norm": 0.5,
        "noise_multiplier": 2.0,
        "delta": 1e-3,
    }
    return TrainingPlan(**(parts | changes))


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(6)
    inputs = torch.randn(RECORDS, 6, generator=generator)
    return inputs, torch.randint(0, 3, (RECORDS,), generator=generator)


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedNoise, "added_to", lambda _self, values, *_: values)


def sum_of(
    plan: TrainingPlan, records: Any = None, labels: object = LABELS, **options: Any
) -> Tensor:
    """Return the un-noised sum of one step."""
    model = small_model()
    before = weights(model)
    # The optimiser undoes the division.
    make = partial(_plain_descent, rate=plan.lot_size)
    training = private(model, plan, make=make, seed=1, **options)
    for lot in training.lots(data() if records is None else records, units=labels):
        training.step(lot, batch_size=5)
    return before - weights(model)


def _plain_descent(model: nn.Module, rate: float) -> optim.Optimizer:
    return optim.SGD(model.parameters(), lr=rate)


def taken(plan: TrainingPlan, labels: NDArray[Any], step: int = 0) -> list[list[int]]:
    """Return the records that a seeded step takes of each unit."""
    assert plan.units is not None
    source = checked_units(record_source(torch.arange(len(labels))), plan.units, labels)
    lot = source.drawn(np.arange(len(source)), SeededCoins(1), step)
    return [records.tolist() for records in lot.one_by_one(1)]


def by_hand(chosen: list[list[int]], clip_norm: float) -> Tensor:
    """Return the sum of the clipped gradients of the mean losses of users, by plain autograd."""
    inputs, targets = data()
    model = small_model()
    total = torch.zeros_like(weights(model))
    for records in chosen:
        loss = cross_entropy(model, inputs[records], targets[records]).mean()
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        whole = torch.cat([gradient.flatten() for gradient in gradients])
        total += whole * min(1.0, clip_norm / float(whole.norm()))
    return total


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("mode", ["fast", "exact"])
@pytest.mark.parametrize("clip_norm", [0.05, 100.0])
def test_the_sum_is_that_of_clipped_means_over_users(mode: Any, clip_norm: float) -> None:
    plan = unit_plan(clip_norm=clip_norm)
    expected = by_hand(taken(plan, LABELS), clip_norm)
    found = sum_of(plan, mode=mode)
    # A record's own mean would not do: users have from 1 to 9 records.
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-4 * clip_norm)


@pytest.mark.usefixtures("silent")
def test_data_sets_workers_and_strings_give_the_same_sum() -> None:
    expected = sum_of(unit_plan())
    names = np.array([f"user {label:02}" for label in LABELS])
    assert torch.equal(sum_of(unit_plan(), TensorDataset(*data()), names), expected)
    plan = unit_plan(units=Units(np.int64(USERS), np.int64(MOST), "user"))  # type: ignore[arg-type]
    assert torch.equal(sum_of(plan, None, LABELS.astype(object)), expected)
    assert torch.equal(sum_of(plan, None, names.astype(object)), expected)
    # A subclass is read item by item.
    items = [(one, target) for one, target in zip(*data(), strict=True)]
    assert torch.allclose(sum_of(unit_plan(), items, torch.tensor(LABELS)), expected)


@pytest.mark.usefixtures("silent")
def test_the_order_of_records_and_views_do_not_matter() -> None:
    expected = by_hand([np.flatnonzero(user == LABELS).tolist() for user in range(USERS)], 0.5)
    plan = unit_plan(units=Units(USERS, 9, "user"))  # all records of each
    shuffled = np.random.default_rng(3).permutation(RECORDS)
    inputs, targets = data()
    for views in (1, 2):
        found = sum_of(
            dataclasses.replace(plan, views=views),
            (inputs[shuffled], targets[shuffled]),
            LABELS[shuffled],
        )
        assert torch.allclose(found, expected, atol=1e-5)


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("mode", ["fast", "exact"])
def test_a_user_moves_the_sum_by_the_clip_norm_at_most(mode: Any) -> None:
    """Neighbours through the program: a user with all records more or less, and worse."""
    inputs, targets = data()
    inputs = inputs * 50.0  # gradients far above the clip norm
    whole = sum_of(unit_plan(), (inputs, targets), mode=mode)
    for user in range(USERS):
        spoilt = inputs.clone()
        spoilt[user == LABELS] = torch.nan  # which adds nothing, like a user that is not there
        moved = (whole - sum_of(unit_plan(), (spoilt, targets), mode=mode)).norm()
        assert 0.4 < moved <= 0.5 * (1.0 + 1e-6)


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("mode", ["fast", "exact"])
def test_one_record_that_is_not_finite_silences_its_user_and_nobody_else(mode: Any) -> None:
    inputs, targets = data()
    user = 1  # who brings both records
    chosen = [records for one, records in enumerate(taken(unit_plan(), LABELS)) if one != user]
    spoilt = inputs.clone()
    spoilt[np.flatnonzero(user == LABELS)[0]] = torch.inf
    found = sum_of(unit_plan(), (spoilt, targets), mode=mode)
    assert torch.allclose(found, by_hand(chosen, 0.5), atol=1e-5)


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("way", [BY_LAYER, AT_ONCE, ONE_BY_ONE])
def test_every_way_to_form_gradients(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def only(ways: dict[str, Any], *rest: Any) -> taken_apart.Chosen:
        return taken_apart.first_right({way: ways[way]}, *rest)

    monkeypatch.setattr(model_check, "first_right", only)
    expected = by_hand(taken(unit_plan(), LABELS), 0.5)
    assert torch.allclose(sum_of(unit_plan()), expected, atol=1e-5)


@settings(max_examples=60)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=8),
    most=st.integers(1, 6),
    views=st.integers(1, 3),
    seed=st.integers(0, 2**32 - 1),
)
def test_batches_hold_the_records_of_their_units_alone(
    sizes: list[int], most: int, views: int, seed: int
) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    records = torch.arange(len(labels))
    units = Units(len(sizes), most)
    source = checked_units(record_source(records), units, labels)
    assert len(source) == len(sizes)
    lot = source.drawn(np.arange(len(sizes)), SecureCoins(), 0)
    batches = list(lot.batches([np.array([unit]) for unit in range(len(sizes))], most * views))
    for unit, (shares, rows) in enumerate(batches):
        assert len(shares) == len(rows) == most * views
        assert set(labels[rows.numpy()].tolist()) == {unit}
        counted = rows[shares > 0].tolist()
        assert len(set(counted)) == min(sizes[unit], most)  # each of them, and none twice
        assert all(counted.count(one) == views for one in counted)
        assert torch.allclose(shares[shares > 0], torch.tensor(1.0 / len(set(counted))))


def test_records_of_a_user_are_chosen_evenly_and_anew_in_each_step() -> None:
    labels = np.zeros(5, np.int64)
    source = checked_units(record_source(torch.arange(5)), Units(1, 2), labels)
    for coins in (SecureCoins(), SeededCoins(3)):
        pairs = [_pair(source, coins, step) for step in range(2000)]
        counts = [pairs.count(pair) for pair in sorted(set(pairs))]
        assert len(counts) == 10
        # Chi-squared of 9 degrees of freedom, beyond which chance is 1e-6.
        assert sum((count - 200) ** 2 / 200 for count in counts) < 45.1
    assert _pair(source, SeededCoins(3), 7) == _pair(source, SeededCoins(3), 7)


def _pair(source: UnitRecords, coins: Any, step: int) -> tuple[int, ...]:
    (records,) = source.drawn(np.arange(1), coins, step).one_by_one(1)
    return tuple(sorted(records.tolist()))


def test_a_lot_that_is_taken_again_brings_the_same_records() -> None:
    """A step that failed can be called again: other coins would be another look at the data."""
    model, seen, fails = small_model(), list[Tensor](), False

    def losses(rows: Tensor, targets: Tensor) -> Tensor:
        seen.append(rows)
        if fails:
            raise ValueError("not this time")
        return cross_entropy(model, rows, targets)

    training = PrivateTraining(model, losses, sgd(model), unit_plan(steps=2))
    lots = training.lots(data(), units=LABELS)
    training.step(next(lots), batch_size=USERS)
    seen.clear()
    lot, fails = next(lots), True
    with pytest.raises(ValueError, match="not this time"):
        training.step(lot, batch_size=USERS)
    fails = False
    training.step(lot, batch_size=USERS)
    assert torch.equal(*seen)


def test_losses_that_leave_out_records_raise_nothing() -> None:
    """Of which records nobody must learn, least of all by an error."""
    inputs, targets = data()
    inputs[LABELS == 4] = 9.0
    for mode in ("fast", "exact"):
        model = small_model()
        losses = partial(_of_small, model)
        options: Any = {"losses": losses, "mode": mode, "seed": 1}
        training = private(model, unit_plan(), **options)
        for lot in training.lots((inputs, targets), units=LABELS):
            training.step(lot, batch_size=5)
        assert training.progress.steps_left == 0


def _of_small(model: nn.Module, rows: Tensor, targets: Tensor) -> Tensor:
    kept = rows.abs().amax(1) < 8.0
    return cross_entropy(model, rows[kept], targets[kept])


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (None, "units is missing"),
        (LABELS[1:], "pass one label for each record"),
        (LABELS + (LABELS == 3), "names 11 units, but the plan is for number=12"),
        (LABELS.astype(float), "labels of type float64: pass integers or strings"),
        ([None] * RECORDS, "labels of type object"),
    ],
)
def test_labels_that_do_not_fit(labels: object, said: str) -> None:
    training = private(small_model(), unit_plan())
    with pytest.raises(InvalidParameterError, match=said):
        training.lots(data(), units=labels)
    assert training.progress.steps_spent == 0


def test_labels_without_units_in_the_plan() -> None:
    training = private(small_model(), unit_plan(units=None, records=RECORDS))
    with pytest.raises(InvalidParameterError, match="the plan protects single records"):
        training.lots(data(), units=LABELS)


def test_a_captured_step_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match="the plan is for users"):
        private(small_model(), unit_plan()).captured_step(data(), batch_size=4)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"records": 40}, "pass one of the two"),
        ({"units": None}, "pass one of the two"),
        ({"units": 12}, "units is a int"),
        ({"lot_size": 13}, r"from 1 to users=12"),
    ],
)
def test_plans_that_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidParameterError, match=said):
        unit_plan(**changes)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Units(0, 1),
        lambda: Units(3, 0),
        lambda: Units(3, 1, "record"),
        lambda: Units(3, 1, ""),
        lambda: Units(3, 1, "two words"),
        lambda: Units(3, 1, 7),  # type: ignore[arg-type]
    ],
)
def test_units_that_are_refused(make: Callable[[], Units]) -> None:
    with pytest.raises(InvalidParameterError):
        make()


def test_the_noise_is_that_of_users_whatever_they_bring() -> None:
    plan = unit_plan(lot_size=3, steps=50)
    alike = TrainingPlan(
        records=USERS, lot_size=3, steps=50, clip_norm=0.5, noise_multiplier=2.0, delta=1e-3
    )
    assert plan.epsilon == alike.epsilon
    assert plan.noise_scale == alike.noise_scale
    assert plan.digest != alike.digest
    assert dataclasses.replace(plan, views=2).units == plan.units
    assert plan.digest != dataclasses.replace(plan, units=Units(USERS, MOST, "house")).digest


def test_the_guarantee_names_the_unit_and_what_is_enforced() -> None:
    training = private(small_model(), unit_plan(lot_size=6))
    said = str(training.guarantee)
    assert "under adding or removing one user with all of its records." in said
    assert (
        "A step takes at most 3 records of each user, which is enforced. It is assumed that labels"
        in said
    )
    assert "Poisson samples of users at rate 0.5" in said
    assert "one record" not in said
    html = training.plan._repr_html_()
    assert "removing one user" in html
    assert "at most 3, enforced" in html


def test_own_rows_are_checked_as_units() -> None:
    training = private(small_model(), unit_plan())
    inputs, targets = data()
    with pytest.raises(ShapeError, match="rows makes 3 users: pass at least 4"):
        training.check((inputs[: 4 * MOST - 1], targets[: 4 * MOST - 1]))
    training.check((inputs[: 4 * MOST], targets[: 4 * MOST]))


def test_rows_of_a_user_may_mix_and_those_of_others_not() -> None:
    model = small_model()

    def of_user(rows: Tensor, targets: Tensor) -> Tensor:
        by_user = rows.unflatten(0, (-1, MOST))
        centred = by_user - by_user.mean(1, keepdim=True)
        return cross_entropy(model, centred.flatten(0, 1), targets)

    private(model, unit_plan(), losses=of_user).lots(data(), units=LABELS)

    def of_all(rows: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(model, rows - rows.mean(0), targets)

    with pytest.raises(InvalidParameterError, match="depends on other records"):
        private(model, unit_plan(), losses=of_all).lots(data(), units=LABELS)
