"""Bounds of epsilon by other libraries' accountants, and a table of them for the tests.

Each gives a lower and an upper bound under adding and removing records. dp-accounting rounds its
loss distribution up or down; Opacus and prv_accountant bound the error of their discretisation
(Gopi, Lee and Wutschitz 2021). None of the three bounds the rounding of its Fourier transforms.

``python benchmarks/accountant_peers.py`` writes ``tests/reference/loss_peers.csv``, in an
environment with benchmarks/requirements-accounting.txt.
"""

import contextlib
import csv
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path

_TABLE = Path(__file__).resolve().parents[1] / "tests" / "reference" / "loss_peers.csv"
_ERRORS = (1e-2, 1e-3)  # of epsilon
_PACKAGES = {
    "dp_accounting": "dp-accounting",
    "opacus": "opacus",
    "prv_accountant": "prv-accountant",
}


@dataclass(frozen=True)
class Question:
    """Equal steps on Poisson samples, and a delta."""

    multiplier: float
    rate: float
    steps: int
    delta: float

    @property
    def text(self) -> str:
        """The plan in a few words."""
        return f"q={self.rate:g}, T={self.steps:g}, s={self.multiplier:g}, delta={self.delta:g}"


Bounds = tuple[float, float]


@dataclass(frozen=True)
class Peer:
    """A library at one of its settings."""

    name: str
    module: str
    bounds: Callable[[Question], Bounds]

    @property
    def installed(self) -> bool:
        """Whether it can be imported."""
        return find_spec(self.module) is not None

    @property
    def version(self) -> str:
        """The version that is installed."""
        return f"{_PACKAGES[self.module]} {metadata.version(_PACKAGES[self.module])}"


def dp_accounting_bounds(question: Question, *, interval: float, relation: str) -> Bounds:
    """Compose a loss distribution that is rounded down, and one that is rounded up."""
    import dp_accounting  # noqa: PLC0415
    from dp_accounting.pld import privacy_loss_distribution as losses  # noqa: PLC0415

    relations = dp_accounting.NeighboringRelation
    lower, upper = (
        losses.from_gaussian_mechanism(
            question.multiplier,
            sampling_prob=question.rate,
            pessimistic_estimate=pessimistic,
            use_connect_dots=pessimistic,  # it only rounds up
            value_discretization_interval=interval,
            neighboring_relation=(
                relations.ADD_OR_REMOVE_ONE if relation == "add-remove" else relations.REPLACE_ONE
            ),
        )
        .self_compose(question.steps)
        .get_epsilon_for_delta(question.delta)
        for pessimistic in (False, True)
    )
    return float(lower), float(upper)


def opacus_bounds(question: Question, *, error: float) -> Bounds:
    """Ask for the bounds, of which Opacus returns only the upper one to its users."""
    from opacus.accountants import PRVAccountant  # noqa: PLC0415

    accountant = PRVAccountant()
    accountant.history = [(question.multiplier, question.rate, question.steps)]
    slack = question.delta / 1000  # as in its own get_epsilon
    composed = accountant._get_dprv(eps_error=error, delta_error=slack)  # noqa: SLF001
    lower, _, upper = composed.compute_epsilon(question.delta, slack, error)
    return float(lower), float(upper)


def prv_accountant_bounds(question: Question, *, error: float) -> Bounds:
    """Ask for the bounds."""
    peer = import_module("prv_accountant")
    accountant = peer.PRVAccountant(
        prvs=[peer.PoissonSubsampledGaussianMechanism(question.rate, question.multiplier)],
        max_self_compositions=[question.steps],
        eps_error=error,
        delta_error=question.delta / 1000,
    )
    lower, _, upper = accountant.compute_epsilon(question.delta, [question.steps])
    return float(lower), float(upper)


_DP_ACCOUNTING = Peer(
    "dp-accounting, interval 1e-4",
    "dp_accounting",
    partial(dp_accounting_bounds, interval=1e-4, relation="add-remove"),
)
_OPACUS, _PRV_ACCOUNTANT = (
    [Peer(f"{name}, error {error:g}", module, partial(bounds, error=error)) for error in _ERRORS]
    for name, module, bounds in (
        ("Opacus PRV", "opacus", opacus_bounds),
        ("prv_accountant", "prv_accountant", prv_accountant_bounds),
    )
)
PEERS = (_DP_ACCOUNTING, *_OPACUS, *_PRV_ACCOUNTANT)

_QUESTIONS = (
    Question(1.0, 0.01, 1000, 1e-5),
    Question(0.7, 0.02, 300, 1e-6),
    Question(2.0, 0.1, 2000, 1e-8),
    Question(1.0, 0.001, 20_000, 1e-5),
)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hide the warnings that peers give on import and on long tails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _rows() -> Iterator[list[object]]:
    for question in _QUESTIONS:
        plan = [question.multiplier, question.rate, question.steps, question.delta]
        for peer in (_DP_ACCOUNTING, _OPACUS[0], _PRV_ACCOUNTANT[0]):
            yield [peer.name, peer.version, "add-remove", *plan, *peer.bounds(question)]
        replaced = dp_accounting_bounds(question, interval=1e-4, relation="replace")
        yield [_DP_ACCOUNTING.name, _DP_ACCOUNTING.version, "replace", *plan, *replaced]


def main() -> None:
    """Write the table."""
    with quiet():
        rows = list(_rows())
    with _TABLE.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            "peer version relation multiplier rate steps delta lower upper".split()  # noqa: SIM905
        )
        writer.writerows(rows)


if __name__ == "__main__":
    main()
