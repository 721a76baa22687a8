"""The gate for arrays: what it refuses, what it converts, and that it never shows a cell."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import sparse

from matrixdp.errors import InvalidParameterError, MatrixDPError, ShapeError
from matrixdp.parameters import (
    Limit,
    all_within,
    check_within,
    checked_matrix,
    checked_symmetric,
    finite_array,
    integer_array,
    positive_vector,
    real_array,
)

SECRET = 123456789
GATES: dict[str, Callable[[Any], Any]] = {
    "real_array": lambda value: real_array(value, "answer"),
    "two axes": lambda value: real_array(value, "answer", axes=2),
    "float32": lambda value: real_array(value, "answer", keep_single=True),
    "finite_array": lambda value: finite_array(value, "answer"),
    "checked_matrix": lambda value: checked_matrix(value, "answer"),
    "checked_symmetric": lambda value: checked_symmetric(value, "answer"),
    "positive_vector": lambda value: positive_vector(value, "answer"),
    "integer_array": lambda value: integer_array(value, "answer"),
}
BAD: dict[str, Any] = {
    "masked": np.ma.array([[SECRET, 2.0]], mask=[[True, False]]),
    "a masked row": [np.ma.array([SECRET, 2.0], mask=[True, False]), [1.0, 2.0]],
    "sparse": sparse.csr_array([[SECRET, 2.0]]),
    "ragged": [[SECRET], [SECRET, 2]],
    "complex": np.array([[SECRET + 1j]]),
    "objects": np.array([[SECRET, None]], dtype=object),
    "text": [[str(SECRET)]],
    "none": None,
    "large integer": [[2**53 + 1]],
    "large integer among floats": [[2**60 + 1, 0.5]],
    "long double": np.array([[SECRET]], dtype=np.longdouble),
    "nan": [[SECRET, np.nan]],
    "infinity": np.array([[SECRET, -np.inf]]),
}
every_gate = pytest.mark.parametrize("gate", GATES.values(), ids=GATES)


@every_gate
@pytest.mark.parametrize("value", BAD.values(), ids=BAD)
def test_bad_arrays_are_refused_by_name_and_never_shown(
    gate: Callable[[Any], Any], value: Any
) -> None:
    with pytest.raises((InvalidParameterError, ShapeError), match="answer") as caught:
        gate(value)
    assert isinstance(caught.value, MatrixDPError)
    assert str(SECRET) not in str(caught.value)


@pytest.mark.parametrize("gate", [real_array, integer_array])
def test_how_long_text_is_does_not_show(gate: Callable[..., Any]) -> None:
    shown = set()
    for value in ([["a"]], [["a much longer name"]]):
        with pytest.raises(InvalidParameterError, match="has dtype str: pass") as refused:
            gate(value, "records")
        shown.add(str(refused.value))
    assert len(shown) == 1
    with pytest.raises(InvalidParameterError, match="has dtype bytes: pass"):
        gate([[b"abc"]], "records")


@pytest.mark.parametrize("value", [np.zeros(3), np.zeros((1, 2, 3)), np.zeros((0, 3)), 1.0, []])
def test_a_matrix_has_two_axes_and_something_in_it(value: Any) -> None:
    for name in ("two axes", "checked_matrix", "checked_symmetric"):
        with pytest.raises(ShapeError, match="not empty and have two axes"):
            GATES[name](value)


def test_what_each_gate_makes_of_numbers() -> None:
    single = np.ones((2, 2), np.float32)
    assert real_array(single, "answer", keep_single=True) is single
    assert real_array(single, "answer").dtype == np.float64
    assert real_array(np.ones(2, ">f4"), "answer", keep_single=True).dtype == np.float32
    plain = np.ones((2, 2))
    assert real_array(plain, "answer") is plain  # nothing is copied for nothing
    for copied in (finite_array(plain, "answer"), checked_matrix(plain, "answer")):
        assert not np.shares_memory(copied, plain)
    assert not checked_matrix(plain, "answer").flags.writeable
    assert finite_array([True, 2], "answer").tolist() == [1.0, 2.0]
    with pytest.raises(InvalidParameterError, match="booleans"):
        real_array([True, 2], "answer")
    assert integer_array([[1, 2]], "answer").dtype.kind == "i"
    assert integer_array([], "answer").size == 0
    with pytest.raises(InvalidParameterError, match="integers"):
        integer_array([2.0], "answer")
    with pytest.raises(InvalidParameterError, match=r"answer\[1\]=0\.0 must be positive"):
        positive_vector([1.0, 0.0], "answer")
    with pytest.raises(InvalidParameterError, match="float16"):
        real_array(np.ones(2, np.float16), "answer", keep_single=True)


def test_a_signalling_nan_is_refused_quietly() -> None:
    value = np.zeros((2, 2), dtype=np.float32)
    value.view(np.uint32)[1, 1] = 0x7FA00000
    for keep in (False, True):
        with np.errstate(all="raise"), pytest.raises(InvalidParameterError, match="NaN"):
            real_array(value, "answer", keep_single=keep)


@given(
    arrays.arrays(
        st.sampled_from([np.float32, np.float64]),
        st.sampled_from([(3, 4), (1, 7), (5, 1)]),
        elements=st.floats(width=32),
    ),
    st.floats(1.0, 1e30),
    st.booleans(),
)
def test_within_means_within(value: Any, largest: float, transposed: bool) -> None:  # noqa: FBT001
    array = value.T if transposed else value
    truth = all(abs(float(cell)) <= largest for cell in array.flat)
    assert all_within(array, largest) == truth
    rows = np.full((len(array), 1), largest)
    assert all_within(array, rows) == truth
    rows[0] = 0.5
    first = all(abs(float(cell)) <= 0.5 for cell in array[0])
    rest = all(abs(float(cell)) <= largest for cell in array[1:].flat)
    assert all_within(array, rows) == (first and rest)


def test_large_arrays_are_read_to_the_end() -> None:
    value = np.zeros((300, 1000))
    for array, largest in ((value, 1.0), (value.T, 1.0), (value, np.ones((300, 1)))):
        assert all_within(array, largest)
        value[-1, -1] = 1.5
        assert not all_within(array, largest)
        value[-1, -1] = 0.0


def test_a_limit_is_named_with_its_rule() -> None:
    limit = Limit(4.0, "at most 4.0, because there are four seats")
    check_within(np.array([[4.0, -4.0]]), "answer", limit)
    with pytest.raises(InvalidParameterError, match="because there are four seats"):
        check_within(np.array([[4.5]]), "answer", limit)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("exponent", [-600, -300, -120, -60, -41, -39, 0, 60, 120])
def test_limits_whose_squares_are_no_numbers(kind: type[np.floating[Any]], exponent: int) -> None:
    # Squares of numbers beyond a tiny limit underflow, and those of large ones overflow.
    largest = 2.0**exponent
    inside, beyond = kind(largest), kind(largest * 1.5)
    if not (0 < inside < beyond < np.inf):
        pytest.skip("not in the range of the type")
    assert all_within(np.full((5, 4), inside), largest)
    assert not all_within(np.full((5, 4), beyond), largest)
    assert not all_within(np.array([[0.0, beyond]], dtype=kind), largest)
