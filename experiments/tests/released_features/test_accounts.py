"""The noise of released features and its true epsilon, against computations of another origin."""

import math

import numpy as np
import pytest
from scipy import optimize, stats

from matrixdp.errors import InvalidParameterError
from matrixdp_experiments.released_features.accounts import (
    ReleaseProtocol,
    block_sizes,
    budget_of,
    moments_account,
    rows_account,
)
from matrixdp_experiments.released_features.settings import FEATURE_SETTINGS

MNIST, IMDB = FEATURE_SETTINGS["mnist"], FEATURE_SETTINGS["imdb"]


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return the textbook privacy curve, in logs where it would overflow."""
    second = math.exp(epsilon + float(stats.norm.logcdf(-mu / 2 - epsilon / mu)))
    return float(stats.norm.cdf(mu / 2 - epsilon / mu)) - second


def bound(epsilon: float, delta: float) -> float:
    return float(optimize.brentq(lambda mu: gaussian_delta(mu, epsilon) - delta, 1e-6, 100.0))


def true_epsilon(scale: float) -> float:
    return float(optimize.brentq(lambda one: gaussian_delta(2 / scale, one) - 1e-5, 1e-9, 1e4))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0, 10.0])
def test_exact_is_twice_the_clip_norm_over_the_bound(epsilon: float) -> None:
    found = rows_account(MNIST, "imgm", "exact", epsilon)
    assert found.noise_multiplier == pytest.approx(2 / bound(epsilon, 1e-5), rel=1e-7)
    assert found.true_epsilon == pytest.approx(epsilon, rel=1e-7)
    assert found.true_epsilon is not None
    assert found.true_epsilon <= epsilon  # the scale was rounded up


@pytest.mark.parametrize(("dataset", "rate"), [("mnist", 256 / 55_000), ("svhn", 1024 / 73_257)])
@pytest.mark.parametrize("epsilon", [0.01, 1.0])
def test_the_paper_divides_its_claim_by_the_sampling_rate(
    dataset: str, rate: float, epsilon: float
) -> None:
    found = rows_account(FEATURE_SETTINGS[dataset], "imgm", "paper", epsilon)
    scale = 2 / bound(epsilon / rate, 1e-5 / rate)
    assert found.noise_multiplier == pytest.approx(scale, rel=1e-7)
    assert found.true_epsilon == pytest.approx(true_epsilon(scale), rel=1e-6)
    assert found.true_epsilon is not None
    assert found.true_epsilon > 10 * epsilon


def test_a_claimed_epsilon_of_1_spends_240_on_mnist() -> None:
    found = rows_account(MNIST, "analytic", "paper", 1.0)
    assert found.true_epsilon == pytest.approx(240.403, abs=1e-3)


@pytest.mark.parametrize("protocol", ["exact", "paper"])
def test_imgm_is_the_analytic_gaussian(protocol: ReleaseProtocol) -> None:
    one, other = (rows_account(IMDB, name, protocol, 0.5) for name in ("imgm", "analytic"))
    assert one == other


def test_the_classic_gaussian_where_it_applies() -> None:
    found = rows_account(MNIST, "classic", "exact", 0.1)
    scale = 2 * math.sqrt(2 * math.log(1.25e5)) / 0.1
    assert found.noise_multiplier == pytest.approx(scale, rel=1e-8)
    assert found.true_epsilon == pytest.approx(true_epsilon(scale), rel=1e-6)
    for refused in (
        rows_account(MNIST, "classic", "exact", 5.0),
        rows_account(MNIST, "classic", "paper", 0.01),
    ):
        assert (refused.noise_multiplier, refused.true_epsilon) == (None, None)
        assert refused.refusal is not None
        assert "at most 1" in refused.refusal
    assert rows_account(FEATURE_SETTINGS["svhn"], "classic", "paper", 0.01).refusal is None


def mvg_scale(rows: int, columns: int, epsilon: float, delta: float) -> float:
    """Return the scale of i.i.d. noise under MVG's theorem, for rows of norm 1."""
    size, gamma, sensitivity = min(rows, columns), math.sqrt(rows), 2.0
    harmonic = sum(1 / one for one in range(1, size + 1))
    halves = sum(1 / math.sqrt(one) for one in range(1, size + 1))
    squared = 2 * math.sqrt(-rows * columns * math.log(delta)) - 2 * math.log(delta)
    alpha = (harmonic + halves) * gamma**2 + 2 * harmonic * gamma * sensitivity
    beta = 2 * (rows * columns) ** 0.25 * harmonic * sensitivity
    beta *= math.sqrt(squared + rows * columns)
    allowed = (-beta + math.sqrt(beta**2 + 8 * alpha * epsilon)) ** 2 / (4 * alpha**2)
    # Both inverse covariances have equal singular values: the product of their norms is
    # sqrt(rows) / a * sqrt(columns) / b, with a b the variance of an entry.
    return math.sqrt(math.sqrt(rows * columns) / allowed)


def test_mvg_releases_blocks_with_each_record_in_one() -> None:
    # 49,500 rows in blocks of 256: 193 full ones, and one of 92.
    assert block_sizes(MNIST.private_records, 256) == (256, 92)
    found = rows_account(MNIST, "mvg", "exact", 1.0)
    scales = [mvg_scale(rows, 400, 1.0, 1e-5) for rows in (256, 92)]
    assert found.noise_multiplier == pytest.approx(scales[0], rel=1e-4)
    assert found.last_block_multiplier == pytest.approx(scales[1], rel=1e-4)
    assert found.true_epsilon == pytest.approx(0.0, abs=1e-3)
    imgm = rows_account(MNIST, "imgm", "exact", 1.0).noise_multiplier
    assert imgm is not None
    assert min(scales) > 1e4 * imgm


def test_joint_moments_change_by_what_their_noise_is_for() -> None:
    found = moments_account(MNIST, 1.0)
    assert found.noise_multiplier == pytest.approx(2**1.5 / bound(1.0, 1e-5), rel=2e-4)
    assert found.true_epsilon == pytest.approx(1.0, rel=1e-7)
    # The largest change among random pairs of records, and the pair that attains the bound.
    generator = np.random.default_rng(5)
    rows = generator.standard_normal((2, 4000, 5))
    rows /= np.linalg.norm(rows, axis=2, keepdims=True)
    labels = np.eye(3)[generator.integers(0, 3, (2, 4000))]
    joined = np.concatenate([rows, labels], axis=2)
    joined[:, 0] = [[1, 0, 0, 0, 0, 1, 0, 0], [0, 1, 0, 0, 0, 0, 1, 0]]
    squares = np.einsum("ski,skj->skij", joined, joined)
    changes = np.linalg.norm(squares[0] - squares[1], axis=(1, 2))
    assert changes.max() == pytest.approx(2**1.5)
    assert changes.argmax() == 0


def test_scales_have_nine_digits_so_that_all_machines_name_runs_alike() -> None:
    for mechanism in ("imgm", "mvg"):
        found = rows_account(IMDB, mechanism, "exact", 1.0).noise_multiplier
        assert found == float(f"{found:.9g}")


def test_budgets_are_never_above_the_quotient() -> None:
    budget = budget_of(MNIST, "paper", 1.0)
    assert budget.epsilon <= 55_000 / 256
    assert budget.delta <= 1e-5 * 55_000 / 256
    assert budget_of(MNIST, "exact", 1.0).epsilon == 1.0


@pytest.mark.parametrize("mechanism", ["none", "public", "laplace"])
def test_what_has_no_noise_has_no_account(mechanism: str) -> None:
    with pytest.raises(InvalidParameterError, match=f"mechanism='{mechanism}'"):
        rows_account(MNIST, mechanism, "exact", 1.0)


@pytest.mark.parametrize(
    ("dataset", "public", "private"),
    [
        ("mnist", 5_500, 49_500),
        ("cifar10", 5_000, 45_000),
        ("svhn", 7_326, 65_931),
        ("imdb", 2_500, 22_500),
    ],
)
def test_every_tenth_record_is_public(dataset: str, public: int, private: int) -> None:
    setting = FEATURE_SETTINGS[dataset]
    assert (setting.public_records, setting.private_records) == (public, private)
