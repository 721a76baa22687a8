"""Plans: their parts cannot disagree, and their numbers are on the private side."""

import math
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

from matrixdp.errors import InvalidParameterError
from matrixdp.privacy import (
    Accountant,
    SampledPlan,
    plan_epsilon,
    privacy_epsilon,
)
from training.small_training import small_plan


def test_noise_is_found_for_an_epsilon() -> None:
    plan = small_plan(noise_multiplier=None, epsilon=3.0)
    sampled = SampledPlan(
        noise_multiplier=plan.noise_multiplier,
        sampling_rate=0.25,
        steps=4,
        neighbouring="add-remove",
    )
    assert plan.accountant is Accountant.PLD
    assert 2.999 < plan_epsilon(sampled, 1e-3) <= plan.epsilon == 3.0
    # The tight account needs less noise than Rényi divergences.
    looser = small_plan(noise_multiplier=None, epsilon=3.0, accountant=Accountant.RDP)
    assert plan.noise_multiplier < 0.97 * looser.noise_multiplier


def test_epsilon_is_found_for_noise() -> None:
    plan = small_plan()
    assert plan.noise_multiplier == 2.0
    assert small_plan(epsilon=plan.epsilon) == plan
    assert small_plan(epsilon=None, noise_multiplier=3.0).epsilon < plan.epsilon


def test_without_sampling_the_exact_curve_is_used() -> None:
    plan = small_plan(lot_size=40, steps=9, noise_multiplier=6.0)
    assert plan.sampling_rate == 1.0
    assert plan.accountant is Accountant.PLD
    assert plan.epsilon == privacy_epsilon(0.5, 1e-3)


@pytest.mark.parametrize("records", [3, 7, 49, 60_000])
def test_the_accounted_rate_is_at_least_the_true_one(records: int) -> None:
    plan = small_plan(records=records, lot_size=math.sqrt(records))
    assert Fraction(plan.sampling_rate) >= plan.exact_rate == Fraction(plan.lot_size) / records


def test_squares_of_bounds_add_up() -> None:
    plan = small_plan(clip_norm={"b": 4.0, "a": 3.0})
    assert plan.bounds == (("a", 3.0), ("b", 4.0))
    assert plan.sensitivity == 5.0
    uneven = small_plan(clip_norm={"a": 1.0, "b": 1.0})
    assert Fraction(uneven.sensitivity) ** 2 >= 2


def test_a_step_has_at_least_the_noise_that_is_accounted_for() -> None:
    for multiplier in (0.7, 1.1, 3.3):
        plan = small_plan(noise_multiplier=multiplier, clip_norm={"a": 0.1, "b": 0.7})
        assert plan.step_mechanism.mu <= plan.step_budget.mu
        assert Fraction(plan.step_budget.mu) <= 1 / Fraction(multiplier)
        assert Fraction(plan.noise_scale) >= Fraction(multiplier) * Fraction(plan.sensitivity)
        assert plan.noise_scale == pytest.approx(multiplier * plan.sensitivity, rel=1e-12)


def test_a_plan_is_a_frozen_value() -> None:
    plan = small_plan(clip_norm={"a": 1.0})
    with pytest.raises(FrozenInstanceError):
        plan.steps = 5  # type: ignore[misc]
    copy = pickle.loads(pickle.dumps(plan))  # noqa: S301
    assert copy == plan
    assert hash(copy) == hash(plan)
    assert copy.digest == plan.digest


@pytest.mark.parametrize(
    "changes",
    [
        *({"records": 41}, {"lot_size": 11}, {"steps": 3}, {"clip_norm": 0.6}, {"delta": 2e-3}),
        *({"views": 2}, {"noise_multiplier": 2.5}, {"accountant": Accountant.MOMENTS}),
    ],
    ids=str,
)
def test_the_digest_tells_plans_apart(changes: dict[str, object]) -> None:
    assert small_plan(**changes).digest != small_plan().digest


@pytest.mark.parametrize(("epochs", "steps"), [(1, 4), (2.5, 10), (0.1, 1), (2.51, 11), (1e-9, 1)])
def test_epochs_are_whole_steps_rounded_up(epochs: float, steps: int) -> None:
    plan = small_plan(steps=None, epochs=epochs)
    assert plan.steps == steps
    assert plan == small_plan(steps=steps)
    assert plan.epochs == steps / 4 >= epochs


def test_more_steps_need_a_new_account() -> None:
    plan = small_plan()
    with pytest.raises(InvalidParameterError, match=r"not guaranteed by noise_multiplier=2\.0"):
        replace(plan, steps=5)
    assert replace(plan, steps=3).epsilon == plan.epsilon


def test_a_plan_that_proves_zero_can_be_copied() -> None:
    plan = small_plan(noise_multiplier=1e8)
    assert plan.epsilon == 0.0
    assert replace(plan) == plan
    assert replace(plan, steps=3).epsilon == 0.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"records": 0}, "records=0"),
        ({"steps": 1.5}, "steps=1.5"),
        ({"epochs": 2}, "steps=4 and epochs=2: pass one of the two"),
        ({"steps": None}, "steps=None and epochs=None: pass one of the two"),
        ({"steps": None, "epochs": 0.0}, "epochs=0.0"),
        ({"steps": None, "epochs": -1}, "epochs=-1"),
        ({"steps": None, "epochs": math.nan}, "epochs=nan"),
        ({"steps": None, "epochs": math.inf}, "epochs=inf"),
        ({"steps": None, "epochs": "2"}, "epochs='2'"),
        ({"views": True}, "views=True"),
        ({"lot_size": 41}, "lot_size=41.0 is outside its domain"),
        ({"lot_size": 0.5}, "lot_size=0.5 is outside its domain"),
        ({"lot_size": math.nan}, "lot_size=nan"),
        ({"clip_norm": 0.0}, "clip_norm=0.0"),
        ({"clip_norm": 9.9e-11}, "9.9e-11 is outside its domain: use a norm from 1e-10 to"),
        ({"clip_norm": {"a": 1e31}}, r"clip_norm\['a'\]=1e\+31 is outside its domain"),
        ({"clip_norm": {"a": -1.0}}, r"clip_norm\['a'\]=-1.0"),
        ({"clip_norm": {}}, "clip_norm must map"),
        ({"clip_norm": {1: 1.0}}, "clip_norm must map"),
        ({"clip_norm": (("a", 1.0), ("a", 2.0))}, "gives a name twice"),
        ({"delta": 0.0}, "delta=0.0"),
        ({"noise_multiplier": math.nan}, "noise_multiplier=nan"),
        ({"noise_multiplier": None}, "both missing"),
        ({"epsilon": 0.0}, "epsilon=0.0 is not guaranteed"),
        ({"epsilon": -0.1}, "epsilon=-0.1 is outside its domain"),
        ({"epsilon": 0.0, "noise_multiplier": None}, "epsilon=0.0 is outside its domain"),
        ({"epsilon": 0.01}, "claim at least"),
        ({"accountant": "gdp"}, "accountant='gdp'"),
    ],
    ids=str,
)
def test_bad_plans(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        small_plan(**changes)


@pytest.mark.parametrize("bound", [1e-10, 1e30])
def test_the_least_and_the_largest_clip_norm(bound: float) -> None:
    assert small_plan(clip_norm=bound).sensitivity == bound


def test_without_torch_the_install_line_is_named() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from matrixdp.errors import MissingExtraError\n"
        "try:\n    import matrixdp.training\n"
        "except MissingExtraError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install '.[train]'" in done.stdout


@pytest.mark.parametrize("clip_norm", [("a", 1.0), (1, 2), (("a", 1.0, 2.0),), ((1, 1.0),)])
def test_pairs_that_are_none(clip_norm: Any) -> None:
    with pytest.raises(InvalidParameterError, match="clip_norm must map at least one name"):
        small_plan(clip_norm=clip_norm)
