"""Claims of others, and the truth about them: published code, mechanisms, and libraries.

Every mechanism is asked for (epsilon, 1e-5) at sensitivity 1 for a 10 by 10 matrix. What its noise
really guarantees as real numbers is computed; what its floats give away is shown by running it. Run
with ``make benchmark-claims``.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import diffprivlib.mechanisms as ibm
import dp_accounting
import jax
import numpy as np
import opendp.prelude as opendp
import torch
from autodp.calibrator_zoo import ana_gaussian_calibrator
from autodp.mechanism_zoo import GaussianMechanism
from calibration_safety import relative_excess
from jax_privacy.noise_addition import gaussian_privatizer
from opacus.optimizers import DPOptimizer
from saved import save
from scipy.stats import beta

import matrixdp as mdp
from matrixdp.audit import audit_sampled_claim, rank_one_delta, rank_one_noise_scale
from matrixdp.baselines import MVG, ClassicGaussian
from matrixdp.baselines.precision_budget import Zeta
from matrixdp.privacy import privacy_epsilon, privacy_mu
from matrixdp.rounding import shown_down

DELTA, SIDE = 1e-5, 10
EPSILONS = (0.1, 1.0, 10.0)
PACKAGES = ("autodp", "diffprivlib", "dp-accounting", "jax-privacy", "opacus", "opendp", "numpy")

Draw = Callable[[float, int], Any]


class PublishedTraining(NamedTuple):
    """The defaults of PatrickLwt/Privacy at d6f80ce, main.py, lines 19 to 26."""

    records: int
    lot: int
    batch: int
    epochs: int


PUBLISHED = {
    "MNIST": PublishedTraining(records=60_000, lot=512, batch=64, epochs=60),
    "CIFAR-10": PublishedTraining(records=50_000, lot=256, batch=64, epochs=60),
}


def published_noise(training: PublishedTraining, epsilon: float) -> tuple[float, int]:
    """Return noise over clip norm of a lot's sum, and the number of lots, with noise_type=IMGM.

    Each batch of a lot gets noise of IMGM's scale for one release of sensitivity
    ``q sqrt(lots)`` clip norms, divided by the root of the batch size (noise_generator.py, line
    116). The noises of a lot's batches add up (main.py, lines 217 and 281 to 285).
    """
    rate = training.lot / training.records
    lots = int(training.epochs * training.records / training.lot)
    of_batch = rate * math.sqrt(lots) / privacy_mu(epsilon, DELTA) / math.sqrt(training.batch)
    return of_batch * math.sqrt(training.lot / training.batch), lots


def applied_lots(training: PublishedTraining) -> int:
    """Return how many updates its loop makes: whole batches, and whole lots of each epoch."""
    batches = training.records // training.batch
    return training.epochs * (batches // (training.lot // training.batch))


def published_code() -> Iterator[tuple[str, float]]:
    """Yield what the published code's noise guarantees at least, under ideal Poisson lots."""
    for name, epsilon in (("MNIST", 1.0), ("CIFAR-10", 1.0), ("CIFAR-10", 10.0)):
        training = PUBLISHED[name]
        noise, lots = published_noise(training, epsilon)
        start = f"IMGM's published code, {name}, {epsilon:g}"
        yield f"{start}, noise multiplier", noise
        for what, multiplier, steps in (
            ("epsilon at least", noise, lots),
            ("epsilon at least, of the updates made", noise, applied_lots(training)),
            ("epsilon at least, undivided", noise * math.sqrt(training.batch), lots),
        ):
            found = audit_sampled_claim(
                multiplier,
                1.0,
                epsilon=epsilon,
                delta=DELTA,
                steps=steps,
                sampling_rate=training.lot / training.records,
            )
            yield f"{start}, {what}", float(shown_down(found.true_epsilon.lower, 4))


def rank_one() -> Iterator[tuple[str, float]]:
    """Yield the error and the true delta of R1SMG, for a claim of (1, 1e-5)."""
    for numbers in (3, 4, 5, 10, 20, 100, 1000, 1_000_000):
        scale = rank_one_noise_scale(numbers, 1.0, DELTA)
        found = rank_one_delta(numbers, scale, 1.0)
        yield f"R1SMG, {numbers} numbers, error", scale
        yield f"R1SMG, {numbers} numbers, delta at least", float(shown_down(found, 4))
    for epsilon in EPSILONS:
        scale = rank_one_noise_scale(SIDE**2, epsilon, DELTA)
        found = rank_one_delta(SIDE**2, scale, epsilon)
        yield f"R1SMG, epsilon {epsilon:g}, scale", scale / SIDE
        yield f"R1SMG, epsilon {epsilon:g}, delta at least", float(shown_down(found, 4))


def opendp_noise(scale: float) -> Any:
    """Return OpenDP's measurement of a vector of floats."""
    numbers = opendp.vector_domain(opendp.atom_domain(T=float, nan=False))
    return opendp.m.make_gaussian(numbers, opendp.l2_distance(T=float), scale)


def opendp_scale(epsilon: float) -> float:
    """Return the least scale that OpenDP's own accounting allows."""

    def with_noise(scale: float) -> Any:
        profile = opendp.c.make_zCDP_to_approxDP(opendp_noise(scale))
        return opendp.c.make_fix_delta(profile, delta=DELTA)

    return float(opendp.binary_search_param(with_noise, d_in=1.0, d_out=(epsilon, DELTA)))


def accounted_scale(accountant: Callable[[], object], epsilon: float) -> float:
    """Return the scale that dp_accounting finds by one of its accountants."""
    event = dp_accounting.GaussianDpEvent
    return float(dp_accounting.calibrate_dp_mechanism(accountant, event, epsilon, DELTA))


def ball() -> mdp.FrobeniusBall:
    """Return the set of a mechanism of ours."""
    return mdp.FrobeniusBall(1.0, neighbouring="replace")


def of_ours(make: Callable[..., Any], epsilon: float, **settings: object) -> float:
    """Return the noise scale of a mechanism of ours."""
    made = make(ball(), mdp.Budget(epsilon, DELTA), **settings)
    return float(made.covariance.smallest_singular_value)


def ibm_scale(make: Callable[..., Any], epsilon: float) -> float:
    """Return the noise scale of one of diffprivlib's mechanisms, by its variance."""
    return math.sqrt(make(epsilon=epsilon, delta=DELTA, sensitivity=1.0).variance(0.0))


SCALES: dict[str, Callable[[float], float]] = {
    "matrixdp, IMGM": partial(of_ours, mdp.IMGM),
    "matrixdp, classic": partial(of_ours, ClassicGaussian),
    **{
        f"matrixdp, MVG {zeta.name.lower()}": partial(
            of_ours, MVG, shape=(SIDE, SIDE), norm_bound=1.0, zeta=zeta
        )
        for zeta in Zeta
    },
    "diffprivlib, Gaussian": partial(ibm_scale, ibm.Gaussian),
    "diffprivlib, GaussianAnalytic": partial(ibm_scale, ibm.GaussianAnalytic),
    "OpenDP, make_gaussian": opendp_scale,
    "dp_accounting, get_sigma_gaussian": partial(dp_accounting.get_sigma_gaussian, delta=DELTA),
    "dp_accounting, PLD": partial(accounted_scale, dp_accounting.pld.PLDAccountant),
    "dp_accounting, RDP": partial(accounted_scale, dp_accounting.rdp.RdpAccountant),
    "autodp, ana_gaussian": lambda epsilon: ana_gaussian_calibrator()(
        GaussianMechanism, epsilon, DELTA
    ).params["sigma"],
}
"""The standard deviation on every entry, of what each mechanism adds or each library asks for."""


def calibrations() -> Iterator[tuple[str, float]]:
    """Yield the noise scale of every mechanism, its true epsilon, and by how much delta exceeds."""
    for name, scale_for in SCALES.items():
        for epsilon in EPSILONS:
            try:
                scale = float(scale_for(epsilon))
            except (ValueError, mdp.InvalidParameterError):
                continue  # proven for epsilon up to 1 alone
            start = f"{name}, epsilon {epsilon:g}"
            yield f"{start}, scale", scale
            yield f"{start}, true epsilon", float(privacy_epsilon(1.0 / scale, DELTA))
            yield f"{start}, excess of delta", relative_excess(scale, epsilon, DELTA)


DRAWS = 100_000
CONFIDENCE = 0.999


def fine_bits(outputs: Any, mantissa: int) -> int:
    """Return how many outputs are below 1/4 and no multiple of ``2^-mantissa``.

    Noise that is added to 1 in floats leaves none: it is between -5/4 and -3/4, so that it and the
    sum are multiples of that (Mironov 2012, for Laplace noise). Added to 0, it is the output, whose
    last bits are finer.
    """
    outputs = np.asarray(outputs, dtype=float)
    steps = np.ldexp(outputs, mantissa)
    return int(np.sum((np.abs(outputs) < 0.25) & (steps != np.floor(steps))))


def delta_by_floats(draw: Draw, mantissa: int, draws: int) -> float:
    """Return a lower bound of delta at epsilon 1, from outputs for the answers 0 and 1."""
    zero, one = (fine_bits(draw(answer, draws), mantissa) for answer in (0.0, 1.0))
    miss = (1.0 - CONFIDENCE) / 2
    least = beta.ppf(miss, zero, draws - zero + 1) if zero else 0.0
    most = beta.ppf(1.0 - miss, one + 1, draws - one)
    return max(0.0, float(least - math.e * most))


def samplers() -> Iterator[tuple[str, Draw, int, int]]:
    """Yield how to draw from each program that adds noise, its mantissa's bits, and how often."""
    scale = 1.0 / privacy_mu(1.0, DELTA)
    generator = np.random.default_rng(1)

    def textbook(x: float, n: int) -> Any:
        return x + generator.normal(0.0, scale, n)

    def with_diffprivlib(make: Any, x: float, n: int) -> Any:
        one = make(epsilon=1.0, delta=DELTA, sensitivity=1.0)
        return [one.randomise(x) for _ in range(n)]

    def with_jax(x: float, n: int) -> Any:
        key = jax.random.key(int(generator.integers(2**31)))
        noise = gaussian_privatizer(stddev=scale, prng_key=key)
        answers = jax.numpy.full(n, x, jax.numpy.float32)
        return noise.update(answers, noise.init(answers))[0]

    def with_opacus(x: float, n: int, *, secure_mode: bool) -> Any:
        parameter: Any = torch.nn.Parameter(torch.zeros(n))
        optimiser = DPOptimizer(
            torch.optim.SGD([parameter], lr=1.0),
            noise_multiplier=scale,
            max_grad_norm=1.0,
            expected_batch_size=1,
            secure_mode=secure_mode,
        )
        parameter.summed_grad = torch.full((n,), x)
        optimiser.add_noise()
        return parameter.grad

    def with_opendp(x: float, n: int) -> Any:
        return opendp_noise(scale)([x] * n)

    def exact(x: float, n: int) -> Any:
        return mdp.IMGM(ball(), mdp.Budget(1.0, DELTA)).release(np.full((n, 1), x)).value

    yield "numpy, x + normal", textbook, 53, DRAWS
    yield "diffprivlib, Gaussian", partial(with_diffprivlib, ibm.Gaussian), 53, DRAWS
    analytic = partial(with_diffprivlib, ibm.GaussianAnalytic)
    yield "diffprivlib, GaussianAnalytic", analytic, 53, DRAWS
    yield "jax-privacy, gaussian_privatizer", with_jax, 24, DRAWS
    yield "Opacus, DPOptimizer", partial(with_opacus, secure_mode=False), 24, DRAWS
    yield "Opacus, DPOptimizer in secure mode", partial(with_opacus, secure_mode=True), 24, DRAWS
    yield "OpenDP, make_gaussian", with_opendp, 53, DRAWS // 5
    yield "matrixdp, IMGM", exact, 53, DRAWS


def floats() -> Iterator[tuple[str, float]]:
    """Yield what the floats of each program's outputs show of its delta at epsilon 1."""
    for name, draw, mantissa, draws in samplers():
        found = delta_by_floats(draw, mantissa, draws)
        yield f"{name}, delta at least by its floats", float(shown_down(found, 2))


def main() -> None:
    """Print all figures."""
    opendp.enable_features("contrib")
    figures: dict[str, float] = {}
    for found in (published_code(), rank_one(), calibrations(), floats()):
        for what, figure in found:
            print(f"{what:64s} {figure:.6g}")
            figures[what] = figure
    save("other_claims", figures, PACKAGES)


if __name__ == "__main__":
    main()
