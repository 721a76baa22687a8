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
    CLAIMS,
    EPSILONS,
    FROM_ROWS,
    ROWS,
    above_public,
    alone,
    ceiling,
    cell,
    constant,
    four,
    gains,
    listed,
    mean,
    one_class,
    seeds,
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
    assert mean("mnist", method="linear", mechanism="none") < alone("mnist")
    for name in PAPER_DATASETS:
        assert max(gain for dataset, gain in with_noise() if dataset == name) < most[name]
    return [
        f"The public part alone gives {four(mechanism='public')}.",
        (
            f"*without noise* has {four(mechanism='none')}, and a linear head on them "
            f"{four(method='linear', mechanism='none')}."
        ),
        f"The better of the two is {listed([f'{one:.1f}' for one in most.values()])} points above",
    ]


def head_on_noisy_rows() -> list[str]:
    for name, epsilon in product(PAPER_DATASETS, EPSILONS):
        assert min(gains(name, epsilon)) < 0
        assert (above_public(name, epsilon) > 0) == (name == "imdb" and epsilon != "0.1")
    assert max(above_public("imdb", epsilon) for epsilon in EPSILONS) < 0.05
    for name in PAPER_DATASETS[:3]:
        assert mean(name, "0.1") <= constant(name)
    *rest, lucky = sorted(seeds("imdb", "0.1"))
    (usual,) = {f"{one:.1f}" for one in rest}
    return [
        "is above it at ε = 1, 5 and 10 by less than 0.05 points",
        f"At ε = 0.1 it has {four('0.1')}:",
        f"one seed has {lucky:.1f} and the others have {usual}.",
        f"At ε = 1 it has {four('1')}, at ε = 5 {four('5')}, and at ε = 10 {four('10')}.",
    ]


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
    small = [above["cifar10", epsilon] for epsilon in EPSILONS]
    assert small[-1] < small[0]
    svhn = [f"{above['svhn', epsilon]:.2f}" for epsilon in ("5", "10")]
    imdb = [f"{above['imdb', epsilon]:.2f}" for epsilon in ("1", "5", "10")]
    assert max(above["mnist", epsilon] for epsilon in EPSILONS) == above["mnist", "10"]
    return [
        f"on SVHN by {listed(svhn)} points at ε = 5 and 10",
        f"on IMDB by {listed(imdb)} points at ε = 1, 5 and 10",
        f"and on CIFAR-10 by {min(small):.2f} to {max(small):.2f} points at every epsilon",
        "less at ε = 10 than at ε = 0.1",
        f"by {-above['mnist', '1']:.1f} points at ε = 1 and {-above['mnist', '10']:.1f} at ε = 10",
    ]


def released_rows_do_not() -> list[str]:
    by = {
        one: gains(*one[:2], method=one[2]) for one in product(PAPER_DATASETS, EPSILONS, FROM_ROWS)
    }
    where = {*product(["cifar10"], ("5", "10"), ("linear", "corrected"))}
    assert {one for one in by if min(by[one]) > 0} == where
    small = [fmean(by[one]) for one in where]
    most = max(
        gain for method in FROM_ROWS for _, gain in with_noise(protocol="exact", method=method)
    )
    best = {
        name: max(above_public(name, "10", method=method) for method in FROM_ROWS)
        for name in ("mnist", "svhn")
    }
    return [
        f"on CIFAR-10 at ε = 5 and 10, by {min(small):.2f} to {max(small):.2f} points,",
        f"more than {ceiling(most)} points",
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
        one: mean(*one[:2], method="corrected", network=one[2])
        - mean(*one[:2], method="linear", network=one[2])
        for one in product(PAPER_DATASETS, EPSILONS, ("public", "random"))
    }
    most = [(name, "1", "public") for name in ("mnist", "cifar10", "svhn")]
    most += [("svhn", "5", "public"), ("imdb", "0.1", "public")]
    by = [f"{adds[one]:.1f}" for one in most]
    rest = max(adds[one] for one in adds if one not in most and one[2] == "public")
    worse, linear = (mean("svhn", "0.1", method=method) for method in ("corrected", "linear"))
    assert worse < linear
    lost = [-adds["svhn", epsilon, "random"] for epsilon in EPSILONS]
    assert min(lost) > 0
    return [
        (
            f"adds {listed(by[:3])} points at ε = 1 on MNIST, CIFAR-10 and SVHN, "
            f"{by[3]} on SVHN at ε = 5"
        ),
        f"and {by[4]} on IMDB at ε = 0.1. Elsewhere it adds at most {ceiling(rest)}.",
        f"At ε = 0.1 it makes SVHN worse, {worse:.1f} against {linear:.1f}.",
        f"at every epsilon, by {min(lost):.1f} to {max(lost):.1f} points.",
    ]


def shrinkage() -> list[str]:
    found = {
        (name, epsilon): seeds(name, epsilon, method="shrunk")
        for name, epsilon in product(PAPER_DATASETS, EPSILONS)
    }
    constants = {
        *product(["cifar10"], ("0.1", "1", "5")),
        *product(["svhn"], EPSILONS),
        *product(["imdb"], ("0.1", "1")),
    }
    assert {one for one in found if one_class(one[0], found[one])} == constants
    shown = [f"{constant(name):.1f}" for name in PAPER_DATASETS[1:]]
    for name, epsilon, network in product(PAPER_DATASETS, EPSILONS, ("public", "random")):
        shrunk = mean(name, epsilon, method="shrunk", network=network)
        assert shrunk <= max(mean(name, epsilon, network=network), constant(name))
    assert found["mnist", "0.1"] == found["mnist", "1"]
    few = [f"{fmean(found['mnist', epsilon]):.1f}" for epsilon in ("1", "5", "10")]
    assert fmean(found["mnist", "1"]) < constant("mnist")
    late = [
        [f"{fmean(found[name, '10']):.1f}", f"{mean(name, '10'):.1f}"]
        for name in ("mnist", "cifar10")
    ]
    near = [mean("imdb", epsilon) - fmean(found["imdb", epsilon]) for epsilon in ("5", "10")]
    assert min(near) > 0
    return [
        f"{shown[0]} on CIFAR-10 up to ε = 5,",
        f"{shown[1]} on SVHN at every epsilon, and {shown[2]} on IMDB up to ε = 1.",
        (
            f"On MNIST it has {few[0]} at ε = 0.1 and 1, less than that class, {few[1]} at ε = 5 "
            f"and {few[2]} at ε = 10."
        ),
        (
            f"At ε = 10 the rows as they are have {late[0][1]} against {late[0][0]} on MNIST and "
            f"{late[1][1]} against {late[1][0]} on CIFAR-10."
        ),
        f"on IMDB at ε = 5 and 10, less than {ceiling(max(near))} points below them.",
    ]


def on_the_random_network() -> list[str]:
    assert max(gain for _, gain in with_noise(network="random")) < 0
    for name in PAPER_DATASETS:
        early, later = (mean(name, one, network="random", method="moments") for one in ("0.1", "1"))
        assert early > mean(name, "10", network="random")
        assert later > max(mean(name, "10", network="random", method=one) for one in FROM_ROWS)
    sums = [four(one, network="random", method="moments") for one in ("0.1", "1")]
    return [
        (
            f"has {four(network='random', mechanism='none')} without noise, and "
            f"{four('10', network='random')} at ε = 10"
        ),
        f"at ε = 0.1 already, {sums[0]}, and at ε = 1, with {sums[1]}, more than every",
        "on rows has at ε = 10.",
    ]


def without_any_public_record() -> list[str]:
    cells = [one for one in CELLS if one[2] == "random" and one[4] == "tanh"]
    assert {one[5] for one in cells} == {"rows"}
    above = {
        (name, epsilon): mean(name, epsilon, network="random", clip="tanh") - constant(name)
        for name, epsilon in product(PAPER_DATASETS, EPSILONS)
    }
    assert max(gain for (name, _), gain in above.items() if name != "mnist") < 0.3
    wanted = {"network": "random", "clip": "tanh"}
    return [
        f"It has {four(mechanism='none', **wanted)} without noise, but {four('10', **wanted)}",
        "at ε = 10:",
        f"never more than {ceiling(max(above.values()))} points above a constant answer",
    ]


def clipping() -> list[str]:
    where = (("imdb", "1"), ("cifar10", "5"), ("mnist", "10"))
    loose = [f"{mean(*one, clip='tanh'):.1f}" for one in where]
    tight = [f"{mean(*one):.1f}" for one in where]
    for name, epsilon in product(PAPER_DATASETS, EPSILONS):
        if mean(name, epsilon, clip="tanh") > mean(name, epsilon):
            assert (name, epsilon) == ("cifar10", "1")
    assert mean("cifar10", "1") < constant("cifar10") < mean("cifar10", "1", clip="tanh")
    lost = {
        (network, name): mean(name, network=network, clip="tanh", mechanism="none")
        - mean(name, network=network, mechanism="none")
        for network, name in product(("public", "random"), PAPER_DATASETS)
    }
    most = max(abs(lost["public", name]) for name in PAPER_DATASETS)
    assert max(lost, key=lambda one: lost[one]) == ("random", "cifar10")
    assert min(lost, key=lambda one: lost[one]) == ("random", "imdb")
    unlearned = [f"{mean('cifar10', '1', clip=one):.1f}" for one in ("tanh", "public")]
    return [
        f"{loose[0]} instead of {tight[0]} on IMDB at ε = 1",
        f"{loose[1]} instead of {tight[1]} on CIFAR-10 at ε = 5",
        f"{loose[2]} instead of {tight[2]} on MNIST at ε = 10",
        f"on CIFAR-10 at ε = 1, {unlearned[0]} against {unlearned[1]}",
        f"by more than {ceiling(most)} points",
        f"costs the random network {lost['random', 'cifar10']:.1f} points on CIFAR-10",
        f"gives it {-lost['random', 'imdb']:.1f} points on IMDB",
    ]


def gaussian_mechanisms() -> list[str]:
    shared = [row for row in ROWS if (row.mechanism, row.method) == ("imgm", "rows")]
    keys = (
        "dataset",
        "network",
        "protocol",
        "clip",
        "epsilon",
        "seed",
        "noise_multiplier",
        "accuracy",
        "run",
    )
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
    for name in PAPER_DATASETS[1:]:
        assert one_class(name, accuracies(row for row in found if row.dataset == name))
    mnist = []
    for seed in ("0", "1", "2"):
        of_seed = [row for row in found if (row.dataset, row.seed) == ("mnist", seed)]
        (only,) = set(accuracies(of_seed))
        assert only < constant("mnist")
        mnist.append(f"{only:.1f}")
    exact = [row for row in found if row.protocol == "exact"]
    least = min(float(row.noise_multiplier) for row in exact)
    true = max(float(row.true_epsilon) for row in exact)
    assert true == max(float(row.true_epsilon) for row in exact if row.epsilon == "10")
    return [
        f"{listed([f'{constant(name):.1f}' for name in PAPER_DATASETS[1:]])} in every cell of both",
        f"On MNIST its seeds have {listed(mnist)} in every cell",
        f"at least {100 * int(least / 100):,} times C",
        f"what it claims as ε = 10 is in truth at most {shown_up(true, 3)}",
    ]


def protocol_of_the_paper() -> list[str]:
    run = [row for row in ROWS if row.protocol == "paper" and row.accuracy]
    for row in run:
        false = float(row.true_epsilon) > float(row.epsilon)
        assert false == (row.mechanism != "mvg")
    claimed = [row for row in run if row.mechanism == "imgm"]
    spent = {}
    for epsilon in CLAIMS:
        shown = []
        for name in PAPER_DATASETS:
            rows = [row for row in claimed if (row.dataset, row.epsilon) == (name, epsilon)]
            (true,) = {shown_up(float(row.true_epsilon), 3) for row in rows}
            shown.append(true)
        spent[epsilon] = listed(shown)
    accuracy = [four(epsilon, protocol="paper") for epsilon in CLAIMS]
    above = {name: gains(name, "1", protocol="paper") for name in PAPER_DATASETS}
    assert max(above["mnist"] + above["svhn"]) < 0 < min(above["cifar10"] + above["imdb"])
    by = [f"{fmean(above[name]):.1f}" for name in ("cifar10", "imdb")]
    return [
        f"A claimed ε = 1 really spends {spent['1']}, a claimed ε = 0.5 {spent['0.5']},",
        f"a claimed ε = 0.1 {spent['0.1']}, and a claimed ε = 0.01 {spent['0.01']}.",
        f"The accuracy is {accuracy[0]} at a claimed ε = 0.01, {accuracy[1]} at 0.1,",
        f"{accuracy[2]} at 0.5, and {accuracy[3]} at 1. Even at 1 it is below",
        f"and only {by[0]} points above it on CIFAR-10 and {by[1]} on IMDB",
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
    on_the_random_network,
    without_any_public_record,
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
