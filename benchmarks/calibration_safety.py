"""Promises that calibrated noise scales break: matrixdp and dp_accounting, in one run.

For each of 150 budgets both libraries give a noise scale for sensitivity 1; its true delta is then
enclosed in ball arithmetic. A scale whose true delta exceeds the promised one is unsafe. Run with
``make benchmark``.
"""

import math

from dp_accounting import get_sigma_gaussian
from flint import arb, ctx
from saved import save

from matrixdp.privacy.budget import Budget
from matrixdp.privacy.planner import plan_for_budget

EPSILONS = (1e-6, 1e-4, 1e-3, 0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 50.0, 100.0, 300.0, 800.0, 1e4)
DELTAS = (0.1, 1e-2, 1e-3, 1e-5, 1e-6, 1e-8, 1e-10, 1e-15, 1e-30, 1e-100)
PRECISION_BITS = 4000


def relative_excess(noise_scale: float, epsilon: float, delta: float) -> float:
    """Return true delta / promised delta - 1, positive where the promise is broken."""
    ctx.prec = PRECISION_BITS
    mu, loss, root = 1 / arb(noise_scale), arb(epsilon), arb(2).sqrt()
    first = ((loss / mu - mu / 2) / root).erfc() / 2
    second = loss.exp() * ((loss / mu + mu / 2) / root).erfc() / 2
    return float(((first - second) / arb(delta) - 1).mid())


def ours(epsilon: float, delta: float) -> float:
    """Return matrixdp's noise scale."""
    return plan_for_budget(Budget(epsilon, delta), rows=1, columns=1, sensitivity=1.0).noise_scale


def main() -> None:
    """Print, for each library, how many of the scales are unsafe and by how much."""
    figures: dict[str, float] = {}
    for name, calibrate in (("matrixdp", ours), ("dp_accounting", get_sigma_gaussian)):
        excesses, failures = [], 0
        for epsilon in EPSILONS:
            for delta in DELTAS:
                try:
                    scale = float(calibrate(epsilon, delta))
                except (ArithmeticError, RuntimeError, ValueError):
                    scale = math.nan
                if not 0 < scale < math.inf:
                    failures += 1
                    continue
                excesses.append(relative_excess(scale, epsilon, delta))
        unsafe = [excess for excess in excesses if excess > 0]
        print(
            f"{name:14s} {len(excesses) + failures} budgets: {len(unsafe)} unsafe, "
            f"worst excess over delta {max(unsafe, default=0.0):.1e}, "
            f"most noise given away {-min(excesses):.1e} of delta, {failures} without an answer"
        )
        figures[f"budgets, {name}"] = len(excesses) + failures
        figures[f"unsafe, {name}"] = len(unsafe)
        figures[f"worst excess, {name}"] = max(unsafe, default=0.0)
    save("calibration_safety", figures)


if __name__ == "__main__":
    main()
