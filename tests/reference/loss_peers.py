"""Bounds of epsilon that other libraries prove, stored by benchmarks/accountant_peers.py."""

import csv
from dataclasses import dataclass
from pathlib import Path

_TABLE = Path(__file__).with_name("loss_peers.csv")


@dataclass(frozen=True)
class PeerBounds:
    """What one library says of equal steps."""

    name: str
    relation: str
    multiplier: float
    rate: float
    steps: int
    delta: float
    lower: float
    upper: float


def peer_bounds() -> list[PeerBounds]:
    """Return the stored rows."""
    with _TABLE.open(newline="") as file:
        return [
            PeerBounds(
                name=f"{row['version']}, {row['relation']}, {row['steps']} steps",
                relation=row["relation"],
                multiplier=float(row["multiplier"]),
                rate=float(row["rate"]),
                steps=int(row["steps"]),
                delta=float(row["delta"]),
                lower=float(row["lower"]),
                upper=float(row["upper"]),
            )
            for row in csv.DictReader(file)
        ]
