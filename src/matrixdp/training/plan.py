"""A training plan: everything that the privacy of a run depends on, fixed before it begins."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from math import ceil
from typing import Any

from matrixdp.errors import InvalidParameterError
from matrixdp.markup import card
from matrixdp.mechanisms.imgm import IMGM
from matrixdp.parameters import DELTA, EPSILON, checked_choice, positive_integer, positive_number
from matrixdp.privacy import Accountant, Budget, SampledPlan, noise_multiplier_for, plan_epsilon
from matrixdp.rounding import float_up, quotient_down, shown_up, sqrt_up
from matrixdp.sensitivity import FrobeniusBall
from matrixdp.training.units import Units

__all__ = ["TrainingPlan"]

Bounds = tuple[tuple[str, float], ...]

# Clipped gradients and noise are float32 numbers. Gradients 2**49 times longer than their bound add
# nothing, and at the least bound those are longer than 56,000.
_LEAST_BOUND = 1e-10
_LARGEST_BOUND = 1e30


@dataclass(frozen=True, init=False)
class TrainingPlan:
    """Sampling rate, clip norm, steps, noise and account of a training run, tied together.

    Everything in a plan is public: it is fixed before training and must not depend on the data.
    State ``epsilon`` and the plan finds the noise, or state ``noise_multiplier`` and it finds the
    epsilon. With both, the plan checks that the noise is enough.

    Parameters
    ----------
    records : int, optional
        How many records the data set has. Each of them is protected.
    units : Units, optional
        What is protected instead, such as users with several records each. All that is said of
        records below then holds for units.
    lot_size : float
        The expected number of records in a step, from 1 to ``records``. Each record is in a step
        with probability ``lot_size / records``, and each gradient is divided by ``lot_size``.
    steps : int, optional
        How many steps are taken.
    epochs : float, optional
        How often each record is expected to be used, instead of ``steps``: their number is
        ``epochs * records / lot_size``, rounded up.
    clip_norm : float or mapping of str to float
        The largest norm of one record's gradient, from 1e-10 to 1e30. A mapping gives groups of
        parameters a bound each: its keys are names of parameters or of modules that hold them
        (``"features"`` is everything below it, ``""`` all the rest). The squares of the bounds add
        up.
    delta : float
        Well below one over the number of records.
    epsilon : float, optional
        What is to be guaranteed, above 0; with a noise multiplier it may be 0, if that proves it.
    noise_multiplier : float, optional
        The scale of the noise over the sensitivity of the sum of clipped gradients, under adding
        or removing one record.
    views : int, optional
        How many rows of a batch belong to each record, for instance augmented copies of one image.
        A record's gradient is the mean over its views, and is clipped once.
    accountant : Accountant or str, optional
        By default privacy loss distributions, which are tight; without sampling (``lot_size``
        equals ``records``) they are the exact curve of Gaussian noise.
    sum_norm : float, optional
        The largest norm of the sum of a step: a longer sum is shortened to it before noise is
        added. Some mechanisms, such as MVG, need such a bound. It costs nothing, because the
        projection on a ball never moves two sums apart.

    Raises
    ------
    InvalidParameterError
        If a parameter is outside its domain, or the noise does not guarantee the epsilon.

    Notes
    -----
    *Guarantee:* (epsilon, delta)-DP under adding or removing one record, or one unit with all of
    its records, for steps on Poisson samples with ``sampling_rate`` and Gaussian noise of scale
    ``noise_scale`` on sums whose terms have norms of at most ``sensitivity``. All three are rounded
    up.

    Examples
    --------
    >>> from matrixdp.training import TrainingPlan
    >>> plan = TrainingPlan(
    ...     records=60_000, lot_size=256, steps=2000, clip_norm=1.0, epsilon=2.0, delta=1e-6
    ... )
    >>> round(plan.noise_multiplier, 3)
    0.82
    >>> TrainingPlan(
    ...     records=60_000, lot_size=256, steps=2000, clip_norm={"features": 3.0, "": 4.0},
    ...     noise_multiplier=1.0, delta=1e-6
    ... ).sensitivity
    5.0
    """

    records: int | None
    units: Units | None
    lot_size: float
    steps: int
    clip_norm: float | Bounds  # a mapping becomes pairs, which nobody can change afterwards
    delta: float
    epsilon: float
    noise_multiplier: float
    views: int
    accountant: Accountant
    sum_norm: float | None

    def __init__(
        self,
        *,
        records: int | None = None,
        units: Units | None = None,
        lot_size: float,
        steps: int | None = None,
        epochs: float | None = None,
        clip_norm: float | Mapping[str, float] | Bounds,
        delta: float,
        epsilon: float | None = None,
        noise_multiplier: float | None = None,
        views: int = 1,
        accountant: Accountant | str = Accountant.PLD,
        sum_norm: float | None = None,
    ) -> None:
        _check_sampled(records, units)
        self._set("records", None if records is None else positive_integer(records, "records"))
        self._set("units", units)
        self._set("lot_size", _checked_lot_size(lot_size, self.population, self.unit))
        self._set("steps", _checked_steps(steps, epochs, self.exact_rate))
        self._set("clip_norm", _checked_bounds(clip_norm))
        self._set("delta", DELTA.number(delta))
        self._set("views", positive_integer(views, "views"))
        self._set("accountant", checked_choice(accountant, Accountant, "accountant"))
        self._set("sum_norm", None if sum_norm is None else positive_number(sum_norm, "sum_norm"))
        self._settle(epsilon, noise_multiplier)

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _settle(self, epsilon: float | None, noise_multiplier: float | None) -> None:
        """Find whichever of the noise and the epsilon is missing, or check one by the other."""
        if epsilon is not None:
            epsilon = EPSILON.number(epsilon)
        # With both, as after dataclasses.replace, the claim is proven again rather than believed.
        if noise_multiplier is not None:
            proven = self._epsilon_of(noise_multiplier)
            if epsilon is not None and not proven <= epsilon:
                raise InvalidParameterError(
                    f"epsilon={epsilon!r} is not guaranteed by "
                    f"noise_multiplier={noise_multiplier!r}: claim at least {proven!r}, or leave "
                    "one of the two out"
                )
            self._set("epsilon", proven if epsilon is None else epsilon)
            self._set("noise_multiplier", float(noise_multiplier))
        elif epsilon is not None:
            # Only beside a noise multiplier may it be 0, to which so much noise is rounded.
            self._set("epsilon", positive_number(epsilon, "epsilon"))
            self._set("noise_multiplier", self._multiplier_for(epsilon))
        else:
            raise InvalidParameterError(
                "epsilon and noise_multiplier are both missing: state what is to be guaranteed, or "
                "how much noise is added"
            )

    def _epsilon_of(self, noise_multiplier: float) -> float:
        return plan_epsilon(self._sampled(noise_multiplier), self.delta, self.accountant)

    def _sampled(self, noise_multiplier: float) -> SampledPlan:
        return SampledPlan(
            noise_multiplier=noise_multiplier,
            sampling_rate=self.sampling_rate,
            steps=self.steps,
            neighbouring="add-remove",
        )

    @property
    def sampled(self) -> SampledPlan:
        """The steps as accounts know them; what a ledger declares and pays for."""
        return self._sampled(self.noise_multiplier)

    def _multiplier_for(self, epsilon: float) -> float:
        return noise_multiplier_for(
            epsilon,
            self.delta,
            sampling_rate=self.sampling_rate,
            steps=self.steps,
            neighbouring="add-remove",
            accountant=self.accountant,
        )

    @property
    def unit(self) -> str:
        """What is protected: a record, or what the units are called."""
        return "record" if self.units is None else self.units.name

    @property
    def population(self) -> int:
        """How many records or units there are, of which lots are drawn."""
        return self.records if self.units is None else self.units.number  # type: ignore[return-value]

    @property
    def rows(self) -> int:
        """How many rows of a batch are clipped together: the views of all records of a unit."""
        return self.views * (1 if self.units is None else self.units.most_records)

    @property
    def exact_rate(self) -> Fraction:
        """The probability of each record to be in a step."""
        return Fraction(self.lot_size) / self.population

    @property
    def sampling_rate(self) -> float:
        """The same as a float, rounded up: what is accounted for."""
        return float_up(self.exact_rate)

    @property
    def epochs(self) -> float:
        """How often each record is expected to be used."""
        return float(self.steps * self.exact_rate)

    @property
    def bounds(self) -> Bounds:
        """The groups of parameters by name, and the clip norm of each."""
        return self.clip_norm if isinstance(self.clip_norm, tuple) else (("", self.clip_norm),)

    @property
    def sensitivity(self) -> float:
        """How far one record can move the sum of gradients, all groups together, rounded up."""
        return sqrt_up(sum((Fraction(bound) ** 2 for _, bound in self.bounds), Fraction(0)))

    @property
    def step_budget(self) -> Budget:
        """What one step may spend on the records that are in it: ``mu = 1 / noise_multiplier``.

        This is before amplification by sampling. It is rounded down, so that noise which keeps it
        has at least the plan's multiplier.
        """
        return Budget.from_mu(quotient_down(1.0, self.noise_multiplier), self.delta)

    @property
    def step_mechanism(self) -> IMGM:
        """The mechanism of one step: the least independent noise for the sum of gradients."""
        ball = FrobeniusBall(self.sensitivity, neighbouring="add-remove")
        return IMGM(sensitivity=ball, budget=self.step_budget)

    @property
    def noise_scale(self) -> float:
        """The standard deviation of the noise on the sum of gradients, rounded up."""
        return self.step_mechanism.covariance.smallest_singular_value

    def _repr_html_(self) -> str:
        promise = f"epsilon {shown_up(self.epsilon, 4)} at delta {shown_up(self.delta, 4)}"
        most = None if self.units is None else self.units.most_records
        taken = [] if most is None else [(f"records of a {self.unit}", f"at most {most}, enforced")]
        norms = ", ".join(f"{bound:g} {name}".strip() for name, bound in self.bounds)
        facts = [
            ("guarantee", f"{promise}, under adding or removing one {self.unit}"),
            (f"{self.unit}s", self.population),
            *taken,
            ("expected lot size", f"{self.lot_size:g}"),
            ("steps", f"{self.steps}, which are {self.epochs:.4g} epochs"),
            ("clip norm", norms),
            ("noise multiplier", f"{self.noise_multiplier:.6g}"),
        ]
        return card("TrainingPlan", facts)

    @property
    def digest(self) -> str:
        """A fingerprint of the plan, by which checkpoints and spending files know it."""
        # json writes every digit of a float, so that plans which differ at all differ here.
        fields = asdict(self) | {"accountant": self.accountant.value}
        # Plans without these keep the digest that they had before there were any.
        for added in ("sum_norm", "units"):
            if fields[added] is None:
                del fields[added]
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _check_sampled(records: object, units: object) -> None:
    if units is not None and not isinstance(units, Units):
        raise InvalidParameterError(
            f"units is a {type(units).__name__}: pass Units(number, most_records, name)"
        )
    if (records is None) == (units is None):
        raise InvalidParameterError(
            f"records={records!r} and units={units!r}: pass one of the two, units where one person "
            "may have several records"
        )


def _checked_lot_size(lot_size: float, population: int, unit: str) -> float:
    size = positive_number(lot_size, "lot_size")
    if not 1.0 <= size <= population:
        raise InvalidParameterError(
            f"lot_size={size!r} is outside its domain: it is the expected number of {unit}s in a "
            f"step, from 1 to {unit}s={population!r}"
        )
    return size


def _checked_steps(steps: int | None, epochs: float | None, rate: Fraction) -> int:
    if steps is not None and epochs is None:
        return positive_integer(steps, "steps")
    if epochs is None or steps is not None:
        raise InvalidParameterError(f"steps={steps!r} and epochs={epochs!r}: pass one of the two")
    # As it was written: the float 1.1 is a little more than 11 tenths.
    return ceil(Fraction(repr(positive_number(epochs, "epochs"))) / rate)


def _checked_bounds(clip_norm: float | Mapping[str, float] | Bounds) -> float | Bounds:
    """Return a positive bound, or the bounds of named groups in the order of their names."""
    if not isinstance(clip_norm, Mapping | tuple):
        return _checked_bound(clip_norm, "clip_norm")
    pairs = tuple(clip_norm.items()) if isinstance(clip_norm, Mapping) else clip_norm
    groups = dict(pairs) if all(map(_is_named, pairs)) else {}
    if not groups:
        raise InvalidParameterError(
            "clip_norm must map at least one name of a module or parameter to its bound: pass for "
            "instance {'features': 1.0, '': 0.5}, or one number"
        )
    if len(groups) < len(clip_norm):
        raise InvalidParameterError(
            f"clip_norm={clip_norm!r} gives a name twice: give every name one bound"
        )
    # Sorted, so that the same bounds in another order are the same plan and have the same digest.
    return tuple(
        (name, _checked_bound(groups[name], f"clip_norm[{name!r}]")) for name in sorted(groups)
    )


def _is_named(pair: object) -> bool:
    match pair:
        case (str(), _):
            return True
    return False


def _checked_bound(clip_norm: float, name: str) -> float:
    """Return a clip norm by which float32 gradients can be scaled, and its noise be held."""
    bound = positive_number(clip_norm, name)
    if not _LEAST_BOUND <= bound <= _LARGEST_BOUND:
        raise InvalidParameterError(
            f"{name}={bound!r} is outside its domain: use a norm from {_LEAST_BOUND} to "
            f"{_LARGEST_BOUND}, of the size of a gradient"
        )
    return bound
