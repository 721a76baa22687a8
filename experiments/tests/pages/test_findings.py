"""Every number in the findings of Type I is computed here from the table, and none is left over."""

import math
from collections.abc import Callable
from itertools import product

import pytest

from matrixdp_experiments.gradients.cells import grid
from matrixdp_experiments.gradients.settings import SETTINGS
from pages.findings_section import findings_under, unchecked_numbers
from pages.gradient_runs import OUTCOMES
from pages.gradient_table import (
    AMPLIFIED,
    DATASETS,
    EPSILONS,
    EVERYWHERE,
    IDLE,
    IGNORING,
    REPEATED,
    ROWS,
    SUBSAMPLED,
    learned,
    loss,
    mean,
    ratios,
    shown,
)

# Digits that are part of a name, not of an answer.
NAMES = r"Theorem 3\.4|Theorem 3|CIFAR-10|VGG-16"


def small_epsilons() -> list[str]:
    for name in DATASETS:
        below = mean(name, "imgm-pld", "0.01") < 100 * SETTINGS[name].commonest_class
        assert below == (name in {"cora", "svhn"})
    mnist, adult = (shown(name, "imgm-pld", "0.1") for name in ("mnist", "adult"))
    return [
        f"At ε = 0.1 the tight account still has {mnist} on MNIST and {adult} on Adult",
        "at ε = 0.01 it is below a constant answer on Cora and SVHN",
    ]


def nothing_learned() -> list[str]:
    level = 100 * SETTINGS["cifar10"].commonest_class
    rules = (*SUBSAMPLED, *AMPLIFIED, *IGNORING)
    idle = [one for one in product(rules, EPSILONS) if abs(mean("cifar10", *one) - level) < 0.8]
    assert {("cifar10", *one) for one in idle} >= set(IDLE)
    cells = list(product(rules, EPSILONS))
    below = [one for one in cells if mean("svhn", *one) < 100 * SETTINGS["svhn"].commonest_class]
    for rule, epsilon in product(IGNORING, EPSILONS):
        above = mean("adult", rule, epsilon) > 100 * SETTINGS["adult"].commonest_class
        assert above == (rule == "imgm-theorem-3" and epsilon in {"0.5", "1"})
    return [
        f"On CIFAR-10 {len(IDLE)} of {len(cells)} stay within 0.8 points of a constant answer",
        f"on SVHN {len(below)} of {len(cells)} are below it.",
    ]


def theorem_3() -> list[str]:
    rule = "imgm-theorem-3"
    worst = max(EVERYWHERE, key=lambda where: loss(rule, *where))
    assert worst == ("mnist", "0.1")
    assert min(loss(rule, *where) for where in learned(rule, "imgm-pld")) > 0
    found = ratios("analytic", rule)
    assert min(ratios("classic", rule) + ratios("mvg", rule)) > min(found)
    for where in learned(rule, "analytic"):
        assert loss("analytic", *where, better=rule) > 0
    return [
        f"by up to {loss(rule, *worst):.1f} points (MNIST, ε = 0.1)",
        f"needs {min(found):.1f} to {max(found):.1f} times as much",
    ]


def other_accountants() -> list[str]:
    rdp, moments = (
        [100 * (one - 1) for one in ratios(name, "imgm-pld")] for name in ("rdp", "moments")
    )
    most = {name: max(loss(name, *where) for where in EVERYWHERE) for name in ("rdp", "moments")}
    assert all(abs(loss("rdp", *where)) <= most["rdp"] for where in EVERYWHERE)
    return [
        f"{min(rdp):.0f} to {max(rdp):.0f} per cent more noise",
        f"within {math.ceil(10 * most['rdp']) / 10} points",
        f"{min(moments):.0f} to {max(moments):.0f} per cent more noise",
        f"loses up to {most['moments']:.1f} points",
    ]


def mvg() -> list[str]:
    for name in DATASETS:
        found = [mean(name, "mvg", epsilon) for epsilon in EPSILONS]
        assert max(found) - min(found) < 0.1
        assert max(found) <= 100 * SETTINGS[name].commonest_class
    others = [rule for rule in IGNORING if rule != "mvg"]
    for name, rule in product(REPEATED, others):
        assert mean(name, rule, "0.01") < mean(name, "mvg", "0.01")
    return [
        "within 0.1 points",
        "at ε = 0.01 it is above the other rules that do not credit sampling",
    ]


def test_which_seeds_were_run() -> None:
    for name in DATASETS:
        made = {(row.mechanism, row.epsilon, row.seed) for row in ROWS if row.dataset == name}
        seeds = (0, 1, 2) if name in REPEATED else (0,)
        assert seeds == SETTINGS[name].seeds
        assert len(made) == len(grid([name])) == sum(row.dataset == name for row in ROWS)
        assert all(row.accuracy for row in ROWS if row.dataset == name)


def test_every_run_with_mvg_has_the_projection() -> None:
    with_mvg = [one.run for one in OUTCOMES.values() if one.run.layers]
    assert {run.dataset for run in with_mvg} == set(DATASETS)
    assert {run.sum_norm == run.lot_size * (run.clip_norm or 0.0) for run in with_mvg} == {True}


def test_only_vgg_16_was_trained_in_bfloat16() -> None:
    assert all(
        (one.run.half is True) == (one.run.dataset == "cifar10") for one in OUTCOMES.values()
    )
    assert any(one.run.half is True for one in OUTCOMES.values())


def test_matrix_mechanism_and_analytic_gaussian_are_the_same_rows() -> None:
    for dataset in ("adult", "cora"):
        analytic, matrix = (
            [
                (row.epsilon, row.seed, row.noise_multiplier, row.true_epsilon, row.run)
                for row in ROWS
                if (row.dataset, row.mechanism) == (dataset, name)
            ]
            for name in ("analytic", "matrix")
        )
        assert analytic == matrix
        assert len(analytic) == 12


@pytest.fixture(scope="module")
def findings() -> str:
    return findings_under("Findings of Type I")


PARTS = [small_epsilons, nothing_learned, theorem_3, other_accountants, mvg]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_findings_are_those_of_the_table(part: Callable[[], list[str]], findings: str) -> None:
    for phrase in part():
        assert phrase in findings


def test_no_number_of_the_findings_is_unchecked(findings: str) -> None:
    phrases = [phrase for part in PARTS for phrase in part()]
    assert not unchecked_numbers(findings, phrases, NAMES)
