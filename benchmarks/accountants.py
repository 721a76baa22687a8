"""Accounts of sampled steps by dp-accounting, Opacus, prv_accountant and matrixdp, in one run.

Run with ``make benchmark-accountants``. Every row has both bounds of epsilon, the width that is
proven, relative to epsilon, and the median time of several calls on one thread. A peer that fails
is shown with its error; one that answers with something impossible, with what it said. The
second table is the search for the least multiplier whose plan keeps a promise, and the last one
is of random plans that sample rarely, by matrixdp alone.

``--save`` writes ``results/accountants.csv``.
"""

import contextlib
import math
import random
import resource
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import TypeVar

from accountant_peers import PEERS, Bounds, Question, quiet
from rich.console import Console
from rich.table import Table
from saved import save
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from matrixdp.privacy import LossAccount, SampledPlan, noise_multiplier_for

_Found = TypeVar("_Found")

QUESTIONS = (
    Question(1.0, 0.01, 1000, 1e-5),
    Question(1.0, 0.001, 100_000, 1e-5),
    Question(1.0, 0.001, 1_000_000, 1e-5),
    Question(1.0, 0.01, 1000, 1e-30),
    Question(1.0, 0.01, 1000, 1e-100),
    # Where large data lives: a record is hardly ever sampled.
    Question(0.95, 3.3e-5, 57_830, 1e-6),
    Question(0.66, 3.7e-6, 5_318, 7e-8),
    Question(0.6, 1e-6, 1_000_000, 1e-6),
)
RANDOM_PLANS, SEED = 200, 29
TARGET_EPSILON = 2.0
SEARCH = Question(math.nan, 0.01, 1000, 1e-5)
_LEAST_EPSILON, _WIDE = 1e-3, 1e-4
_MOST_CALLS = 5
_MOST_SECONDS = 40.0  # of all calls of one accountant
_MOST_BYTES = 8 << 30  # of memory: some need more for a million steps, and say so then
_ENOUGH_SECONDS = 3.0  # after which no further call is made for a median


def timed(work: Callable[[], _Found]) -> tuple[_Found, float]:
    """Return a result and the median time of up to five calls, in milliseconds."""
    work()  # imports and caches
    times: list[float] = []
    while len(times) < _MOST_CALLS and sum(times) < _ENOUGH_SECONDS:
        start = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - start)
    return result, 1e3 * statistics.median(times)


@contextlib.contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Raise if something takes longer, as soon as it returns to Python."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"no answer within {seconds:g} s")

    former = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, former)


def our_bounds(question: Question, *, replaced: bool = False) -> Bounds:
    """Account for the plan with matrixdp; nothing is kept from one call to the next."""
    plan = SampledPlan(
        noise_multiplier=question.multiplier,
        sampling_rate=question.rate,
        steps=question.steps,
        neighbouring="replace" if replaced else "add-remove",
        bounded="contribution",
    )
    lower, upper = LossAccount([plan]).epsilon_at(question.delta)
    return lower, upper


def accounts(figures: dict[str, float]) -> Table:
    """Measure every plan with every accountant."""
    table = Table(title="Epsilon of sampled steps, under adding and removing records")
    for heading in ("plan", "accountant", "lower", "upper", "relative width", "ms"):
        table.add_column(heading, justify="left" if heading in {"plan", "accountant"} else "right")
    everyone = [(peer.name, peer.bounds) for peer in PEERS if peer.installed]
    for question in QUESTIONS:
        for name, bounds in (*everyone, ("matrixdp", our_bounds)):
            cells = _measured(question, name, bounds, figures)
            table.add_row(question.text, name, *cells)
        table.add_section()
    return table


def _measured(
    question: Question,
    name: str,
    bounds: Callable[[Question], Bounds],
    figures: dict[str, float],
) -> list[str]:
    """Return both bounds, the width and the time, or what went wrong."""
    try:
        with patience(_MOST_SECONDS):
            (lower, upper), milliseconds = timed(partial(bounds, question))
    except Exception as error:  # noqa: BLE001 - how a peer fails is what is asked
        print(f"{question.text}, {name}: {type(error).__name__}: {error}", flush=True)
        return [f"{type(error).__name__}: {str(error)[:60]}", "", "", ""]
    figures[f"{question.text}, {name}, milliseconds"] = milliseconds
    if not 0.0 <= lower <= upper < math.inf:
        return [f"{lower:.6g}", f"{upper:.6g}", "no bound", f"{milliseconds:.1f}"]
    width = (upper - lower) / upper if upper > 0 else 0.0
    print(f"{question.text}, {name}: {upper:.7g}, {width:.1e}, {milliseconds:.1f} ms", flush=True)
    figures[f"{question.text}, {name}, epsilon"] = upper
    figures[f"{question.text}, {name}, relative width"] = width
    return [f"{lower:.7g}", f"{upper:.7g}", f"{width:.1e}", f"{milliseconds:.1f}"]


def dp_accounting_multiplier() -> float:
    """Search with dp-accounting, to 1e-4."""
    import dp_accounting  # noqa: PLC0415
    from dp_accounting.pld import PLDAccountant  # noqa: PLC0415

    def event(multiplier: float) -> dp_accounting.DpEvent:
        step = dp_accounting.GaussianDpEvent(multiplier)
        sampled = dp_accounting.PoissonSampledDpEvent(SEARCH.rate, step)
        return dp_accounting.SelfComposedDpEvent(sampled, SEARCH.steps)

    return float(
        dp_accounting.calibrate_dp_mechanism(
            PLDAccountant,
            event,
            TARGET_EPSILON,
            SEARCH.delta,
            bracket_interval=dp_accounting.LowerEndpointAndGuess(0.5, 1.0),
            tol=1e-4,
        )
    )


def opacus_multiplier() -> float:
    """Search with Opacus, to its default tolerance of 0.01 of epsilon."""
    from opacus.accountants.utils import get_noise_multiplier  # noqa: PLC0415

    return float(
        get_noise_multiplier(
            target_epsilon=TARGET_EPSILON,
            target_delta=SEARCH.delta,
            sample_rate=SEARCH.rate,
            steps=SEARCH.steps,
            accountant="prv",
        )
    )


def our_multiplier() -> float:
    """Search with matrixdp, whose answer is proven."""
    return noise_multiplier_for(
        TARGET_EPSILON,
        SEARCH.delta,
        sampling_rate=SEARCH.rate,
        steps=SEARCH.steps,
        neighbouring="add-remove",
    )


def searches(figures: dict[str, float]) -> Table:
    """Measure the search for a multiplier."""
    table = Table(
        title=f"Least multiplier for epsilon = {TARGET_EPSILON:g} at delta = {SEARCH.delta:g}, "
        f"q = {SEARCH.rate:g}, T = {SEARCH.steps:g}"
    )
    for heading in ("accountant", "multiplier", "ms"):
        table.add_column(heading, justify="left" if heading == "accountant" else "right")
    for name, module, search in (
        ("dp-accounting", "dp_accounting", dp_accounting_multiplier),
        ("Opacus PRV", "opacus", opacus_multiplier),
        ("matrixdp", "matrixdp", our_multiplier),
    ):
        if find_spec(module) is None:
            continue
        multiplier, milliseconds = timed(search)
        figures[f"search, {name}, multiplier"] = multiplier
        figures[f"search, {name}, milliseconds"] = milliseconds
        table.add_row(name, f"{multiplier:.6f}", f"{milliseconds:.1f}")
    return table


def random_plans(figures: dict[str, float]) -> Table:
    """Account for random plans that sample rarely, with matrixdp alone: widths, time and memory.

    Rates from 1e-6 to 1e-3, multipliers from 0.6 to 5, up to a million steps and deltas from 1e-12
    to 1e-4, all spread evenly on logarithmic scales, under one relation or the other; those whose
    epsilon is above 1e-3.
    """
    numbers = random.Random(SEED)  # noqa: S311 - plans, not noise
    widths: list[float] = []
    times: list[float] = []
    while len(widths) < RANDOM_PLANS:
        question = Question(
            multiplier=0.6 * (5.0 / 0.6) ** numbers.random(),
            rate=10.0 ** numbers.uniform(-6.0, -3.0),
            steps=int(10.0 ** numbers.uniform(0.0, 6.0)),
            delta=10.0 ** numbers.uniform(-12.0, -4.0),
        )
        start = time.perf_counter()
        lower, upper = our_bounds(question, replaced=numbers.random() < 0.5)
        if upper > _LEAST_EPSILON:
            times.append(1e3 * (time.perf_counter() - start))
            widths.append((upper - lower) / upper)
            if widths[-1] > _WIDE:
                print(f"wide: {question.text}: {lower:.7g} to {upper:.7g}", flush=True)
    table = Table(title=f"{RANDOM_PLANS} random plans that sample rarely, matrixdp")
    table.add_column("figure")
    table.add_column("value", justify="right")
    for name, value in (
        ("widest, relative", max(widths)),
        ("share wider than 1e-4", sum(width > _WIDE for width in widths) / len(widths)),
        ("median milliseconds", statistics.median(times)),
        ("most milliseconds", max(times)),
    ):
        figures[f"random plans, {name}"] = value
        table.add_row(name, f"{value:.3g}")
    return table


def main() -> None:
    """Print all tables, and keep the figures if asked to."""
    # A peer that would take all of the machine fails instead.
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
    figures: dict[str, float] = {}
    console = Console()
    with threadpool_limits(limits=1), quiet():
        for table in (accounts, searches, random_plans):
            console.print(table(figures))
    missing = [peer.name for peer in PEERS if not peer.installed]
    if missing:
        console.print(f"Not installed: {', '.join(missing)}.")
    save("accountants", figures)


if __name__ == "__main__":
    main()
