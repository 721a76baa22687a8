"""Checks of parameters: one gate for numbers, one gate for arrays.

Every check raises an error that names the argument. Every comparison is written so that NaN fails
it. A bool is not a number here (``delta=True`` is always a mistake), nor is anything that float64
cannot hold exactly.
"""

from matrixdp.parameters.arrays import (
    LARGEST_EXACT_INTEGER,
    Limit,
    all_within,
    check_cells,
    check_within,
    checked_matrix,
    checked_symmetric,
    finite_array,
    integer_array,
    is_sparse,
    outside_limit,
    positive_vector,
    real_array,
    shaped_array,
)
from matrixdp.parameters.by_value import EqualByValue
from matrixdp.parameters.columns import TextColumn, columns_of
from matrixdp.parameters.names import (
    NamedRows,
    all_names_of,
    by_name,
    in_order_of,
    names_of,
)
from matrixdp.parameters.numbers import (
    DELTA,
    EPSILON,
    MU,
    Domain,
    broadcast_together,
    checked_choice,
    checked_integer,
    checked_integers,
    members_of,
    positive_integer,
    positive_number,
    proper_fraction,
    real_number,
)

__all__ = [
    "DELTA",
    "EPSILON",
    "LARGEST_EXACT_INTEGER",
    "MU",
    "Domain",
    "EqualByValue",
    "Limit",
    "NamedRows",
    "TextColumn",
    "all_names_of",
    "all_within",
    "broadcast_together",
    "by_name",
    "check_cells",
    "check_within",
    "checked_choice",
    "checked_integer",
    "checked_integers",
    "checked_matrix",
    "checked_symmetric",
    "columns_of",
    "finite_array",
    "in_order_of",
    "integer_array",
    "is_sparse",
    "members_of",
    "names_of",
    "outside_limit",
    "positive_integer",
    "positive_number",
    "positive_vector",
    "proper_fraction",
    "real_array",
    "real_number",
    "shaped_array",
]


def __dir__() -> list[str]:
    return __all__
