"""Records and targets of estimators, checked by messages that never show a value of the data.

scikit-learn's own checks would show values, and the number of records, which is private under
adding and removing. Of these, only the one that looks at widths and names of columns is used.
"""

from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import column_or_1d, validate_data

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.parameters import by_name, check_cells, names_of

__all__ = ["checked_features", "checked_records", "checked_transformed"]

FloatArray = NDArray[np.float64]

# scikit-learn's checks of estimators ask for some of the words in these messages.
_UNREADABLE = (
    "X cannot be read: pass a table of finite real numbers with a row for each of one or more "
    "records"
)
_ONE_BY_ONE = "drop or fill such records by a rule that looks at one record at a time"


def _checked_table(X: Any) -> FloatArray:
    """Return a table of finite numbers, one record in each row; an error shows no record."""
    table = _floats(_plain(X, "X"))
    if table.ndim != 2:
        raise InvalidParameterError(
            "Expected 2D array: Reshape your data: X.reshape(-1, 1) for one feature, "
            "X.reshape(1, -1) for one record"
        )
    if not table.shape[1]:
        raise InvalidParameterError(
            "X has 0 feature(s) (shape=(, 0)) while a minimum of 1 is required."
        )
    if not table.shape[0]:
        raise InvalidParameterError(_UNREADABLE)
    _check_finite(table, "X")
    return table


def checked_features(estimator: Any, X: Any, *, reset: bool) -> FloatArray:
    """Return a table of finite numbers, with columns that an estimator takes.

    Parameters
    ----------
    estimator : estimator
        Its ``n_features_in_`` and ``feature_names_in_`` are set, or compared.
    X : array_like or data frame
        Records in rows. Columns with names may be in another order than those of the fit.
    reset : bool
        Whether these are the records of a fit.

    Raises
    ------
    InvalidParameterError
        If it is not such a table; the message shows no record.
    """
    ordered = _in_order_of_fit(estimator, X, reset=reset)
    table = _checked_table(ordered)
    _check_columns(estimator, ordered, reset=reset)
    return table


def checked_transformed(X: Any, width: int, each: str) -> FloatArray:
    """Return finite numbers as ``transform`` gives them: in each row one for each of some things.

    Raises
    ------
    ShapeError
        If rows have another width; the message does not show how many there are.
    """
    table = _checked_table(X)
    if table.shape[1] != width:
        raise ShapeError(
            f"X has rows of {table.shape[1]} numbers: pass {width}, one for each {each}"
        )
    return table


def checked_records(estimator: Any, X: Any, y: Any) -> tuple[FloatArray, NDArray[Any]]:
    """Return the records of a fit and their targets; `checked_features` with one target for each.

    Raises
    ------
    InvalidParameterError
        If X is not a table of finite numbers, or y not one value for each of its rows.
    """
    if y is None:
        raise InvalidParameterError(
            "the estimator requires y to be passed, but the target y is None"
        )
    targets = _one_axis(_plain(y, "y"))
    _check_finite(targets, "y")
    table = checked_features(estimator, X, reset=True)
    if len(table) != len(targets):
        raise InvalidParameterError(
            "X and y have different numbers of records: pass one target for each row of X"
        )
    return table, targets


def _in_order_of_fit(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Return a table with the columns in the order of the fit, if it has exactly these names."""
    fitted = [] if reset else list(getattr(estimator, "feature_names_in_", []))
    names = names_of(X, fitted)
    if names is None:
        return X
    if len(set(names)) != len(names):
        raise InvalidParameterError("X has two columns of one name: give every column its own")
    # scikit-learn takes no notice of others, and would go by position.
    if not all(isinstance(name, str) for name in names):
        raise InvalidParameterError(
            "X has names of columns that are not text: name them by text, or pass X as an array"
        )
    # Names that are not those of the fit are refused by scikit-learn.
    return by_name(X, fitted) if set(fitted) == set(names) else X


def _plain(value: Any, name: str) -> NDArray[Any]:
    """Return an array of one kind of entries, which are not complex."""
    check_cells(value, name, bools=True)
    array = None
    with suppress(ValueError, TypeError):
        array = np.asarray(value)
    if array is None:
        raise InvalidParameterError(f"{name} is ragged: pass rows of one length")
    if array.dtype.kind == "c":
        raise InvalidParameterError(f"Complex data not supported: {name} must be real")
    return array


def _floats(array: NDArray[Any]) -> FloatArray:
    """Return the entries as float64; a message about one that is no number does not show it."""
    try:
        return np.asarray(array, dtype=np.float64)
    except (ValueError, TypeError, OverflowError) as error:
        kind = _kind_for(error)
    # Outside the handler, so that the error with its value is not attached to this one.
    raise kind(f"{_UNREADABLE}; an entry as an argument must be a string or a real number")


def _one_axis(array: NDArray[Any]) -> NDArray[Any]:
    """Return targets with one axis; a table of one column is taken with scikit-learn's warning."""
    if array.ndim == 1 or (array.ndim == 2 and array.shape[1] == 1):
        return np.asarray(column_or_1d(array, warn=True))
    raise InvalidParameterError("y should be a 1d array: pass one target for each row of X")


def _check_finite(array: NDArray[Any], name: str) -> None:
    """Raise if there is a float that is not a finite number."""
    if array.dtype.kind != "f":
        return
    if bool(np.isnan(array).any()):
        raise InvalidParameterError(f"{name} contains NaN: {_ONE_BY_ONE}")
    if bool(np.isinf(array).any()):
        raise InvalidParameterError(
            f"{name} contains infinity or a value too large for float64: {_ONE_BY_ONE}"
        )


def _check_columns(estimator: Any, X: Any, *, reset: bool) -> None:
    """Set the number and the names of columns, or raise if they are not those of the fit."""
    try:
        # Without the values, so that messages show nothing but widths, types and names of columns.
        validate_data(estimator, X, reset=reset, skip_check_array=True)
    except (ValueError, TypeError) as error:
        refusal = _kind_for(error)(str(error))
    else:
        return
    raise refusal


def _kind_for(error: Exception) -> type[InvalidParameterError]:
    return _UnreadableTypeError if isinstance(error, TypeError) else InvalidParameterError


class _UnreadableTypeError(InvalidParameterError, TypeError):
    """Data of the wrong type: also a TypeError, as scikit-learn's users expect."""
