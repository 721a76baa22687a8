"""Records as scikit-learn reads them, with errors that never show a value of the data.

scikit-learn's own messages do: a number that is not one, a vector where a table was expected, and
the number of records, which is private under adding and removing.
"""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from matrixdp.errors import InvalidParameterError

__all__ = ["checked_features", "checked_records"]

FloatArray = NDArray[np.float64]
Result = TypeVar("Result")

# What may be passed on: these hold widths, names of columns and words, all of them public.
_PUBLIC_MESSAGES = re.compile(
    r"X has \d+ features, but \w+ is expecting \d+ features as input"
    r"|Found array with 0 sample\(s\)"
    r"|Input [Xy] contains (?:NaN|infinity or a value too large for dtype\('\w+'\))"
    r"|Input contains (?:NaN|infinity or a value too large for dtype\('\w+'\))"
    r"|Complex data not supported"
    r"|Sparse data was passed"
    r"|Expected 2D array, got (?:1D|scalar) array instead"
    r"|The feature names should match those that were passed during fit\.(?:\n.*)*"
    r"|\w+ requires y to be passed, but the target y is None"
    r"|argument must be a string or a real number, not '\w+'"
)
_ADVICE = {
    "Expected 2D array": "Reshape your data: X.reshape(-1, 1) for one feature, "
    "X.reshape(1, -1) for one record",
    "Sparse data": "pass X.toarray()",
    "Complex data": "X and y must be real",
    "Input": "drop or fill such records by a rule that looks at one record at a time",
}


def checked_features(estimator: Any, X: Any, *, reset: bool) -> FloatArray:
    """Return a table of finite numbers, one record in each row.

    Parameters
    ----------
    estimator : estimator
        Its ``n_features_in_`` and ``feature_names_in_`` are set, or compared.
    X : array_like or data frame
        Records in rows.
    reset : bool
        Whether these are the records of a fit.

    Raises
    ------
    InvalidParameterError
        If it is not such a table; the message shows no record.
    """
    # Typed by the annotation; scikit-learn has no types.
    table: FloatArray = _without_values(
        "X", lambda: validate_data(estimator, X, reset=reset, dtype=np.float64)
    )
    return table


def checked_records(estimator: Any, X: Any, y: Any) -> tuple[FloatArray, NDArray[Any]]:
    """Return the records of a fit and their targets; `checked_features` with one target for each.

    Raises
    ------
    InvalidParameterError
        If X is not a table of finite numbers, or y not one value for each of its rows.
    """
    pair: tuple[FloatArray, NDArray[Any]] = _without_values(
        "X or y", lambda: validate_data(estimator, X, y, dtype=np.float64)
    )
    return pair


def _without_values(name: str, read: Callable[[], Result]) -> Result:
    """Return what ``read`` returns; an error of it is raised with public words only."""
    try:
        return read()
    except (ValueError, TypeError, OverflowError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        message = _public_message(name, str(error))
    # Outside the handler, so that the original error and its values are not attached to this one.
    if kind is TypeError:
        raise _UnreadableTypeError(message)
    raise InvalidParameterError(message)


class _UnreadableTypeError(InvalidParameterError, TypeError):
    """Data of the wrong type: also a TypeError, as scikit-learn's users expect."""


def _public_message(name: str, message: str) -> str:
    if "inconsistent numbers of samples" in message:
        return "X and y have different numbers of records: pass one target for each row of X"
    if "should be a 1d array" in message:
        return "y should be a 1d array: pass one target for each row of X"
    if "unique column names" in message or "Feature names are only supported" in message:
        return "X has column names that are not all different, or not all text: rename its columns"
    if "0 feature(s)" in message:
        # In scikit-learn's words, less the number of records.
        return "X has 0 feature(s) (shape=(, 0)) while a minimum of 1 is required."
    found = _PUBLIC_MESSAGES.search(message)
    if found is None:
        return (
            f"{name} cannot be read: pass a table of finite real numbers with one record in each "
            "row, and one target for each record"
        )
    advice = next((text for start, text in _ADVICE.items() if found[0].startswith(start)), None)
    return found[0] if advice is None else f"{found[0]}: {advice}"
