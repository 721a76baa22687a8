"""A release is short to read: few files have a part in it."""

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import matrixdp
from matrixdp import IMGM, Budget, FrobeniusBall, ReleaseKey
from matrixdp.mechanisms.proof import kept_proof

SOURCE = Path(matrixdp.__file__).parent
# Of making a mechanism and releasing: once noise for a shape is prepared, and before.
MOST_FILES, MOST_FILES_AT_FIRST = 20, 25


def files_entered(way: Any) -> set[str]:
    """Return the files of this package whose functions are entered by a call."""
    entered: set[str] = set()

    def notice(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            entered.add(frame.f_code.co_filename)

    former = sys.getprofile()
    sys.setprofile(notice)
    try:
        way()
    finally:
        sys.setprofile(former)
    return {
        str(Path(name).relative_to(SOURCE)) for name in entered if Path(name).is_relative_to(SOURCE)
    }


def test_few_files_are_on_the_way_of_a_release() -> None:
    ball, matrix = FrobeniusBall(1.0, neighbouring="add-remove"), np.zeros((10, 10))
    budget = Budget(1.0, 1e-5)

    def way() -> None:
        # A fixed key: with another, an element in a million goes to the exact path.
        IMGM(ball, budget).release(matrix, key=ReleaseKey.from_bytes(bytes(32)))

    way()  # imports and compiles what is needed
    again = files_entered(way)
    assert len(again) <= MOST_FILES, sorted(again)
    kept_proof.cache_clear()
    first = files_entered(way)
    assert len(first) <= MOST_FILES_AT_FIRST, sorted(first)
    assert {"mechanisms/gaussian.py", "noise/keys/stream.py"} <= again
