"""``matrixdp audit run``: a mechanism of this library, audited from samples."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from matrixdp.audit.empirical import (
    EmpiricalAudit,
    audit_mechanism,
    check_samples,
    exposed_difference,
    release_sampler,
    simulation_sampler,
)
from matrixdp.baselines.gaussian import AnalyticGaussian, ClassicGaussian
from matrixdp.baselines.mvg import MVG
from matrixdp.cli.shared.exit_codes import DEFECT
from matrixdp.cli.shared.options import (
    AsJson,
    DeltaOption,
    EpsilonOption,
    NeighbouringOption,
    NormBoundOption,
    SensitivityOption,
    ShapeOption,
    StepsOption,
    count_option,
    number_option,
)
from matrixdp.cli.shared.output import print_json, print_table
from matrixdp.cli.shared.progress import progress_bar
from matrixdp.errors import InvalidParameterError
from matrixdp.mechanisms.imgm import IMGM
from matrixdp.mechanisms.matrix_mechanism import MatrixMechanism
from matrixdp.noise import simulation_generator
from matrixdp.parameters import positive_integer
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.composition import composed_mu
from matrixdp.privacy.guarantee import Guarantee, Neighbouring, checked_neighbouring
from matrixdp.rounding import shown_down, shown_up
from matrixdp.sensitivity.sets import FrobeniusBall
from matrixdp.workloads import Prefix

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from matrixdp.mechanisms.mechanism import Mechanism
    from matrixdp.mechanisms.release import Release

__all__ = ["run"]

# Seconds until a progress bar is shown.
_LONG_WAIT = 1.0
_OUTPUTS_TOGETHER = 100
_NAMES = "imgm, analytic, classic, mvg or matrix"


def run(
    mechanism: Annotated[str, typer.Option("--mechanism", help=f"{_NAMES}.")],
    shape: ShapeOption,
    neighbouring: NeighbouringOption,
    epsilon: EpsilonOption,
    delta: DeltaOption,
    sensitivity: SensitivityOption = 1.0,
    norm_bound: NormBoundOption = None,
    steps: StepsOption = 1,
    samples: Annotated[
        int, count_option("--samples", "Number of outputs for each input.")
    ] = 50_000,
    confidence: Annotated[
        float, number_option("--confidence", "Probability that a correct mechanism passes.")
    ] = 0.999,
    seed: Annotated[int, count_option("--seed", "Seed of the simulated noise.")] = 0,
    exact: Annotated[
        bool, typer.Option("--exact", help="Audit exact releases with fresh keys; slower.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Try to refute a mechanism of this library from samples on two neighbouring inputs.

    Several releases share the budget and are audited together. The Matrix Mechanism answers prefix
    sums over as many cells as the matrix has entries. Exit code 1 if a mechanism is refuted, which
    would be a defect.
    """
    relation = checked_neighbouring(neighbouring)
    for number, name in zip(shape, ("rows", "columns"), strict=True):
        positive_integer(number, name)
    # Before anything is made: an optimised strategy for many cells would take a while.
    check_samples(samples, math.prod(shape) * steps)
    generator = None if exact else simulation_generator(seed)
    parts = [
        _part(mechanism, shape, relation, budget, sensitivity, norm_bound, generator)
        for budget in Budget(epsilon, delta).split(steps)
    ]
    # One audit of all releases side by side, against the budget that they were split from.
    whole = _Whole(parts, Budget(epsilon, delta))
    first = parts[0]
    with progress_bar(2 * samples, "Drawing outputs", after=_LONG_WAIT) as advance:
        drawn = itertools.count(1)

        def draw(matrix: "NDArray[np.float64]") -> "NDArray[np.float64]":
            # Not at every output: moving the bar takes as long as a small one.
            if next(drawn) % _OUTPUTS_TOGETHER == 0:
                advance(_OUTPUTS_TOGETHER)
            return whole.draw(matrix)

        found = audit_mechanism(
            whole,
            first.matrix,
            first.neighbour,
            draw,
            difference=np.tile(first.difference.ravel(), steps),
            samples=samples,
            confidence=confidence,
        )
    _report(found, first.name, as_json=as_json)
    # After the report, so that the numbers can be read whatever the exit code.
    if found.refuted:
        typer.echo(f"matrixdp: {first.name} does not keep its claim", err=True)
        raise typer.Exit(DEFECT)  # which this would be


@dataclass(frozen=True, slots=True)
class _Part:
    """One release: what it promises, two inputs, what they differ by, and how to draw outputs."""

    name: str
    guarantee: Guarantee
    matrix: "NDArray[np.float64]"
    neighbour: "NDArray[np.float64]"
    difference: "NDArray[np.float64]"
    draw: Callable[["NDArray[np.float64]"], "NDArray[np.float64]"]


@dataclass(frozen=True, slots=True)
class _Whole:
    """All releases together."""

    parts: list[_Part]
    budget: Budget

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.of_budget(
            self.budget,
            # Of what the parts really have, which may be less than the budget.
            mu=composed_mu(part.guarantee.mu for part in self.parts),
            neighbouring=self.parts[0].guarantee.neighbouring,
        )

    def draw(self, matrix: "NDArray[np.float64]") -> "NDArray[np.float64]":
        return np.concatenate([np.ravel(part.draw(matrix)) for part in self.parts])


def _part(
    name: str,
    shape: tuple[int, int],
    neighbouring: Neighbouring,
    budget: Budget,
    sensitivity: float,
    norm_bound: float | None,
    generator: np.random.Generator | None,
) -> _Part:
    if name == "matrix":
        return _histogram_part(math.prod(shape), neighbouring, budget, sensitivity, generator)
    ball = FrobeniusBall(sensitivity, neighbouring)
    made = _mechanism(name, ball, budget, shape, norm_bound)
    difference = exposed_difference(made, shape)
    return _Part(
        type(made).__name__,
        made.guarantee,
        # Half of the difference on each side: MVG bounds the norm of both inputs.
        -0.5 * difference,
        0.5 * difference,
        difference,
        release_sampler(made) if generator is None else simulation_sampler(made, generator),
    )


def _histogram_part(
    cells: int,
    neighbouring: Neighbouring,
    budget: Budget,
    sensitivity: float,
    generator: np.random.Generator | None,
) -> _Part:
    """Return prefix sums by the Matrix Mechanism, of the two histograms that are furthest apart.

    They hold one record at most: in the worst cell or nowhere, or in either of two cells.
    """
    if sensitivity != 1.0:
        raise InvalidParameterError(
            f"sensitivity={sensitivity!r} does not go with mechanism='matrix': a record counts 1 "
            "in a histogram; leave it out"
        )
    made = MatrixMechanism(Prefix(cells), budget, neighbouring=neighbouring)
    change = exposed_difference(made, (cells,))
    return _Part(
        type(made).__name__,
        made.guarantee,
        np.maximum(-change, 0.0),
        np.maximum(change, 0.0),
        made.workload.apply(change),
        release_sampler(made) if generator is None else simulation_sampler(made, generator),
    )


def _mechanism(
    name: str, ball: FrobeniusBall, budget: Budget, shape: tuple[int, int], norm_bound: float | None
) -> "Mechanism[Release]":
    match name:
        case "imgm":
            return IMGM(ball, budget)
        case "analytic":
            return AnalyticGaussian(ball, budget)
        case "classic":
            return ClassicGaussian(ball, budget)
        case "mvg":
            return MVG(
                ball,
                budget,
                shape=shape,
                norm_bound=ball.bound if norm_bound is None else norm_bound,
            )
    raise InvalidParameterError(f"mechanism={name!r} is not known: use {_NAMES}")


def _report(found: EmpiricalAudit, name: str, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "mechanism": name,
                "samples": found.samples,
                "confidence": found.confidence,
                "refuted": found.refuted,
                "neighbouring": found.guarantee.neighbouring,
                "claimed": {
                    "epsilon": found.guarantee.epsilon,
                    "delta": found.guarantee.delta,
                    "mu": found.guarantee.mu,
                },
                "at_least": {
                    "epsilon": found.epsilon,
                    "gaussian_epsilon": found.gaussian_epsilon,
                    "mu": found.mu,
                },
            }
        )
        return
    print_table(
        ["", "claimed", "at least"],
        [
            ["epsilon", shown_up(found.guarantee.epsilon), shown_down(found.epsilon)],
            ["epsilon, if Gaussian", "", shown_down(found.gaussian_epsilon)],
            ["mu", shown_up(found.guarantee.mu), shown_down(found.mu)],
        ],
        title=f"{name}: {'REFUTED' if found.refuted else 'not refuted'}\n{found.samples} samples "
        f"of each input, {found.guarantee.neighbouring}\n"
        f"confidence {shown_down(found.confidence, 15)}",
    )
