"""Compiling a loop with numba (extra ``fast``)."""

from collections.abc import Callable
from typing import Any, TypeVar

from matrixdp.interrupts import interrupts_held

__all__ = ["compiled"]

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(
    loop: Function, signature: Callable[[Any], Any], *, relaxations: frozenset[str]
) -> Function:
    """Compile a loop at once, or take it from the cache on disk; an interrupt waits meanwhile.

    The compiler calls back from C, where an interrupt would be printed and forgotten.

    Parameters
    ----------
    loop : callable
        Its closure variables become constants, by whose content the cache is keyed.
    signature : callable
        Returns the types of the arguments and of the result, from the module ``numba.types``.
    relaxations : frozenset of str
        Of IEEE arithmetic, by LLVM's names: those that no bit of the result rests on.
    """
    # The import as well: of an interrupt while numba loads, its callbacks would leave nothing.
    with interrupts_held():
        from numba import njit, types  # noqa: PLC0415 - an extra, imported late

        # nogil lets threads work side by side.
        options: dict[str, Any] = {
            "nogil": True,
            "error_model": "numpy",
            "fastmath": set(relaxations),
        }
        try:
            function: Function = njit(signature(types), cache=True, **options)(loop)
        except RuntimeError:  # no folder to keep compiled code in
            function = njit(signature(types), **options)(loop)
        return function
