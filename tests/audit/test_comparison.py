"""The comparison: known ratios, true epsilons, and shipped tables that are what the code says."""

import csv
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matrixdp import (
    IMGM,
    Budget,
    FrobeniusBall,
    InvalidParameterError,
    privacy_epsilon,
    privacy_mu,
)
from matrixdp.audit.comparison import Comparison, Contender, compare
from matrixdp.audit.curves import CURVES
from matrixdp.baselines import MVG, ClassicGaussian, Zeta
from matrixdp.rounding import shown_up

ROOT = Path(__file__).resolve().parents[2]


def by_name(**setting: object) -> dict[str, Contender]:
    given = {"rows": 10, "columns": 10, "epsilon": 1.0, "delta": 1e-5, **setting}
    return {one.name: one for one in compare(Comparison(**given))}  # type: ignore[arg-type]


def scale(found: dict[str, Contender], name: str) -> float:
    noise = found[name].noise_scale
    assert noise is not None
    return noise


@pytest.mark.parametrize(
    ("epsilon", "steps", "classic", "analytic", "moments", "rdp"),
    [
        (1.0, 10, 4.49, 3.08, 1.31, 1.084),
        (1.0, 1000, 7.87, 5.30, 1.31, 1.084),
        (0.1, 1000, 8.36, 4.99, 1.56, 1.105),
        (0.01, 1000, 9.08, 4.68, 1.97, 1.134),
    ],
)
def test_known_noise_ratios(
    epsilon: float, steps: int, classic: float, analytic: float, moments: float, rdp: float
) -> None:
    found = by_name(epsilon=epsilon, steps=steps)
    least = scale(found, "IMGM, exact")
    # The published ratios split delta half and half; the best split gains up to four per cent.
    for name, ratio in (("classic, Theorem 3.4", classic), ("analytic, Theorem 3.4", analytic)):
        assert 0.955 * ratio < scale(found, name) / least < 1.003 * ratio
    assert scale(found, "analytic, moments") / least == pytest.approx(moments, abs=6e-3)
    assert scale(found, "analytic, RDP") / least == pytest.approx(rdp, abs=6e-4)
    assert scale(found, "analytic, exact") == least


def test_one_release_is_what_the_mechanisms_draw() -> None:
    found = by_name(sensitivity=0.5, norm_bound=3.0, rows=4, columns=7)
    ball, budget = FrobeniusBall(0.5, neighbouring="replace"), Budget(1.0, 1e-5)
    shape = {"shape": (4, 7), "norm_bound": 3.0}
    for name, mechanism in (
        ("IMGM", IMGM(ball, budget)),
        ("analytic", IMGM(ball, budget)),
        ("classic", ClassicGaussian(ball, budget)),
        ("MVG sharp", MVG(ball, budget, **shape)),  # type: ignore[arg-type]
        ("MVG paper", MVG(ball, budget, zeta=Zeta.PAPER, **shape)),  # type: ignore[arg-type]
    ):
        drawn = mechanism.covariance.smallest_singular_value
        assert scale(found, f"{name}, one release") == pytest.approx(drawn, rel=1e-12)
        error = found[f"{name}, one release"].frobenius_error
        assert error == pytest.approx(drawn * math.sqrt(28), rel=1e-12)


@settings(max_examples=20)
@given(
    st.floats(1e-3, 5.0),
    st.floats(-10, -2).map(lambda power: 10.0**power),
    st.integers(1, 500),
    st.floats(0.1, 10.0),
)
def test_all_keep_the_promise_and_none_beats_imgm(
    epsilon: float, delta: float, steps: int, sensitivity: float
) -> None:
    found = compare(
        Comparison(
            rows=5, columns=3, epsilon=epsilon, delta=delta, steps=steps, sensitivity=sensitivity
        )
    )
    least = found[0].noise_scale
    assert least is not None
    for one in found:
        if one.noise_scale is None:
            assert one.mechanism == "classic"
            assert epsilon > 1
            continue
        assert one.noise_scale >= least * (1 - 1e-12)
        assert one.true_epsilon is not None
        assert one.true_epsilon <= epsilon
        mu = math.sqrt(steps) * sensitivity / one.noise_scale
        assert one.true_epsilon == pytest.approx(privacy_epsilon(mu, delta), abs=1e-9)


def test_the_classic_formula_refuses_large_claims() -> None:
    refused = by_name(epsilon=10.0)["classic, one release"]
    assert (refused.noise_scale, refused.frobenius_error, refused.true_epsilon) == (None,) * 3
    assert refused.refusal is not None
    assert "epsilon=10.0 is above 1" in refused.refusal
    assert by_name(epsilon=1.0)["classic, one release"].refusal is None
    assert by_name(epsilon=10.0, steps=100)["classic, Theorem 3.4"].noise_scale is not None


def test_sampled_steps() -> None:
    found = by_name(steps=4000, sampling_rate=0.05)
    least = scale(found, "IMGM, PLD")
    for name, one in found.items():
        assert scale(found, name) >= least
        assert one.true_epsilon is not None
        assert one.true_epsilon <= 1.0
    assert found["IMGM, PLD"].true_epsilon == pytest.approx(1.0, rel=1e-4)
    unsampled = scale(found, "IMGM, exact, unsampled")
    assert unsampled == pytest.approx(math.sqrt(4000) / privacy_mu(1.0, 1e-5), rel=1e-14)


@pytest.mark.parametrize("sensitivity", [1e-300, 1e99, 1e120, 1e300])
def test_any_sensitivity_scales_all_noise(sensitivity: float) -> None:
    plain = by_name(norm_bound=3.0, steps=5)
    found = by_name(sensitivity=sensitivity, norm_bound=3.0 * sensitivity, steps=5)
    assert set(found) == set(plain)
    for name, one in found.items():
        assert scale(found, name) == pytest.approx(scale(plain, name) * sensitivity, rel=1e-12)
        assert one.true_epsilon == pytest.approx(plain[name].true_epsilon, rel=1e-9)


def test_a_delta_that_loss_distributions_do_not_resolve() -> None:
    found = by_name(sampling_rate=0.1, delta=1e-260, steps=3)
    assert found["IMGM, PLD"].noise_scale is None
    for name in ("analytic, RDP", "analytic, amplified", "MVG sharp, amplified"):
        truth = found[name].true_epsilon
        assert truth is not None
        assert 0.0 < truth <= 1.0


def test_a_tiny_delta() -> None:
    found = by_name(sampling_rate=0.1, delta=1e-14, steps=3)
    least = scale(found, "IMGM, PLD")
    for name, one in found.items():
        # The classic formula needs an epsilon of at most 1 before amplification.
        assert (one.noise_scale is None) == (name == "classic, amplified")
        assert one.noise_scale is None or one.noise_scale >= least
    # One step has a closed form, of which amplification is the whole truth.
    once = by_name(sampling_rate=0.1, delta=1e-14)
    assert once["analytic, amplified"].true_epsilon == pytest.approx(1.0, rel=1e-4)
    assert scale(once, "IMGM, PLD") == pytest.approx(scale(once, "analytic, amplified"), rel=1e-4)
    assert scale(once, "analytic, amplified") < scale(once, "analytic, RDP")


@pytest.mark.parametrize("rate", [pytest.param(1e-320, marks=pytest.mark.thorough), 1e-12])
def test_extreme_sampling_rates(rate: float) -> None:
    found = by_name(sampling_rate=rate, steps=3)
    assert scale(found, "IMGM, exact, unsampled") >= scale(found, "analytic, RDP") * 0.9
    for one in found.values():
        assert one.true_epsilon is None or one.true_epsilon <= 1.0
    # A record is hardly ever sampled: far less often than delta allows it to be exposed.
    refusal = found["IMGM, PLD"].refusal
    assert refusal is not None
    assert "noise multipliers below" in refusal if rate == 1e-12 else "is outside" in refusal


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": 0}, "rows=0"),
        ({"columns": 2.5}, r"columns=2\.5"),
        ({"epsilon": 0.0}, r"epsilon=0\.0"),
        ({"delta": 0.0}, r"delta=0\.0"),
        ({"sensitivity": math.nan}, "sensitivity=nan"),
        ({"norm_bound": -1.0}, r"norm_bound=-1\.0"),
        ({"norm_bound": 0.4}, r"norm_bound=0\.4"),
        ({"steps": 0}, "steps=0"),
        ({"sampling_rate": 2.0}, r"sampling_rate=2\.0"),
        ({"sensitivity": 1e308}, r"sensitivity=1e\+308"),
    ],
)
def test_bad_settings(change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        by_name(**change)


@pytest.mark.parametrize("name", CURVES)
def test_shipped_tables_are_what_the_code_computes(name: str) -> None:
    shipped = (ROOT / "results" / f"comparison_{name}.csv").read_text()
    computed = CURVES[name]().to_csv()
    assert shipped.splitlines()[:2] == computed.splitlines()[:2]
    both = zip(shipped.splitlines()[2:], computed.splitlines()[2:], strict=True)
    for line, now in both:
        for cell, value in zip(line.split(","), now.split(","), strict=True):
            assert (cell == "") == (value == "")
            # Nine digits; a search for the best split may stop elsewhere with another scipy.
            assert cell == value or float(cell) == pytest.approx(float(value), rel=1e-6)


def test_curves_span_what_they_should() -> None:
    def ends(name: str) -> tuple[float | None, float | None]:
        rows = CURVES[name]().rows
        return rows[0][0], rows[-1][0]

    assert ends("dimension") == (1, 10**7)
    assert ends("steps") == (1, 10**5)
    assert ends("epsilon") == (0.0, 10.0)


def test_epsilon_to_zero() -> None:
    curve = CURVES["epsilon"]()
    zero, first = curve.rows[0], curve.rows[1]
    assert zero[1] == pytest.approx(1 / privacy_mu(0.0, 1e-5), rel=1e-14)
    assert zero[3:] == (None,) * 3
    assert first[1] == pytest.approx(zero[1], rel=1e-4)
    # The others grow without end: as 1 / epsilon.
    assert first[3] is not None
    assert first[3] > 1e9


def quoted(name: str) -> list[list[str]]:
    """Return the lines of a shipped table that the docs show, as the docs show them."""
    with (ROOT / "results" / f"comparison_{name}.csv").open(newline="") as file:
        next(file)
        rows = list(csv.reader(file))[1:]
    shown = {"0", "1", "10", "100", "1000", "1e-09", "0.0001", "0.01", "100000", "10000000"}
    return [
        [row[0], *("–" if cell == "" else shown_up(float(cell), 4) for cell in row[1:])]
        for row in rows
        if row[0] in shown
    ]


@pytest.mark.parametrize("name", CURVES)
def test_the_docs_quote_the_tables(name: str) -> None:
    tables = (ROOT / "docs" / "tables" / "comparison.md").read_text()
    lines = quoted(name)
    assert len(lines) >= 5
    for line in lines:
        assert f"| {' | '.join(line)} |" in tables
    assert f"figures/comparison_{name}.svg" in (ROOT / "docs" / "comparison.md").read_text()


@pytest.mark.parametrize("name", CURVES)
def test_figures_are_small_and_there(name: str) -> None:
    figure = ROOT / "docs" / "figures" / f"comparison_{name}.svg"
    text = figure.read_text()
    assert text.startswith("<?xml")
    assert all(contender in text for contender in CURVES[name]().contenders)
    assert figure.stat().st_size < 100_000


def test_an_accountant_that_does_not_apply_says_why() -> None:
    refused = by_name(epsilon=1e-4, delta=1e-300, steps=3, sampling_rate=0.1)["IMGM, PLD"]
    assert refused.noise_scale is None
    assert refused.refusal is not None
    assert "delta=1e-300 is below" in refused.refusal
