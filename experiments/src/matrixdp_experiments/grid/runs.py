"""Runs: everything that the outcome of a training depends on, and the name that follows from it."""

import hashlib
from typing import Literal

import msgspec

__all__ = ["DELTA", "Run", "Split", "run_key"]

DELTA = 1e-5
"""The delta of every guarantee, claimed or true."""

Split = Literal["test", "choosing"]
"""What a run is judged on: the test records, or those that hyper-parameters are chosen on."""


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything that the outcome of one training depends on, besides the program.

    ``noise_multiplier`` is missing where no noise is added; ``layers`` has the multipliers of
    layers with noise of their own; ``half`` is there where numbers of 16 bits are multiplied, and
    ``sum_norm``, a bound of the norm of a step's sum, where the mechanism needs one.
    """

    experiment: str = "type-one"
    dataset: str
    split: Split
    seed: int
    records: int
    lot_size: int
    steps: int
    learning_rate: float
    momentum: float
    weight_decay: float = 0.0
    augmented: bool = False
    clip_norm: float | None = None
    noise_multiplier: float | None = None
    layers: dict[str, float] = {}
    # Left out rather than false or null: the name of a run follows from what is written of it.
    half: Literal[True] | msgspec.UnsetType = msgspec.UNSET
    sum_norm: float | msgspec.UnsetType = msgspec.UNSET


def run_key(run: object) -> str:
    """Return a name for a run, a msgspec structure; equal runs share it."""
    # The shortest digits that give the same floats again, so that any difference shows.
    return hashlib.sha256(msgspec.json.encode(run, order="sorted")).hexdigest()[:16]
