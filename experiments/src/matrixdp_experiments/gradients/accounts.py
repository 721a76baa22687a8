"""The noise that each mechanism needs for a promise, and what that noise really guarantees.

A mechanism comes with a composition rule. All noise is Gaussian, so that one number describes it:
the noise multiplier, the scale of the noise over the clip norm. Everything is for adding or
removing one record. Formulas only: no data, no model.

MVG sees the weight matrices of a model. Their shapes are written down rather than read off the
models, so that noise can be accounted for, and a report made, where PyTorch is not installed. A
test compares them with the models.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from matrixdp.audit.comparison import ClaimedNoise, Comparison, claimed_noise
from matrixdp.errors import CalibrationError, InvalidParameterError
from matrixdp.privacy import (
    Accountant,
    SampledPlan,
    noise_multiplier_for,
    plan_epsilon,
    unequal_claims_epsilon,
)

__all__ = [
    "MECHANISMS",
    "VECTORS",
    "Account",
    "Family",
    "Mechanism",
    "Noise",
    "Promise",
    "account",
    "matrix_shapes",
]

VECTORS = "vectors"
"""The name of the matrix that holds all parameters outside of weight matrices."""

_SHAPES: dict[str, dict[str, tuple[int, int]]] = {
    "mnist": {
        "body.0": (6, 26),
        "body.3": (16, 151),
        "head.0": (120, 401),
        "head.2": (84, 121),
        "head.4": (10, 85),
    },
    "adult": {"0": (12, 106), "2": (2, 13)},
    "cora": {"dense": (16, 1434), "convolution.linear": (7, 17)},
    "cifar10": {
        "body.0": (64, 28),
        "body.3": (64, 577),
        "body.7": (128, 577),
        "body.10": (128, 1153),
        "body.14": (256, 1153),
        "body.17": (256, 2305),
        "body.20": (256, 2305),
        "body.24": (512, 2305),
        **{f"body.{layer}": (512, 4609) for layer in (27, 30, 34, 37, 40)},
        "head.0": (512, 513),
        "head.2": (10, 513),
        VECTORS: (4224, 2),
    },
    "svhn": {
        "body.0": (64, 28),
        "body.3": (192, 577),
        "body.6": (384, 1729),
        "body.8": (256, 3457),
        "body.10": (256, 2305),
        "head.0": (4096, 1025),
        "head.2": (512, 4097),
        "head.4": (10, 513),
    },
    "digits": {"0": (8, 10), "4": (10, 73)},
}
Family = Literal["plain", "isotropic", "mvg"]
"""Mechanisms that share their hyper-parameters: no noise, i.i.d. noise, and MVG."""


def matrix_shapes(dataset: str) -> dict[str, tuple[int, int]]:
    """Return the shapes of a model's weight matrices by the names of their layers.

    A kernel is outputs times (inputs times positions), and a bias is one more column. The scales
    and shifts of all normalisation layers are the two columns of one matrix, ``vectors``.
    """
    if dataset not in _SHAPES:
        raise InvalidParameterError(
            f"dataset={dataset!r} has no model: use one of {', '.join(_SHAPES)}"
        )
    return dict(_SHAPES[dataset])


class Promise(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What all steps together are to guarantee, and what a step is.

    Attributes
    ----------
    epsilon, delta : float
        Of all steps together.
    sampling_rate : float
        The probability of a record to be in a step.
    steps : int
        How many.
    lot_size : int
        The expected number of records in a step. Sums of gradients are within this many clip norms.
    matrices : mapping of str to (int, int)
        The shapes of the weight matrices of the model by the names of their layers, which MVG needs
        and the others do not. A kernel is outputs times (inputs times positions), and a bias is one
        more column. The scales and shifts of normalisation layers make up one matrix, ``vectors``.
    """

    epsilon: float
    delta: float
    sampling_rate: float
    steps: int
    lot_size: int
    matrices: dict[str, tuple[int, int]] = {}


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of each step in units of the clip norm: the least, and that of named layers."""

    multiplier: float
    layers: Mapping[str, float] = field(default_factory=dict)


def _theorem_3(promise: Promise) -> Noise:
    """IMGM with Theorem 3, ``sqrt(T) / B``: exact for full batches, and blind to sampling."""
    # At a rate of 1 the loss distribution is that of a Gaussian, and is known in closed form.
    return _accounted(msgspec.structs.replace(promise, sampling_rate=1.0), Accountant.PLD)


def _accounted(promise: Promise, accountant: Accountant) -> Noise:
    return Noise(
        noise_multiplier_for(
            promise.epsilon,
            promise.delta,
            sampling_rate=promise.sampling_rate,
            steps=promise.steps,
            neighbouring="add-remove",
            accountant=accountant,
        )
    )


def _claimed(promise: Promise, mechanism: str, *, sampling_rate: float) -> Noise:
    """Theorem 3.4 at the best split of delta, each step first amplified at the sampling rate."""
    setting = Comparison(
        rows=1,  # of no consequence: these mechanisms do not depend on the shape
        columns=1,
        epsilon=promise.epsilon,
        delta=promise.delta,
        steps=promise.steps,
        sampling_rate=sampling_rate,
    )
    return Noise(_claimed_noise(setting, mechanism).scale)


def _claimed_noise(setting: Comparison, mechanism: str) -> ClaimedNoise:
    found = claimed_noise(setting, mechanism)
    if found is None:
        raise CalibrationError(
            f"no split of delta gives a step a claim that the {mechanism} formula is proven for "
            "(the classic one needs an epsilon of at most 1)"
        )
    return found


def _mvg(promise: Promise) -> Noise:
    """MVG with Theorem 3.4: each of W matrices in T steps is a release of its own.

    Clipping is joint, so one record may move any single matrix by the whole clip norm. Sampling is
    not credited: the matrices of a step share one lot, so they are not amplified independently.

    The best split of delta depends on the shape, so the matrices make different claims, each as if
    all T W releases made the same. What covers them together is Theorem 3.5. If by that they exceed
    the promise, all aim at a smaller epsilon.
    """
    if not promise.matrices:
        raise InvalidParameterError("matrices is empty: MVG needs the shapes of the weights")
    target = promise.epsilon
    while True:
        found = _mvg_noise(promise, target)
        claims = [(one.claim, promise.steps) for one in found.values()]
        together = unequal_claims_epsilon(claims, promise.delta)
        if together <= promise.epsilon:
            break
        # A little less than in proportion, so that this ends; mostly after one or two turns.
        target *= 0.9999 * promise.epsilon / together
    needed = {name: one.scale for name, one in found.items()}
    # The engine gives parameters outside of matrices the least noise there is. A matrix that needs
    # less than they do gets as much, which never claims too much.
    least = needed.pop(VECTORS, min(needed.values()))
    return Noise(least, {name: max(scale, least) for name, scale in sorted(needed.items())})


def _mvg_noise(promise: Promise, epsilon: float) -> dict[str, ClaimedNoise]:
    """Return the noise of each matrix at its own best split of delta, and its claim."""
    return {
        name: _claimed_noise(
            Comparison(
                rows=rows,
                columns=columns,
                epsilon=epsilon,
                delta=promise.delta,
                # In units of the clip norm, which is the sensitivity of each matrix.
                norm_bound=float(promise.lot_size),
                steps=promise.steps * len(promise.matrices),
            ),
            "MVG sharp",
        )
        for name, (rows, columns) in promise.matrices.items()
    }


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A mechanism under a composition rule; ``find`` is None where no noise is added."""

    title: str
    family: Family
    find: Callable[[Promise], Noise] | None


MECHANISMS: dict[str, Mechanism] = {
    # From the tightest account to the loosest, as tables and figures show them.
    "none": Mechanism("no noise", "plain", None),
    "imgm-pld": Mechanism(
        "IMGM, subsampled PLD", "isotropic", lambda one: _accounted(one, Accountant.PLD)
    ),
    "rdp": Mechanism("Gaussian, RDP", "isotropic", lambda one: _accounted(one, Accountant.RDP)),
    "moments": Mechanism(
        "Gaussian, moments accountant",
        "isotropic",
        lambda one: _accounted(one, Accountant.MOMENTS),
    ),
    "imgm-theorem-3": Mechanism("IMGM, Theorem 3", "isotropic", _theorem_3),
    "analytic-amplified": Mechanism(
        "analytic Gaussian, amplified, Theorem 3.4",
        "isotropic",
        lambda one: _claimed(one, "analytic", sampling_rate=one.sampling_rate),
    ),
    "classic-amplified": Mechanism(
        "classic Gaussian, amplified, Theorem 3.4",
        "isotropic",
        lambda one: _claimed(one, "classic", sampling_rate=one.sampling_rate),
    ),
    "analytic": Mechanism(
        "analytic Gaussian, Theorem 3.4",
        "isotropic",
        lambda one: _claimed(one, "analytic", sampling_rate=1.0),
    ),
    # Its best strategy for one sum is the sum itself, so its noise is that of the row above.
    "matrix": Mechanism(
        "Matrix Mechanism, Theorem 3.4",
        "isotropic",
        lambda one: _claimed(one, "analytic", sampling_rate=1.0),
    ),
    "classic": Mechanism(
        "classic Gaussian, Theorem 3.4",
        "isotropic",
        lambda one: _claimed(one, "classic", sampling_rate=1.0),
    ),
    "mvg": Mechanism("MVG, Theorem 3.4", "mvg", _mvg),
}


class Account(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The noise of a mechanism for a promise, and its true epsilon at the promise's delta.

    All three numbers are missing where the mechanism's rule does not apply, and ``true_epsilon``
    alone where the tight accountant does not; ``refusal`` says why.
    """

    mechanism: str
    promise: Promise
    noise_multiplier: float | None = None
    layers: dict[str, float] = {}
    true_epsilon: float | None = None
    refusal: str | None = None


def account(mechanism: str, promise: Promise) -> Account:
    """Return the noise that a mechanism needs for a promise, and the epsilon that it really costs.

    The true epsilon is that of the tight accountant, a subsampled PLD, for the least noise that any
    layer has.

    Raises
    ------
    InvalidParameterError
        If the mechanism is not known, adds no noise, or a parameter is outside its domain.
    """
    found = MECHANISMS.get(mechanism)
    if found is None or found.find is None:
        known = ", ".join(name for name, one in MECHANISMS.items() if one.find is not None)
        raise InvalidParameterError(f"mechanism={mechanism!r} has no account: use one of {known}")
    try:
        noise = found.find(promise)
    except CalibrationError as refusal:
        # A result like any other: the table has to say which rules do not apply.
        return Account(mechanism=mechanism, promise=promise, refusal=str(refusal))
    # The least noise of any layer decides: a record may put its whole gradient there.
    true_epsilon, refusal_text = _true_epsilon(promise, noise.multiplier)
    return Account(
        mechanism=mechanism,
        promise=promise,
        noise_multiplier=noise.multiplier,
        layers=dict(noise.layers),
        true_epsilon=true_epsilon,
        refusal=refusal_text,
    )


def _true_epsilon(promise: Promise, multiplier: float) -> tuple[float | None, str | None]:
    plan = SampledPlan(
        noise_multiplier=multiplier,
        sampling_rate=promise.sampling_rate,
        steps=promise.steps,
        neighbouring="add-remove",
    )
    try:
        return plan_epsilon(plan, promise.delta, Accountant.PLD), None
    except CalibrationError as refusal:
        return None, f"the tight accountant does not apply: {refusal}"
