"""Every number in the answers, which open the page, is computed here from both tables."""

from collections.abc import Callable

import pytest

from matrixdp.rounding import shown_up
from matrixdp_experiments.released_features.settings import PAPER_DATASETS
from pages.feature_cells import ceiling, cell, with_noise
from pages.findings_section import findings_under, unchecked_numbers
from pages.gradient_table import DATASETS, loss, mean, ratio, ratios

# Digits that are part of a name, not of an answer.
NAMES = r"Theorem 3|CIFAR-10"
THEOREM_3 = "imgm-theorem-3"


def cost() -> list[str]:
    lost = {name: mean(name, "none") - mean(name, "imgm-pld", "1") for name in DATASETS}
    least, most = min(lost, key=lost.__getitem__), max(lost, key=lost.__getitem__)
    assert (least, most) == ("adult", "cifar10")
    return [
        (
            f"At ε = 1 with the tightest account, from {lost[least]:.1f} points on Adult to "
            f"{lost[most]:.1f} points on CIFAR-10."
        )
    ]


def accounting() -> list[str]:
    times = [ratio(THEOREM_3, "imgm-pld", name, "1") for name in DATASETS]
    lost = [loss(THEOREM_3, name, "1") for name in DATASETS]
    return [
        f"needs {min(times):.1f} to {max(times):.0f} times the noise of the tight account at ε = 1",
        f"loses {min(lost):.1f} to {max(lost):.1f} points.",
    ]


def mechanisms() -> list[str]:
    found = [
        *ratios("classic", "analytic"),
        *ratios("classic-amplified", "analytic-amplified"),
        *(
            float(cell("mnist", epsilon, mechanism="classic")[0].noise_multiplier)
            / float(cell("mnist", epsilon)[0].noise_multiplier)
            for epsilon in ("0.1", "1")
        ),
    ]
    return [f"needs {min(found):.2f} to {max(found):.2f} times as much"]


def released_features() -> list[str]:
    best = max(gain for _, gain in with_noise())
    return [f"With noise no head is more than {ceiling(best)} points above a network that saw only"]


def spent() -> list[str]:
    true = [float(cell(name, "1", protocol="paper")[0].true_epsilon) for name in PAPER_DATASETS]
    return [f"A claimed ε = 1 spends {shown_up(min(true), 3)} to {shown_up(max(true), 3)}."]


PARTS = [cost, accounting, mechanisms, released_features, spent]


@pytest.fixture(scope="module")
def answers() -> str:
    return findings_under("Answers").partition("|---|---|")[2]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_answers_are_those_of_the_tables(part: Callable[[], list[str]], answers: str) -> None:
    for phrase in part():
        assert phrase in answers


def test_no_number_of_the_answers_is_unchecked(answers: str) -> None:
    phrases = [phrase for part in PARTS for phrase in part()]
    assert not unchecked_numbers(answers, phrases, NAMES)
