"""MVG's precision budget against ball arithmetic, and the values of its authors' formula."""

import math

import pytest
from flint import arb, ctx
from hypothesis import given
from hypothesis import strategies as st

from matrixdp import InvalidParameterError, privacy_mu
from matrixdp.baselines import Zeta
from matrixdp.baselines.precision_budget import _harmonic, _harmonic_of_roots, mvg_precision_budget


def true_budget(
    rows: int,
    columns: int,
    gamma: float,
    s2: float,
    epsilon: float,
    delta: float,
    zeta: Zeta,
    bits: int = 300,
) -> arb:
    """Return the bound as the authors write it, which cancels, hence with many bits."""
    saved, ctx.prec = ctx.prec, bits
    try:
        rank, entries = min(rows, columns), arb(rows) * columns
        harmonic = (arb(rank) + 1).digamma() + arb.const_euler()
        roots = arb("0.5").zeta() - arb("0.5").zeta(arb(rank) + 1)
        surprise = -arb(delta).log()
        bound = 2 * (entries * surprise).sqrt() + 2 * surprise + entries
        bound = bound if zeta is Zeta.PAPER else bound.sqrt()
        alpha = (harmonic + roots) * arb(gamma) ** 2 + 2 * harmonic * arb(gamma) * arb(s2)
        beta = 2 * entries.sqrt().sqrt() * harmonic * bound * arb(s2)
        root = (beta * beta + 8 * alpha * arb(epsilon)).sqrt()
        return (root - beta) ** 2 / (4 * alpha * alpha)
    finally:
        ctx.prec = saved


OFFICIAL = [
    # gamma = s2 = 1, epsilon = 1, delta = 1e-5: the authors' formula, and with the root of zeta
    (1, 1, 1.0489056281e-3, 0.0288211792101),
    (2, 3, 8.7027296e-5, 3.8796635e-3),
    (10, 10, 3.199004760e-7, 6.10137586e-5),
]


@pytest.mark.parametrize(("rows", "columns", "paper", "sharp"), OFFICIAL)
def test_official_values(rows: int, columns: int, paper: float, sharp: float) -> None:
    for zeta, value in ((Zeta.PAPER, paper), (Zeta.SHARP, sharp)):
        budget = mvg_precision_budget(
            rows, columns, norm_bound=1.0, sensitivity=1.0, epsilon=1.0, delta=1e-5, zeta=zeta
        )
        assert budget == pytest.approx(value, rel=1e-8)


@pytest.mark.parametrize("power", [-1060, -1022, -900, -560, -300, 300, 500])
@pytest.mark.parametrize("epsilon", [1.0, 1e-100, 1e-150, 1e-250, 1e-320])
def test_it_is_rounded_down_where_squares_underflow(power: int, epsilon: float) -> None:
    size = 2.0**power
    try:
        found = mvg_precision_budget(
            3, 4, norm_bound=size, sensitivity=size, epsilon=epsilon, delta=1e-6
        )
    except InvalidParameterError as refusal:
        assert "range of a float" in str(refusal)  # noqa: PT017
        return
    # The budget of a matrix in other units is the same up to their square.
    true = true_budget(3, 4, 1.0, 1.0, epsilon, 1e-6, Zeta.SHARP, bits=3000) / arb(2) ** (2 * power)
    assert bool(arb(found) <= true)
    assert bool(arb(found) >= true * (1 - arb(2e-13)))


def test_the_reference_adds_up_the_same_harmonic_numbers() -> None:
    # The reference takes them from special functions; here they are added up, at every size where
    # the code adds and beyond.
    for rank in (1, 2, 63, 64, 65, 66, 100, 1000):
        by_hand = math.fsum(1 / i for i in range(1, rank + 1))
        roots = math.fsum(1 / math.sqrt(i) for i in range(1, rank + 1))
        saved, ctx.prec = ctx.prec, 300
        assert float(((arb(rank) + 1).digamma() + arb.const_euler()).mid()) == pytest.approx(
            by_hand, rel=1e-15
        )
        found = arb("0.5").zeta() - arb("0.5").zeta(arb(rank) + 1)
        ctx.prec = saved
        assert float(found.mid()) == pytest.approx(roots, rel=1e-14)


@pytest.mark.parametrize("rank", [*range(1, 200), 10**4 + 1, 10**9 + 7])
def test_sums_of_harmonic_kind_to_the_last_digits(rank: int) -> None:
    saved, ctx.prec = ctx.prec, 300
    harmonic = (arb(rank) + 1).digamma() + arb.const_euler()
    roots = arb("0.5").zeta() - arb("0.5").zeta(arb(rank) + 1)
    assert abs(float((arb(_harmonic(rank)) / harmonic - 1).mid())) < 4e-16
    # Without the last term of its series the second would be off by 7e-15 at 65.
    assert abs(float((arb(_harmonic_of_roots(rank)) / roots - 1).mid())) < 4e-16
    ctx.prec = saved


sizes = st.one_of(st.integers(1, 200), st.integers(1, 10**7))
positive = st.floats(-6, 6).map(lambda power: 10.0**power)


@given(
    sizes,
    sizes,
    st.floats(0.5, 1e6),
    positive,
    st.floats(-8, 3).map(lambda power: 10.0**power),
    st.floats(-300, -0.01).map(lambda power: 10.0**power),
    st.sampled_from(list(Zeta)),
)
def test_against_ball_arithmetic_on_the_private_side(
    rows: int, columns: int, ratio: float, s2: float, epsilon: float, delta: float, zeta: Zeta
) -> None:
    gamma = ratio * s2
    budget = mvg_precision_budget(
        rows, columns, norm_bound=gamma, sensitivity=s2, epsilon=epsilon, delta=delta, zeta=zeta
    )
    true = true_budget(rows, columns, gamma, s2, epsilon, delta, zeta)
    assert bool(arb(budget) <= true)
    assert bool(arb(budget) >= true * (1 - arb(2e-13)))


def test_the_form_that_cancels_would_be_caught() -> None:
    # The printed form in floats loses every digit at small epsilon: the test above can fail.
    rows = columns = 1000
    alpha, beta = 100.0, 2e7
    printed = (-beta + math.sqrt(beta**2 + 8 * alpha * 1e-6)) ** 2 / (4 * alpha**2)
    assert printed == 0.0
    budget = mvg_precision_budget(
        rows, columns, norm_bound=1.0, sensitivity=1.0, epsilon=1e-6, delta=1e-5
    )
    assert budget > 0.0


@pytest.mark.parametrize(
    ("shape", "zeta", "ratio"),
    [
        ((10, 10), Zeta.PAPER, 1499),
        ((10, 10), Zeta.SHARP, 108.5),
        ((1024, 512), Zeta.PAPER, 7.0e8),
        ((1024, 512), Zeta.SHARP, 9.6e5),
    ],
)
def test_noise_relative_to_the_least(shape: tuple[int, int], zeta: Zeta, ratio: float) -> None:
    budget = mvg_precision_budget(
        *shape, norm_bound=1.0, sensitivity=1.0, epsilon=1.0, delta=1e-5, zeta=zeta
    )
    noise = math.sqrt(math.sqrt(math.prod(shape)) / budget)
    assert noise * privacy_mu(1.0, 1e-5) == pytest.approx(ratio, rel=1e-2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": 0}, "rows=0"),
        ({"columns": 1.5}, r"columns=1\.5"),
        ({"norm_bound": 0.0}, r"norm_bound=0\.0"),
        ({"norm_bound": math.nan}, "norm_bound=nan"),
        ({"sensitivity": -1.0}, r"sensitivity=-1\.0"),
        ({"epsilon": 0.0}, r"epsilon=0\.0"),
        ({"delta": 0.0}, r"delta=0\.0"),
        ({"zeta": "blunt"}, "zeta='blunt'"),
        ({"epsilon": 1e-300}, "beyond the range"),
        ({"norm_bound": 0.49}, "below half of"),
        ({"norm_bound": 1e300}, "beyond the range"),
    ],
)
def test_bad_parameters(change: dict[str, object], message: str) -> None:
    good = {"rows": 2, "columns": 3, "norm_bound": 1.0, "sensitivity": 1.0}
    arguments = {**good, "epsilon": 1.0, "delta": 1e-5, **change}
    with pytest.raises(InvalidParameterError, match=message):
        mvg_precision_budget(**arguments)  # type: ignore[arg-type]
