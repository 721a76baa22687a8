"""Every number in the findings of Type I is computed here from the table, and none is left over."""

import math
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from matrixdp_experiments.gradients.cells import grid
from matrixdp_experiments.gradients.settings import SETTINGS
from matrixdp_experiments.report.page_text import accuracies
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
    cell,
    commonest,
    learned,
    loss,
    mean,
    multiplier,
    ratio,
    ratios,
    shown,
    true,
)

ROOT = Path(__file__).resolve().parents[3]
# Digits that are part of a name, not of an answer.
NAMES = r"Theorem 3\.4|Theorem 3|CIFAR-10|VGG-16"


def without_noise() -> list[str]:
    goals = {"mnist": 98.5, "adult": 84.5, "cora": 80, "cifar10": 80, "svhn": 90}
    assert all(mean(name, "none") >= goal for name, goal in goals.items())
    mnist, adult, cora, cifar10, svhn = (shown(name, "none") for name in goals)
    return [
        (
            f"{mnist} on MNIST, {adult} on Adult and {cora} on Cora. The goals were "
            f"{goals['mnist']}, {goals['adult']} and {goals['cora']}."
        ),
        (
            f"on CIFAR-10 and SVHN reach {cifar10} and {svhn}; the goals were {goals['cifar10']} "
            f"and {goals['svhn']}."
        ),
    ]


def cost_of_privacy() -> list[str]:
    lost = [mean(name, "none") - mean(name, "imgm-pld", "1") for name in DATASETS]
    for name in ("cora", "svhn"):
        assert mean(name, "imgm-pld", "0.01") < 100 * SETTINGS[name].commonest_class
    low, high = (mean("adult", "imgm-pld", one) for one in ("0.5", "1"))
    assert abs(low - high) < 0.05
    return [
        (
            "At ε = 1 `imgm-pld` loses {:.1f} points on MNIST, {:.1f} on Adult, {:.1f} on Cora, "
            "{:.1f} on CIFAR-10 and {:.1f} on SVHN"
        ).format(*lost),
        (
            f"At ε = 0.1 it has {shown('mnist', 'imgm-pld', '0.1')} on MNIST and "
            f"{shown('adult', 'imgm-pld', '0.1')} on Adult, but only "
            f"{shown('cifar10', 'imgm-pld', '0.1')} on CIFAR-10 and "
            f"{shown('svhn', 'imgm-pld', '0.1')} on SVHN."
        ),
        (
            f"At ε = 0.01 {shown('mnist', 'imgm-pld', '0.01')} on MNIST and "
            f"{shown('adult', 'imgm-pld', '0.01')} on Adult are left."
        ),
        (
            f"{shown('cora', 'imgm-pld', '0.01')} on Cora and "
            f"{shown('svhn', 'imgm-pld', '0.01')} on SVHN are below"
        ),
        f"most frequent class would have, {commonest('cora')} and {commonest('svhn')}.",
        f"On Adult ε = 1 gives the same {shown('adult', 'imgm-pld', '1')} as ε = 0.5",
    ]


def nothing_learned_on_cifar10() -> list[str]:
    level = 100 * SETTINGS["cifar10"].commonest_class
    steps = {name: SETTINGS[name].steps_of("test") for name in DATASETS}
    assert sorted(steps, key=lambda name: steps[name])[:2] == ["cora", "cifar10"]
    cells = list(product(["cifar10"], (*SUBSAMPLED, *AMPLIFIED, *IGNORING), EPSILONS))
    assert {where for where in cells if abs(mean(*where) - level) < 0.8} >= set(IDLE)
    assert len(IDLE) > len(cells) / 2
    for rules, epsilons in ((SUBSAMPLED, EPSILONS[1:]), (AMPLIFIED, EPSILONS[2:])):
        assert min(mean("cifar10", *where) for where in product(rules, epsilons)) > level + 5
    for rule in AMPLIFIED:
        assert mean("cifar10", rule, "0.1") < level + 2
    return [
        f"A constant answer has {commonest('cifar10')} there",
        "stay within 0.8 points of that at every epsilon",
        f"all rules do at ε = 0.01: {len(IDLE)} of {len(cells)} cells",
        "From ε = 0.1 up the three accountants of subsampled steps do learn",
        "amplification with Theorem 3.4 does from ε = 0.5 up",
    ]


def theorem_3_against_sampling() -> list[str]:
    rule = "imgm-theorem-3"
    times = {name: ratio(rule, "imgm-pld", name, "1") for name in DATASETS}
    worst = max(EVERYWHERE, key=lambda where: loss(rule, *where))
    assert worst == ("mnist", "0.1")
    assert min(loss(rule, *where) for where in learned(rule, "imgm-pld")) > 0
    lost = [f"{loss(rule, name, '1'):.1f}" for name in DATASETS]
    rate = 100 * SETTINGS["cora"].lot_size / SETTINGS["cora"].records
    return [
        (
            f"At ε = 1 it asks for {times['mnist']:.0f} times the noise of the subsampled PLD on "
            f"MNIST, {times['adult']:.0f} times on Adult, {times['cifar10']:.0f} times on "
            f"CIFAR-10, {times['svhn']:.0f} times on SVHN and {times['cora']:.1f} times on Cora, "
            f"where a step sees {rate:.1f} per cent"
        ),
        (
            f"at ε = 1 is {lost[0]} points lower on MNIST, {lost[1]} on Adult, {lost[2]} on Cora, "
            f"{lost[3]} on CIFAR-10 and {lost[4]} on SVHN"
        ),
        f"{loss(rule, *worst):.1f} points on MNIST at ε = 0.1",
        (
            f"What Theorem 3 claims as ε = 1 is in truth {true('mnist', rule, '1')} on MNIST, "
            f"{true('adult', rule, '1')} on Adult, {true('cora', rule, '1')} on Cora, "
            f"{true('cifar10', rule, '1')} on CIFAR-10 and {true('svhn', rule, '1')} on SVHN"
        ),
    ]


def theorem_3_among_rules_without_sampling() -> list[str]:
    rule, found = "imgm-theorem-3", ratios("analytic", "imgm-theorem-3")
    assert min(ratios("classic", rule) + ratios("mvg", rule)) > min(found)
    for where in learned(rule, "analytic"):
        assert loss("analytic", *where, better=rule) > 0
    # On Cora alone Theorem 3 is above one rule that credits sampling.
    for name, epsilon in product(DATASETS, EPSILONS[1:]):
        above = mean(name, rule, epsilon) > mean(name, "classic-amplified", epsilon)
        assert above == (name == "cora") or (name, epsilon) == ("cifar10", "0.1")
    ours, theirs = (
        "{}, {}, {} and {}".format(*(shown("svhn", name, epsilon) for epsilon in EPSILONS))
        for name in (rule, "analytic")
    )
    return [
        f"{min(found):.1f} to {max(found):.1f} times the noise of Theorem 3",
        (
            f"At ε = 1 Theorem 3 has {shown('mnist', rule, '1')} against "
            f"{shown('mnist', 'analytic', '1')} on MNIST"
        ),
        f"On SVHN it has {ours} at the four epsilons against {theirs}, all of no use",
        (
            f"at ε = 1 it has {shown('cora', rule, '1')} against "
            f"{shown('cora', 'analytic-amplified', '1')} for the analytic and "
            f"{shown('cora', 'classic-amplified', '1')} for the classic Gaussian"
        ),
    ]


def other_accountants() -> list[str]:
    rdp, moments = (
        [100 * (one - 1) for one in ratios(name, "imgm-pld")] for name in ("rdp", "moments")
    )
    most = {name: max(loss(name, *where) for where in EVERYWHERE) for name in ("rdp", "moments")}
    assert all(abs(loss("rdp", *where)) <= most["rdp"] for where in EVERYWHERE)
    assert max(EVERYWHERE, key=lambda where: loss("moments", *where)) == ("mnist", "0.01")
    for name in ("cifar10", "svhn"):
        assert max(EPSILONS, key=lambda epsilon: loss("moments", name, epsilon)) == "0.5"
    cifar10, svhn = (
        [shown(name, rule, "1") for rule in SUBSAMPLED] for name in ("cifar10", "svhn")
    )
    for name in DATASETS:
        assert true(name, "rdp", "1") == true("mnist", "rdp", "1")
        assert true(name, "moments", "1") in {"0.74", "0.75"}
    return [
        f"{min(rdp):.0f} to {max(rdp):.0f} per cent more noise",
        f"within {math.ceil(10 * most['rdp']) / 10} points",
        f"{min(moments):.0f} to {max(moments):.0f} per cent more noise",
        f"{most['moments']:.1f} points, on MNIST at ε = 0.01",
        (
            f"on CIFAR-10 it is {loss('moments', 'cifar10', '0.5'):.1f} and on SVHN "
            f"{loss('moments', 'svhn', '0.5'):.1f} points, at ε = 0.5"
        ),
        "At ε = 1 the three have {}, {} and {} on CIFAR-10".format(*cifar10),
        "and {}, {} and {} on SVHN".format(*svhn),
        (
            f"What they claim as ε = 1 is in truth {true('mnist', 'rdp', '1')} by RDP, and "
            f"{true('adult', 'moments', '1')} to {true('mnist', 'moments', '1')} by the moments"
        ),
    ]


def classic() -> list[str]:
    ignored = ratios("classic", "analytic")
    credited = ratios("classic-amplified", "analytic-amplified")
    assert not any("does not apply" in row.note for row in ROWS)
    for where in learned("classic", "analytic"):
        assert loss("classic", *where, better="analytic") > 0
    pairs, without = (
        [f"{shown(name, ours, '1')} against {shown(name, theirs, '1')}" for name in DATASETS]
        for ours, theirs in (("classic-amplified", "analytic-amplified"), ("classic", "analytic"))
    )
    return [
        (
            f"{min(ignored):.2f} to {max(ignored):.2f} times the noise of the analytic one without "
            f"amplification, and {min(credited):.2f} to {max(credited):.2f} times with it"
        ),
        (
            f"its accuracy at ε = 1 is {pairs[0]} on MNIST, {pairs[1]} on Adult, {pairs[2]} on "
            f"Cora, {pairs[3]} on CIFAR-10 and {pairs[4]} on SVHN"
        ),
        (
            f"lower, too, in every cell: at ε = 1 {without[0]} on MNIST, {without[1]} on Adult, "
            f"{without[2]} on Cora and {without[4]} on SVHN"
        ),
    ]


def mvg() -> list[str]:
    for name in DATASETS:
        found = [mean(name, "mvg", epsilon) for epsilon in EPSILONS]
        assert max(found) - min(found) < 0.1
        assert max(found) <= 100 * SETTINGS[name].commonest_class
        assert true(name, "mvg", "0.01") == "0"
    least = min(
        multiplier(name, "mvg", epsilon) / SETTINGS[name].lot_size for name, epsilon in EVERYWHERE
    )
    for name in DATASETS:
        assert (true(name, "mvg", "1") == "0") == (name != "cora")
    cora, spread = (
        accuracies(row for epsilon in EPSILONS for row in cell(name, "mvg", epsilon))
        for name in ("cora", "adult")
    )
    assert max(cora) < 100 * SETTINGS["cora"].commonest_class
    assert max(spread) < 100 * SETTINGS["adult"].commonest_class
    others = [rule for rule in IGNORING if rule != "mvg"]
    for name, rule in product(REPEATED, others):
        assert mean(name, rule, "0.01") < mean(name, "mvg", "0.01")
    for rule, epsilon in product((*SUBSAMPLED, *AMPLIFIED, *others), EPSILONS):
        assert mean("svhn", "mvg", epsilon) < mean("svhn", rule, epsilon)
    return [
        "within 0.1 points",
        (
            f"{shown('mnist', 'mvg', '1')} on MNIST, {shown('adult', 'mvg', '1')} on Adult, "
            f"{shown('cora', 'mvg', '1')} on Cora, {shown('cifar10', 'mvg', '1')} on CIFAR-10 and "
            f"{shown('svhn', 'mvg', '1')} on SVHN"
        ),
        f"at least {int(least)} times L·C",
        f"What it claims as ε = 1 is in truth 0, and on Cora {true('cora', 'mvg', '1')}",
        "above all other rules that ignore sampling on MNIST, Adult and Cora at ε = 0.01",
        "on SVHN it is below all rules at every epsilon",
        f"every seed is below it, on Adult from {min(spread):.1f} to {max(spread):.1f}",
    ]


def below_the_commonest_class() -> list[str]:
    level = 100 * SETTINGS["adult"].commonest_class
    for rule, epsilon in product(IGNORING, EPSILONS):
        above = mean("adult", rule, epsilon) > level
        assert above == (rule == "imgm-theorem-3" and epsilon in {"0.5", "1"})
    for rule in AMPLIFIED:
        assert mean("adult", rule, "0.01") < level
    return [
        f"has {commonest('adult')} on Adult",
        (
            "only those of Theorem 3 at ε = 0.5 and ε = 1 are above that, with "
            f"{shown('adult', 'imgm-theorem-3', '0.5')} and {shown('adult', 'imgm-theorem-3', '1')}"
        ),
        "Amplification with Theorem 3.4 is below it at ε = 0.01",
    ]


def below_the_commonest_class_of_svhn() -> list[str]:
    level = 100 * SETTINGS["svhn"].commonest_class
    from_where = dict.fromkeys(SUBSAMPLED, 0.1) | dict.fromkeys(AMPLIFIED, 0.5)
    cells = list(product((*SUBSAMPLED, *AMPLIFIED, *IGNORING), EPSILONS))
    below = [where for where in cells if mean("svhn", *where) < level]
    for rule, epsilon in cells:
        above = (rule, epsilon) not in below
        assert above == (float(epsilon) >= from_where.get(rule, math.inf))
    best = max(mean("svhn", rule, "1") for rule in AMPLIFIED)
    ignoring = [shown("svhn", rule, "1") for rule in IGNORING]
    return [
        f"{len(below)} of {len(cells)}, where a constant answer has {commonest('svhn')}.",
        "The three accountants of subsampled steps are below it at ε = 0.01",
        f"is below it up to ε = 0.1, and has at most {best:.1f} at ε = 1",
        "All rules that ignore sampling are below it at every epsilon.",
        (
            "At ε = 1 Theorem 3 has {}, the analytic Gaussian {}, the classic one {} and MVG {}."
        ).format(*ignoring),
    ]


def what_was_not_run() -> list[str]:
    for name in DATASETS:
        made = {(row.mechanism, row.epsilon, row.seed) for row in ROWS if row.dataset == name}
        seeds = (0, 1, 2) if name in REPEATED else (0,)
        assert seeds == SETTINGS[name].seeds
        assert len(made) == len(grid([name])) == sum(row.dataset == name for row in ROWS)
        assert all(row.accuracy for row in ROWS if row.dataset == name)
    cells = [len(grid([name])) for name in ("cifar10", "svhn")]
    return [
        "All {} cells of CIFAR-10 and all {} of SVHN were run".format(*cells),
        "but with seed 0 alone",
    ]


def test_every_run_with_mvg_has_the_projection() -> None:
    with_mvg = [one.run for one in OUTCOMES.values() if one.run.layers]
    assert {run.dataset for run in with_mvg} == set(DATASETS)
    assert {run.sum_norm == run.lot_size * (run.clip_norm or 0.0) for run in with_mvg} == {True}


def test_only_vgg_16_was_trained_in_bfloat16() -> None:
    page = (ROOT / "docs" / "experiments.md").read_text()
    assert "all models multiply in TF32, except VGG-16, which multiplies in bfloat16" in page
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
    return findings_under("Findings")


PARTS = [
    without_noise,
    cost_of_privacy,
    nothing_learned_on_cifar10,
    theorem_3_against_sampling,
    theorem_3_among_rules_without_sampling,
    other_accountants,
    classic,
    mvg,
    below_the_commonest_class,
    below_the_commonest_class_of_svhn,
    what_was_not_run,
]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_findings_are_those_of_the_table(part: Callable[[], list[str]], findings: str) -> None:
    for phrase in part():
        assert phrase in findings


def test_no_number_of_the_findings_is_unchecked(findings: str) -> None:
    phrases = [phrase for part in PARTS for phrase in part()]
    assert not unchecked_numbers(findings, phrases, NAMES)
