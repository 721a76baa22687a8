"""Enclosures of delta for lists of steps, made once: ``python -m reference.loss_table`` in tests/.

Each row of ``loss_truth.csv`` has a list of parts, "multiplier rate steps" or "mu", an epsilon, and
two decimals between which `composed_delta` encloses the delta of the worst direction.
"""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from flint import arb, ctx

from reference.loss_composition import Part, Release, composed_delta, epsilon_near, is_below
from reference.loss_truth import ADD_REMOVE, REPLACE, Direction, Pair

_TABLE = Path(__file__).with_name("loss_truth.csv")
_DIGITS = 25

# Parts, and the deltas near which an epsilon is chosen.
_ADD_REMOVE_PLANS = {
    "0.7 0.5 2": (0.1, 1e-5, 1e-30),
    "2 0.3 3": (1e-5, 1e-100),
    "1 0.3 12": (0.1, 1e-5, 1e-12, 1e-100),
    "1 0.05 12": (1e-5, 1e-12),
    "5 0.9 12": (1e-5, 1e-100),
    "0.4 0.01 12, 0.2": (1e-3, 1e-5, 1e-30),
    "1 0.0001 12, 0.1": (1e-5, 1e-30),
    "1000 0.5 12": (1e-5, 1e-100),
    "0.5 0.1 1, 0.5": (1e-5, 1e-30),
    "1 0.2 5, 2 0.05 7, 0.3": (0.1, 1e-5, 1e-100),
    "3 0.2 4, 0.8 0.01 8": (1e-5, 1e-12),
    "1 0.01 1000": (0.1, 1e-5, 1e-12, 1e-30, 1e-100),
    "1 0.01 1000, 0.8 0.02 500, 0.3": (1e-5, 1e-30),
    "1 0.01 10000": (1e-5, 1e-30),
    "1 0.001 100000": (1e-5, 1e-30, 1e-100),
    "1 0.001 1000000": (1e-5, 1e-30, 1e-100),
    "2764 0.01 1000000": (1e-5, 1e-30),
    # Rare losses beside small ones: the generating function has two regimes.
    "1 0.001 21": (1e-5, 1e-12),
    "3.5 0.0175 28, 0.04": (1e-5, 1e-25),
    "24 0.0045 313": (1e-5, 1e-20),
}
_REPLACE_PLANS = {
    "2 0.3 3": (1e-5, 1e-100),
    "1 0.3 12": (0.1, 1e-5, 1e-30),
    "2 0.05 12, 0.3": (1e-5, 1e-30),
    "1 0.01 1000": (1e-5, 1e-30, 1e-100),
    "1 0.001 100000": (1e-5, 1e-30),
    "25 0.02 34": (1e-5, 1e-25),
}


@dataclass(frozen=True)
class Truth:
    """An epsilon, and decimals below and above its delta."""

    relation: str
    parts: str
    epsilon: float
    lower: str
    upper: str

    def steps(self) -> list[tuple[float, float, int]]:
        """Return multiplier, rate and number of every kind of step."""
        words = [part.split() for part in self.parts.split(",")]
        return [(float(s), float(q), int(count)) for s, q, count in (w for w in words if w[1:])]

    def releases(self) -> list[float]:
        """Return the mu of every Gaussian release."""
        words = [part.split() for part in self.parts.split(",")]
        return [float(word[0]) for word in words if not word[1:]]


def truths() -> list[Truth]:
    """Return the stored rows."""
    with _TABLE.open(newline="") as file:
        return [
            Truth(**{**row, "epsilon": float(row["epsilon"])})  # type: ignore[arg-type]
            for row in csv.DictReader(file)
        ]


def directed(truth: Truth, direction: Direction) -> list[Part]:
    """Return the parts of a row in one direction."""
    steps: list[Part] = [(Pair(s, q, direction), count) for s, q, count in truth.steps()]
    return steps + [(Release(mu), 1) for mu in truth.releases()]


def enclosed(relation: str, parts: str, epsilon: float) -> Truth:
    """Compute a row."""
    blank = Truth(relation, parts, epsilon, "", "")
    worst, *others = (directed(blank, each) for each in directions(relation))
    delta = composed_delta(worst, epsilon)
    for other in others:
        if not is_below(other, epsilon, delta):
            delta = delta.max(composed_delta(other, epsilon))
    return Truth(relation, parts, epsilon, *decimals(delta))


def directions(relation: str) -> Sequence[Direction]:
    return ADD_REMOVE if relation == "add-remove" else REPLACE


def decimals(ball: arb) -> tuple[str, str]:
    """Return decimals below and above a ball."""
    with ctx.workprec(200):
        # Printing rounds; a part in 1e24 is more than that.
        slack = abs(ball) * arb("1e-24")
        ends = ((ball - slack).lower(), (ball + slack).upper())
        return tuple(end.str(_DIGITS, radius=False) for end in ends)  # type: ignore[return-value]


def _rows() -> Iterator[Truth]:
    for relation, plans in (("add-remove", _ADD_REMOVE_PLANS), ("replace", _REPLACE_PLANS)):
        for parts, deltas in plans.items():
            for delta in deltas:
                blank = Truth(relation, parts, 0.0, "", "")
                found = epsilon_near(directed(blank, directions(relation)[0]), delta)
                yield enclosed(relation, parts, float(f"{found:.3g}"))


def main() -> None:
    """Write the table."""
    with _TABLE.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["relation", "parts", "epsilon", "lower", "upper"])
        for row in _rows():
            writer.writerow([row.relation, row.parts, row.epsilon, row.lower, row.upper])
            file.flush()


if __name__ == "__main__":
    main()
