"""Records of statements: written and read back without a change, or refused with their field."""

import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixdp import Box, FrobeniusBall, Guarantee, Isotropic, Kronecker, OneSided
from matrixdp.covariance import Covariance, Diagonal, SymmetricIsotropic
from matrixdp.errors import FileFormatError, InvalidParameterError
from matrixdp.files.records import (
    CovarianceRecord,
    GuaranteeRecord,
    Record,
    SensitivityRecord,
    covariance_of,
    guarantee_of,
    recorded_covariance,
    recorded_guarantee,
    recorded_sensitivity,
    sensitivity_of,
)
from matrixdp.files.releases import ReleaseStatement
from matrixdp.files.statement import decoded, encoded
from matrixdp.files.strategies import StrategyStatement
from matrixdp.sensitivity.sets import RowBounds, SymmetricBall

POSITIVE = st.floats(min_value=math.ulp(0.0), allow_infinity=False)


def read_again(record: Record, kind: Any) -> Any:
    return msgspec.json.decode(encoded(record), type=kind)


@given(st.lists(POSITIVE, min_size=1))
def test_numbers_read_back_to_the_same_floats(numbers: list[float]) -> None:
    record = recorded_sensitivity(Box(numbers, "replace", weights=numbers[::-1]))
    again = sensitivity_of(read_again(record, SensitivityRecord))
    assert isinstance(again, Box)
    assert again.bounds.tolist() == numbers
    assert again.weights.tolist() == numbers[::-1]


@pytest.mark.parametrize(
    "sensitivity",
    [
        FrobeniusBall(0.1, "replace"),
        SymmetricBall(1e-300, "add-remove"),
        RowBounds([0.1, 1 / 3], "replace"),
        Box([0.1, 1 / 3], "add-remove", weights=[1.0, 7.0]),
    ],
)
def test_sets_read_back(sensitivity: Any) -> None:
    record = recorded_sensitivity(sensitivity)
    again = sensitivity_of(read_again(record, SensitivityRecord))
    assert type(again) is type(sensitivity)
    assert recorded_sensitivity(again) == record
    assert again.neighbouring == sensitivity.neighbouring


@pytest.mark.parametrize(
    "covariance",
    [
        Isotropic(1 / 3),
        SymmetricIsotropic(1 / 3),
        Diagonal([[0.1], [0.2]]),
        Kronecker([[2.0, 0.1], [0.1, 1.0]], [[1 / 3]]),
        OneSided([[2.0, 0.1], [0.1, 1.0]], "rows"),
        OneSided([[3.0]], "columns"),
    ],
)
def test_covariances_read_back(covariance: Covariance) -> None:
    record = recorded_covariance(covariance)
    again = covariance_of(read_again(record, CovarianceRecord))
    assert type(again) is type(covariance)
    assert recorded_covariance(again) == record


def test_guarantees_read_back() -> None:
    promise = Guarantee.of_mu(1 / 3, delta=1e-7, neighbouring="replace").for_group(3)
    assert guarantee_of(read_again(recorded_guarantee(promise), GuaranteeRecord)) == promise


def test_other_kinds_are_not_recorded() -> None:
    unknown: Any = "noise"
    with pytest.raises(InvalidParameterError, match="a str cannot be saved"):
        recorded_covariance(unknown)


@pytest.mark.parametrize("kind", [ReleaseStatement, StrategyStatement])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "truncated"),
        ("{}", "schema"),
        ("[]", "array"),
        ("null", "null"),
        ('{"schema": 1}', r"\$.schema"),
        ('{"schema": "other/1"}', "has schema 'other/1', not 'matrixdp-"),
        ('{"schema": "matrixdp-answers/1"}', "nothing proves their guarantee"),
    ],
)
def test_what_is_not_a_statement_is_refused(kind: Any, text: str, message: str) -> None:
    with pytest.raises(FileFormatError, match=message) as refusal:
        decoded(text.encode(), kind, "a.json")
    assert str(refusal.value).startswith("a.json ")


def test_statements_are_text_for_people() -> None:
    text = encoded(recorded_sensitivity(Box(np.array([1.0, 2.0]), "replace"))).decode()
    assert text.startswith('{\n  "kind": "Box",\n')
    assert text.endswith("}\n")
