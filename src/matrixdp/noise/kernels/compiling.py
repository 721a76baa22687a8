"""Compiling loops over a block by numba (extra ``fast``).

Tables are frozen into the machine code, because only loads from a constant let a loop be
vectorised. A compiled function gets them as closure variables, like every other constant, and
numba's cache on disk is keyed on the content of those: code compiled for one table can never be
used for another table or error bound. Of the relaxations of IEEE arithmetic only contraction
(fused multiply-add) is allowed, which the proof of the tables covers.
"""

from collections.abc import Callable
from typing import Any, cast

from matrixdp.interrupts import interrupts_held

__all__ = ["Loop", "compiled"]

Loop = Callable[..., int]
"""Takes values, words, scales, shift of the grid, output and marks; returns how many are left."""


def compiled(loop: Loop, value_bytes: int) -> Loop:
    """Compile a loop for values and noisy values of 8 bytes or 4; an interrupt waits meanwhile.

    The compiler calls back from C, where an interrupt would be printed and forgotten.
    """
    # The import as well: of an interrupt while numba loads, its callbacks would leave nothing.
    with interrupts_held():
        return _compiled(loop, value_bytes)


def _compiled(loop: Loop, value_bytes: int) -> Loop:
    from numba import njit, types  # noqa: PLC0415 - an extra, imported late

    # Read-only arrays, because the value and the words may be. A fixed signature compiles at once,
    # before a key is spent, and not in the middle of a release.
    kind: Any = types.float32 if value_bytes == 4 else types.float64
    integers, floats, given = (
        types.Array(number, 1, "C", readonly=True) for number in (types.int64, types.float64, kind)
    )
    signature = types.int64(given, integers, floats, types.int64, kind[::1], types.boolean[::1])
    # nogil lets threads work side by side; "contract" is the one relaxation that is proven.
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"}}
    try:
        function = njit(signature, cache=True, **options)(loop)
    except RuntimeError:  # no folder to keep compiled code in
        function = njit(signature, **options)(loop)
    return cast("Loop", function)
