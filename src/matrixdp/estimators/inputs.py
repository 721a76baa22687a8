"""Records as scikit-learn reads them, with errors that never show a value of the data.

scikit-learn's own messages do: a number that is not one, a vector where a table was expected, and
the number of records, which is private under adding and removing.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_array, check_X_y, validate_data

from matrixdp.errors import InvalidParameterError

__all__ = ["checked_features", "checked_records", "checked_table"]

FloatArray = NDArray[np.float64]
Result = TypeVar("Result")

_ONE_BY_ONE = "drop or fill such records by a rule that looks at one record at a time"
# What is said where scikit-learn's message has these words. All of it is public: its checks of
# estimators ask for some of these words.
_REASONS = {
    "y to be passed": "the estimator requires y to be passed, but the target y is None",
    "inconsistent numbers of samples": "X and y have different numbers of records: pass one target "
    "for each row of X",
    "should be a 1d array": "y should be a 1d array: pass one target for each row of X",
    "0 feature(s)": "X has 0 feature(s) (shape=(, 0)) while a minimum of 1 is required.",
    "Complex data": "Complex data not supported: X and y must be real",
    "Sparse data": "Sparse data was passed: pass X.toarray()",
    "contains NaN": f"X or y contains NaN: {_ONE_BY_ONE}",
    "contains infinity": "X or y contains infinity or a value too large for float64: "
    f"{_ONE_BY_ONE}",
    "Expected 2D array": "Expected 2D array: Reshape your data: X.reshape(-1, 1) for one feature, "
    "X.reshape(1, -1) for one record",
    "string or a real number": "X holds an object, and every entry as an argument must be a string "
    "or a real number",
}


def checked_table(X: Any) -> FloatArray:
    """Return a table of finite numbers, one record in each row; an error shows no record."""
    # Typed by the annotation; scikit-learn has no types.
    table: FloatArray = _without_values(
        lambda: check_array(X, dtype=np.float64, input_name="X"), _public_reason
    )
    return table


def checked_features(estimator: Any, X: Any, *, reset: bool) -> FloatArray:
    """Return `checked_table`, with columns that an estimator takes.

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
    table = checked_table(X)
    _check_columns(estimator, X, reset=reset)
    return table


def checked_records(estimator: Any, X: Any, y: Any) -> tuple[FloatArray, NDArray[Any]]:
    """Return the records of a fit and their targets; `checked_features` with one target for each.

    Raises
    ------
    InvalidParameterError
        If X is not a table of finite numbers, or y not one value for each of its rows.
    """
    pair: tuple[FloatArray, NDArray[Any]] = _without_values(
        lambda: check_X_y(X, y, dtype=np.float64), _public_reason
    )
    _check_columns(estimator, X, reset=True)
    return pair


def _check_columns(estimator: Any, X: Any, *, reset: bool) -> None:
    """Set the number and the names of columns, or raise if they are not those of the fit."""
    # Without the values, so that messages show nothing but widths, types and names of columns.
    _without_values(
        lambda: validate_data(estimator, X, reset=reset, skip_check_array=True), lambda said: said
    )


def _public_reason(said: str) -> str:
    """Return why scikit-learn refused the data, in words that show none of it."""
    return next(
        (reason for words, reason in _REASONS.items() if words in said),
        "X or y cannot be read: pass a table of finite real numbers with a row for each of one or "
        "more records, and a target for each row where there are targets",
    )


def _without_values(read: Callable[[], Result], reason: Callable[[str], str]) -> Result:
    """Return what ``read`` returns; an error of it is raised with public words only."""
    try:
        return read()
    except (ValueError, TypeError, OverflowError) as error:
        kind = _UnreadableTypeError if isinstance(error, TypeError) else InvalidParameterError
        message = reason(str(error))
    # Outside the handler, so that the original error and its values are not attached to this one.
    raise kind(message)


class _UnreadableTypeError(InvalidParameterError, TypeError):
    """Data of the wrong type: also a TypeError, as scikit-learn's users expect."""
