"""The comparison as curves: noise scale against dimension, epsilon and the number of steps.

One curve is a table of numbers together with all parameters, so that figures and pages can be made
from it and checked against it.
"""

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass, replace

from matrixdp.audit.comparison import Comparison, claimed_noise, compare
from matrixdp.privacy.bound import privacy_mu
from matrixdp.rounding import quotient_up, shown_up

__all__ = ["CURVES", "Curve"]

_BASE = Comparison(rows=10, columns=10, epsilon=1.0, delta=1e-5)
_ONE_TWO_FIVE = (1, 2, 5)  # evenly spaced to the eye on a logarithmic axis


@dataclass(frozen=True, slots=True)
class Curve:
    """Noise scales over one quantity, ``axis``; all else is as in ``setting``.

    ``rows`` holds the axis and then the noise scale of each of ``contenders``; None where a
    mechanism refuses.
    """

    name: str
    axis: str
    setting: Comparison
    contenders: tuple[str, ...]
    rows: tuple[tuple[float | None, ...], ...]

    def configuration(self) -> str:
        """Return what is held fixed, as a line."""
        fixed = {
            "shape": f"{self.setting.rows}x{self.setting.columns}",
            "epsilon": f"{self.setting.epsilon:g}",
            "delta": f"{self.setting.delta:g}",
            "sensitivity": f"{self.setting.sensitivity:g}",
            "norm bound": f"{self.setting.norm_bound:g}",
            "steps": f"{self.setting.steps}",
        }
        # What varies along the axis is not fixed.
        fixed.pop("shape" if self.axis == "side" else self.axis)
        return ", ".join(f"{name} {value}" for name, value in fixed.items())

    def to_csv(self) -> str:
        """Return the table as CSV: what is held fixed after ``#``, then the numbers, rounded up."""
        text = io.StringIO()
        text.write(f"# {self.configuration()}\n")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([self.axis, *self.contenders])
        for row in self.rows:
            writer.writerow(["" if value is None else shown_up(value, 9) for value in row])
        return text.getvalue()


def _over_dimension() -> Curve:
    """Square matrices of side 1 to 10^7, released once."""
    sides = [lead * 10**power for power in range(7) for lead in _ONE_TWO_FIVE] + [10**7]
    return _curve("dimension", "side", sides, lambda d: replace(_BASE, rows=d, columns=d))


def _over_steps() -> Curve:
    """One to 10^5 releases of a small matrix."""
    counts = [lead * 10**power for power in range(5) for lead in _ONE_TWO_FIVE] + [10**5]
    # Two steps have all the rules that any larger number has.
    names = [one.name for one in compare(replace(_BASE, steps=2))]
    rows = []
    for count in counts:
        found = compare(replace(_BASE, steps=count))
        scales: dict[str, float | None] = {one.name: one.noise_scale for one in found}
        if count == 1:  # one release is not composed: its contenders have no rule in their names
            plain = {one.mechanism: one.noise_scale for one in found if one.rule == "one release"}
            scales |= {name: plain[name.partition(",")[0]] for name in names if name not in scales}
        rows.append((count, *(scales[name] for name in names)))
    return Curve("steps", "steps", _BASE, tuple(names), tuple(rows))


def _over_epsilon() -> Curve:
    """One release at epsilon 1e-9 to 10, and at 0, where only the exact bound has an answer."""
    epsilons = [lead * 10.0**power for power in range(-9, 1) for lead in _ONE_TWO_FIVE] + [10.0]
    curve = _curve("epsilon", "epsilon", epsilons, lambda e: replace(_BASE, epsilon=float(e)))
    limit = quotient_up(_BASE.sensitivity, privacy_mu(0.0, _BASE.delta))
    # The other formulas divide by epsilon.
    first = (0.0, limit, limit, *([None] * (len(curve.contenders) - 2)))
    return replace(curve, rows=(first, *curve.rows))


def _curve(
    name: str,
    axis: str,
    points: list[int] | list[float],
    setting_at: Callable[..., Comparison],
) -> Curve:
    """Return the curve of single releases over some points."""
    mechanisms = ("analytic", "classic", "MVG sharp", "MVG paper")
    rows = []
    for point in points:
        setting = setting_at(point)
        found = [claimed_noise(setting, mechanism) for mechanism in mechanisms]
        scales = [None if one is None else one.scale for one in found]
        # IMGM first: for one release its noise is that of the analytic Gaussian.
        rows.append((point, scales[0], *scales))
    return Curve(name, axis, _BASE, ("IMGM", *mechanisms), tuple(rows))


CURVES: dict[str, Callable[[], Curve]] = {
    "dimension": _over_dimension,
    "epsilon": _over_epsilon,
    "steps": _over_steps,
}
