"""The source of the GPU kernels: two files behind the constants of the specification."""

from functools import lru_cache
from importlib.resources import files

from matrixdp.noise.specification import coarse_table, table
from matrixdp.noise.specification.normal_tail import root_two_over_pi

__all__ = ["COLUMNS", "DECIDING_THREADS", "THREADS", "WARP", "kernel_source"]

COLUMNS = (table.BINADES << table.SEGMENT_BITS) + 2
"""Columns of either table."""

THREADS = 1024
"""Threads of a block; there is one block for each multiprocessor."""

DECIDING_THREADS = 64
"""Threads of a block that decides what no table does: a warp for each element."""

WARP = 32
"""Threads that a GPU runs together: the lanes of the source."""

_FILES = "element_noise.cu", "exact_decision.cu"
_INTEGERS = {
    "COLUMNS": COLUMNS,
    "UNIFORM_BITS": table.UNIFORM_BITS,
    "ONE_BITS": table.ONE_BITS,
    "SEGMENT_BITS": table.SEGMENT_BITS,
    "FIRST_COLUMN": table.FIRST_COLUMN,
    "FRACTION_MASK": table.FRACTION_MASK,
    "PACKED_SHIFT": table.PACKED_SHIFT,
    "COARSE_SEGMENT_BITS": coarse_table.COARSE_SEGMENT_BITS,
    "COARSE_FIRST_COLUMN": coarse_table.COARSE_FIRST_COLUMN,
    "COARSE_FRACTION_MASK": coarse_table.COARSE_FRACTION_MASK,
    "A_SHIFT": coarse_table.A_SHIFT,
    "C0_SHIFT": coarse_table.C0_SHIFT,
    "DOUBLE_FRACTION": coarse_table.DOUBLE_FRACTION,
    "EIGHT_BITS": coarse_table.EIGHT_BITS,
}
_FLOATS = {
    "CENTRE": table.CENTRE,
    "DECIDED_BELOW": table.DECIDED_BELOW,
    "COARSE_CENTRE": coarse_table.COARSE_CENTRE,
    "COARSE_DECIDED_BELOW": coarse_table.COARSE_DECIDED_BELOW,
    "ROOT_TWO": coarse_table.ROOT_TWO,
}


@lru_cache(maxsize=2)
def kernel_source(*, four_tables: bool) -> str:
    """Return the source for GPUs whose blocks have room for four AES tables, or for others.

    Examples
    --------
    >>> kernel_source(four_tables=True).splitlines()[0]
    '#define FOUR_TABLES 1'
    """
    lines = [f"#define FOUR_TABLES {int(four_tables)}", f"#define THREADS {THREADS}"]
    lines += [f"#define DECIDING_THREADS {DECIDING_THREADS}", f"#define LANES {WARP}"]
    lines += [f"#define {name} {value}LL" for name, value in _INTEGERS.items()]
    # Hexadecimal, so that not a bit is lost.
    lines += [f"#define {name} {value.hex()}" for name, value in _FLOATS.items()]
    # With 64 bits more, whose bounds differ, so that it is too small by less than a unit.
    factor = root_two_over_pi(320)[0] >> 64
    lines += [f"#define ROOT_TWO_OVER_PI_{i} {factor >> 32 * i & 0xFFFFFFFF}U" for i in range(8)]
    folder = files("matrixdp.noise.kernels.cuda")
    return "\n".join([*lines, *(folder.joinpath(name).read_text("ascii") for name in _FILES)])
