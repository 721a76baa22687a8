"""Every number in the findings of Type II is computed here from the table; none is left over."""

from collections.abc import Callable
from itertools import product
from statistics import fmean

import pytest

from matrixdp.rounding import shown_up
from matrixdp_experiments.released_features.settings import PAPER_DATASETS
from matrixdp_experiments.report.page_text import accuracies
from pages.feature_cells import (
    CELLS,
    EPSILONS,
    FROM_ROWS,
    ROWS,
    above_public,
    ceiling,
    constant,
    gains,
    mean,
    one_class,
    with_noise,
)
from pages.findings_section import findings_under, unchecked_numbers

# Digits that are part of a name, not of an answer.
NAMES = r"CIFAR-10"


def little_to_gain() -> list[str]:
    heads = ("rows", "linear")
    most = {
        name: max(above_public(name, method=head, mechanism="none") for head in heads)
        for name in PAPER_DATASETS
    }
    for name in PAPER_DATASETS:
        assert max(gain for dataset, gain in with_noise() if dataset == name) < most[name]
    least, largest = min(most.values()), max(most.values())
    return [f"is only {least:.1f} to {largest:.1f} points above the public part."]


def moments_beat_the_public_part() -> list[str]:
    by = {
        (name, epsilon): gains(name, epsilon, method="moments")
        for name, epsilon in product(PAPER_DATASETS, EPSILONS)
    }
    where = {
        *product(["svhn"], ("5", "10")),
        *product(["imdb"], ("1", "5", "10")),
        *product(["cifar10"], EPSILONS),
    }
    assert {one for one in by if min(by[one]) > 0} == where
    above = {one: fmean(found) for one, found in by.items()}
    by_points = [above[one] for one in where]
    assert max(above["mnist", epsilon] for epsilon in EPSILONS) < 0
    return [
        (
            "with every seed on SVHN at ε = 5 and 10, on IMDB at ε = 1, 5 and 10, and on CIFAR-10 "
            f"at every epsilon, by {min(by_points):.2f} to {max(by_points):.2f} points"
        )
    ]


def released_rows_do_not() -> list[str]:
    by = {
        one: gains(*one[:2], method=one[2]) for one in product(PAPER_DATASETS, EPSILONS, FROM_ROWS)
    }
    where = {*product(["cifar10"], ("5", "10"), ("linear", "corrected"))}
    assert {one for one in by if min(by[one]) > 0} == where
    small = [fmean(by[one]) for one in where]
    return [
        f"only linear heads on CIFAR-10 at ε = 5 and 10, by up to {max(small):.2f} points.",
    ]


def correction() -> list[str]:
    adds = {
        one: mean(*one[:2], method="corrected", network=one[2])
        - mean(*one[:2], method="linear", network=one[2])
        for one in product(PAPER_DATASETS, EPSILONS, ("public", "random"))
    }
    by = [adds[name, "1", "public"] for name in ("mnist", "cifar10", "svhn")]
    assert max(adds["svhn", epsilon, "random"] for epsilon in EPSILONS) < 0
    return [f"adds {min(by):.1f} to {max(by):.1f} points at ε = 1 on MNIST, CIFAR-10 and SVHN"]


def shrinkage() -> list[str]:
    for name, epsilon, network in product(PAPER_DATASETS, EPSILONS, ("public", "random")):
        shrunk = mean(name, epsilon, method="shrunk", network=network)
        assert shrunk <= max(mean(name, epsilon, network=network), constant(name))
    return []


def on_the_random_network() -> list[str]:
    for name in PAPER_DATASETS:
        moments = mean(name, "1", network="random", method="moments")
        assert moments > max(mean(name, "10", network="random", method=one) for one in FROM_ROWS)
    return []


def without_any_public_record() -> list[str]:
    cells = [one for one in CELLS if one[2] == "random" and one[4] == "tanh"]
    assert {one[5] for one in cells} == {"rows"}
    above = {
        (name, epsilon): mean(name, epsilon, network="random", clip="tanh") - constant(name)
        for name, epsilon in product(PAPER_DATASETS, EPSILONS)
    }
    return [f"never more than {ceiling(max(above.values()))} points above a constant answer"]


def clipping() -> list[str]:
    for name, epsilon in product(PAPER_DATASETS, EPSILONS):
        if mean(name, epsilon, clip="tanh") > mean(name, epsilon):
            # Neither has learned anything there.
            assert (name, epsilon) == ("cifar10", "1")
    return []


def test_imgm_and_the_analytic_gaussian_are_the_same_runs() -> None:
    keys = ("dataset", "network", "protocol", "clip", "epsilon", "seed")
    results = ("noise_multiplier", "accuracy", "run")
    shared, twins = (
        {
            tuple(getattr(row, key) for key in (*keys, *results))
            for row in ROWS
            if (row.mechanism, row.method) == (name, "rows")
        }
        for name in ("imgm", "analytic")
    )
    assert len(shared) == 4 * 2 * 2 * 2 * 4 * 3
    assert shared == twins


def mvg() -> list[str]:
    found = [row for row in ROWS if row.mechanism == "mvg"]
    for name in PAPER_DATASETS[1:]:
        assert one_class(name, accuracies(row for row in found if row.dataset == name))
    for row in found:
        if row.dataset == "mnist":
            assert max(accuracies([row])) < constant("mnist")
    exact = [row for row in found if row.protocol == "exact"]
    true = max(float(row.true_epsilon) for row in exact)
    assert true == max(float(row.true_epsilon) for row in exact if row.epsilon == "10")
    return [f"What it claims as ε = 10 is in truth at most {shown_up(true, 3)}"]


def protocol_of_the_paper() -> list[str]:
    run = [row for row in ROWS if row.protocol == "paper" and row.accuracy]
    for row in run:
        false = float(row.true_epsilon) > float(row.epsilon)
        assert false == (row.mechanism != "mvg")
    above = [gains(name, "1", protocol="paper") for name in ("mnist", "svhn")]
    assert max(map(max, above)) < 0
    return []


@pytest.fixture(scope="module")
def findings() -> str:
    return findings_under("Findings of Type II")


PARTS = [
    little_to_gain,
    moments_beat_the_public_part,
    released_rows_do_not,
    correction,
    shrinkage,
    on_the_random_network,
    without_any_public_record,
    clipping,
    mvg,
    protocol_of_the_paper,
]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_findings_are_those_of_the_table(part: Callable[[], list[str]], findings: str) -> None:
    for phrase in part():
        assert phrase in findings


def test_no_number_of_the_findings_is_unchecked(findings: str) -> None:
    phrases = [phrase for part in PARTS for phrase in part()]
    assert not unchecked_numbers(findings, phrases, NAMES)
