"""Every number in the findings of Type II is computed here from the table; none is left over."""

import math
from collections.abc import Callable
from itertools import product
from pathlib import Path
from statistics import fmean

import pytest

from documentation.findings_section import findings_under, unchecked_numbers
from matrixdp.experiments.page_text import accuracies
from matrixdp.experiments.private_features.release_table import FeatureRow
from matrixdp.experiments.private_features.settings import FEATURE_SETTINGS, PAPER_DATASETS
from matrixdp.experiments.table_files import read_table
from matrixdp.rounding import shown_up

ROOT = Path(__file__).resolve().parents[2]
ROWS = read_table(ROOT / "results" / "type_two.csv", FeatureRow)
EPSILONS = ("0.1", "1", "5", "10")
CLAIMS = ("0.01", "0.1", "0.5", "1")  # of the protocol of the paper
FROM_ROWS = ("rows", "projected", "shrunk", "linear", "corrected")
USUAL = {
    "network": "public",
    "protocol": "exact",
    "clip": "public",
    "method": "rows",
    "mechanism": "imgm",
}
# Digits that are part of a name, not of an answer.
NAMES = r"CIFAR-10"

CELLS: dict[tuple[str, ...], list[FeatureRow]] = {}
for each in ROWS:
    where = (each.dataset, each.epsilon, *(getattr(each, name) for name in USUAL))
    CELLS.setdefault(where, []).append(each)


def cell(dataset: str, epsilon: str = "", **wanted: str) -> list[FeatureRow]:
    return CELLS[dataset, epsilon, *(USUAL | wanted).values()]


def seeds(dataset: str, epsilon: str = "", **wanted: str) -> list[float]:
    found = accuracies(cell(dataset, epsilon, **wanted))
    assert len(found) == 3
    return found


def mean(dataset: str, epsilon: str = "", **wanted: str) -> float:
    return fmean(seeds(dataset, epsilon, **wanted))


def alone(dataset: str) -> float:
    return mean(dataset, mechanism="public")


def above_public(dataset: str, epsilon: str, **wanted: str) -> float:
    return mean(dataset, epsilon, **wanted) - alone(dataset)


def listed(values: list[str]) -> str:
    return f"{', '.join(values[:-1])} and {values[-1]}"


def four(epsilon: str = "", **wanted: str) -> str:
    return listed([f"{mean(name, epsilon, **wanted):.1f}" for name in PAPER_DATASETS])


def ceiling(points: float) -> str:
    return f"{math.ceil(10 * points) / 10}"


def constant(dataset: str) -> float:
    return 100 * FEATURE_SETTINGS[dataset].commonest_class


def little_to_gain() -> list[str]:
    heads = ("rows", "linear")
    most = [
        max(above_public(name, "", method=head, mechanism="none") for head in heads)
        for name in PAPER_DATASETS
    ]
    assert mean("mnist", method="linear", mechanism="none") < alone("mnist")
    return [
        f"The public part alone gives {four(mechanism='public')}.",
        (
            f"*without noise* has {four(mechanism='none')}, and a linear head on them "
            f"{four(method='linear', mechanism='none')}."
        ),
        f"The better of the two is {listed([f'{one:.1f}' for one in most])} points above",
    ]


def head_on_noisy_rows() -> list[str]:
    for name, epsilon in product(PAPER_DATASETS, EPSILONS):
        assert above_public(name, epsilon) < 0
        assert epsilon != "0.1" or mean(name, epsilon) <= constant(name)
    return [
        f"At ε = 0.1 it has {four('0.1')}, no more than",
        f"at ε = 1 {four('1')}.",
        f"At ε = 5 it has {four('5')}, and at ε = 10 {four('10')}.",
    ]


def moments_beat_the_public_part() -> list[str]:
    gains = {
        (name, epsilon): above_public(name, epsilon, method="moments")
        for name, epsilon in product(PAPER_DATASETS, EPSILONS)
    }
    where = [*product(["svhn"], ("5", "10")), *product(["imdb"], ("1", "5", "10"))]
    for name, epsilon in where:
        pairs = zip(
            seeds(name, epsilon, method="moments"), seeds(name, mechanism="public"), strict=True
        )
        assert all(private > public for private, public in pairs)
    assert max(gains[one] for one in gains if one not in where) < 0.2
    assert all(0 < gains["cifar10", epsilon] < 0.2 for epsilon in EPSILONS)
    assert all(gains["mnist", epsilon] < 0 for epsilon in EPSILONS)
    by = [f"{gains[one]:.1f}" for one in where]
    return [
        f"on SVHN by {listed(by[:2])} points at ε = 5 and 10",
        f"on IMDB by {listed(by[2:])} points at ε = 1, 5 and 10, with every seed",
        "less than 0.2 points above it",
        f"by {-gains['mnist', '1']:.1f} points at ε = 1 and {-gains['mnist', '10']:.1f} at ε = 10",
    ]


def released_rows_do_not() -> list[str]:
    for name, epsilon, method in product(PAPER_DATASETS, EPSILONS, FROM_ROWS):
        assert above_public(name, epsilon, method=method) <= 0.2
    best = {
        name: max(above_public(name, "10", method=method) for method in FROM_ROWS)
        for name in ("mnist", "svhn")
    }
    return [
        "more than 0.2 points",
        (
            f"At ε = 10 the best of them is {-best['mnist']:.1f} points below it on MNIST and "
            f"{-best['svhn']:.1f} on SVHN"
        ),
    ]


def bought(method: str) -> str:
    """Return the line of the table of gains over the network's head."""
    shown = [
        ", ".join(
            f"{mean(name, epsilon, method=method) - mean(name, epsilon):+z.1f}"
            for epsilon in EPSILONS
        )
        for name in PAPER_DATASETS
    ]
    return f"| `{method}` | {' | '.join(shown)} |"


def ways_beyond_the_paper() -> list[str]:
    others = max(mean("mnist", "0.1", method=method) for method in FROM_ROWS)
    return [
        "at ε = 0.1, 1, 5 and 10:",
        *map(bought, (*FROM_ROWS[1:], "moments")),
        (
            f"At ε = 0.1 moments have {four('0.1', method='moments')}, and no other way has "
            f"more than {others:.1f} on MNIST"
        ),
    ]


def correction() -> list[str]:
    adds = {
        (name, epsilon): mean(name, epsilon, method="corrected")
        - mean(name, epsilon, method="linear")
        for name, epsilon in product(PAPER_DATASETS, EPSILONS)
    }
    most = [(name, "1") for name in ("mnist", "cifar10", "svhn")]
    most += [("svhn", "5"), ("imdb", "0.1")]
    by = [f"{adds[one]:.1f}" for one in most]
    rest = max(adds[one] for one in adds if one not in most)
    worse, linear = (mean("svhn", "0.1", method=method) for method in ("corrected", "linear"))
    assert worse < linear
    return [
        (
            f"adds {listed(by[:3])} points at ε = 1 on MNIST, CIFAR-10 and SVHN, "
            f"{by[3]} on SVHN at ε = 5"
        ),
        f"and {by[4]} on IMDB at ε = 0.1. Elsewhere it adds at most {ceiling(rest)}.",
        f"At ε = 0.1 it makes SVHN worse, {worse:.1f} against {linear:.1f}.",
    ]


def shrinkage() -> list[str]:
    found = {
        (name, epsilon): seeds(name, epsilon, method="shrunk")
        for name, epsilon in product(PAPER_DATASETS, EPSILONS)
    }
    # The same numbers at different noise: nothing of what was released is in the head.
    assert found["cifar10", "0.1"] == found["cifar10", "1"] == found["cifar10", "5"]
    assert found["imdb", "0.1"] == found["imdb", "1"]
    assert found["cifar10", "5"] != found["cifar10", "10"]
    lucky, *others = zip(*(found["svhn", epsilon] for epsilon in EPSILONS), strict=True)
    assert {round(one, 3) for seed in others for one in seed} == {19.587}
    for name in ("cifar10", "imdb"):
        assert fmean(found[name, "10"]) < mean(name, "10")
    return [
        "On CIFAR-10 the accuracy of each seed is the same at ε = 0.1, 1 and 5,",
        "on IMDB at ε = 0.1 and 1:",
        f"The {fmean(found['cifar10', '1']):.1f} and {fmean(found['imdb', '1']):.1f} come from",
        f"one seed has between {min(lucky):.1f} and {max(lucky):.1f}",
        f"at most {max(fmean(found['mnist', epsilon]) for epsilon in EPSILONS):.1f}.",
        (
            f"at ε = 10, it has {fmean(found['cifar10', '10']):.1f} on CIFAR-10 and "
            f"{fmean(found['imdb', '10']):.1f} on IMDB"
        ),
    ]


def without_a_public_part() -> list[str]:
    for (dataset, epsilon, network, *_), rows in CELLS.items():
        if network == "random" and epsilon and accuracies(rows):
            assert fmean(accuracies(rows)) < alone(dataset)
    for name in PAPER_DATASETS:
        sums = mean(name, "0.1", network="random", method="moments")
        assert sums > mean(name, "10", network="random")
    early, later = (four(one, network="random", method="moments") for one in ("0.1", "1"))
    return [
        (
            f"has {four(network='random', mechanism='none')} without noise, and "
            f"{four('10', network='random')} at ε = 10"
        ),
        f"at ε = 0.1 already, {early}, and {later} at ε = 1",
    ]


def clipping() -> list[str]:
    where = (("imdb", "1"), ("cifar10", "5"), ("mnist", "10"))
    loose = [f"{mean(*one, clip='tanh'):.1f}" for one in where]
    tight = [f"{mean(*one):.1f}" for one in where]
    for name, epsilon in product(PAPER_DATASETS, ("5", "10")):
        assert mean(name, epsilon, clip="tanh") < mean(name, epsilon) + 0.1
    lost = {
        (network, name): mean(name, network=network, clip="tanh", mechanism="none")
        - mean(name, network=network, mechanism="none")
        for network, name in product(("public", "random"), PAPER_DATASETS)
    }
    most = max(abs(lost["public", name]) for name in PAPER_DATASETS)
    assert max(lost, key=lambda one: lost[one]) == ("random", "cifar10")
    return [
        f"{loose[0]} instead of {tight[0]} on IMDB at ε = 1",
        f"{loose[1]} instead of {tight[1]} on CIFAR-10 at ε = 5",
        f"{loose[2]} instead of {tight[2]} on MNIST at ε = 10",
        f"by more than {ceiling(most)} points",
        f"costs the random network {lost['random', 'cifar10']:.1f} points on CIFAR-10",
    ]


def gaussian_mechanisms() -> list[str]:
    shared = [row for row in ROWS if (row.mechanism, row.method) == ("imgm", "rows")]
    keys = ("dataset", "network", "protocol", "clip", "epsilon", "seed", "noise_multiplier", "run")
    twins = [row for row in ROWS if row.mechanism == "analytic"]
    assert len(shared) == 4 * 2 * 2 * 2 * 4 * 3
    assert {tuple(getattr(row, key) for key in keys) for row in shared} == {
        tuple(getattr(row, key) for key in keys) for row in twins
    }
    classic = [row for row in ROWS if row.mechanism == "classic" and row.accuracy]
    assert {(row.dataset, row.protocol, row.epsilon) for row in classic} == {
        *product(PAPER_DATASETS, ["exact"], ("0.1", "1")),
        *product(("svhn", "imdb"), ["paper"], ["0.01"]),
    }
    times, true = [], []
    for epsilon in ("0.1", "1"):  # the noise depends on no data set
        row, imgm = (cell("mnist", epsilon, mechanism=name)[0] for name in ("classic", "imgm"))
        times.append(f"{float(row.noise_multiplier) / float(imgm.noise_multiplier):.2f}")
        true.append(shown_up(float(row.true_epsilon), 3))
    return [
        f"needs {times[0]} times their noise at ε = 0.1 and {times[1]} times at ε = 1",
        f"really gives {listed(true)}.",
        f"At ε = 1 it has {four('1', mechanism='classic')}, and at ε = 5 and 10 it does not",
        "on SVHN and IMDB at a claimed ε = 0.01 only",
    ]


def mvg() -> list[str]:
    found = [row for row in ROWS if row.mechanism == "mvg"]
    one_class = []
    for name in PAPER_DATASETS[1:]:
        (only,) = set(accuracies(row for row in found if row.dataset == name))
        assert abs(only - constant(name)) < 0.01
        one_class.append(f"{only:.1f}")
    axes = (("public", "random"), ("tanh", "public"))
    cases = [*product(["exact"], EPSILONS), *product(["paper"], CLAIMS)]
    mnist = [
        mean("mnist", epsilon, mechanism="mvg", protocol=protocol, network=network, clip=clip)
        for (protocol, epsilon), network, clip in product(cases, *axes)
    ]
    exact = [row for row in found if row.protocol == "exact"]
    least = min(float(row.noise_multiplier) for row in exact)
    true = max(float(row.true_epsilon) for row in exact)
    assert true == max(float(row.true_epsilon) for row in exact if row.epsilon == "10")
    return [
        f"{listed(one_class)} in every cell of both",
        f"between {min(mnist):.1f} and {max(mnist):.1f}",
        f"at least {100 * int(least / 100):,} times C",
        f"what it claims as ε = 10 is in truth at most {shown_up(true, 3)}",
    ]


def protocol_of_the_paper() -> list[str]:
    claimed = [row for row in ROWS if (row.protocol, row.mechanism) == ("paper", "imgm")]
    assert min(float(row.true_epsilon) / float(row.epsilon) for row in claimed) > 1
    spent = {}
    for epsilon in CLAIMS:
        shown = []
        for name in PAPER_DATASETS:
            rows = [row for row in claimed if (row.dataset, row.epsilon) == (name, epsilon)]
            (true,) = {shown_up(float(row.true_epsilon), 3) for row in rows}
            shown.append(true)
        spent[epsilon] = listed(shown)
    accuracy = [four(epsilon, protocol="paper") for epsilon in CLAIMS]
    above = {name: above_public(name, "1", protocol="paper") for name in PAPER_DATASETS}
    assert max(above["mnist"], above["svhn"]) < 0
    (gain,) = {f"{above[name]:.1f}" for name in ("cifar10", "imdb")}
    return [
        f"A claimed ε = 1 really spends {spent['1']}, a claimed ε = 0.5 {spent['0.5']},",
        f"a claimed ε = 0.1 {spent['0.1']}, and a claimed ε = 0.01 {spent['0.01']}.",
        f"The accuracy is {accuracy[0]} at a claimed ε = 0.01, {accuracy[1]} at 0.1,",
        f"{accuracy[2]} at 0.5, and {accuracy[3]} at 1. Even at 1 it is below",
        f"and {gain} points above it on CIFAR-10 and IMDB",
    ]


@pytest.fixture(scope="module")
def findings() -> str:
    return findings_under("Findings of Type II")


PARTS = [
    little_to_gain,
    head_on_noisy_rows,
    moments_beat_the_public_part,
    released_rows_do_not,
    ways_beyond_the_paper,
    correction,
    shrinkage,
    without_a_public_part,
    clipping,
    gaussian_mechanisms,
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
