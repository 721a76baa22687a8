"""Records of statements: written and read back without a change, or refused with their field."""

import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixdp import FrobeniusBall, Guarantee, Isotropic, Kronecker, RowBox
from matrixdp.covariance import Covariance, Diagonal, SymmetricDiagonal, SymmetricIsotropic
from matrixdp.errors import FileFormatError, InvalidParameterError
from matrixdp.files.publishing.releases import ReleaseStatement
from matrixdp.files.publishing.statement import decoded, encoded
from matrixdp.files.publishing.strategies import StrategyStatement
from matrixdp.files.schemas.values import (
    CovarianceSchema,
    GuaranteeSchema,
    Schema,
    SensitivitySchema,
    covariance_of,
    guarantee_of,
    sensitivity_of,
    stated_covariance,
    stated_guarantee,
    stated_sensitivity,
)
from matrixdp.sensitivity import ScaledBall, ScaledSymmetricBall
from matrixdp.sensitivity.sets import RowBounds, SymmetricBall

POSITIVE = st.floats(min_value=math.ulp(0.0), allow_infinity=False)


def read_again(schema: Schema, kind: Any) -> Any:
    return msgspec.json.decode(encoded(schema), type=kind)


@given(st.lists(POSITIVE, min_size=1))
def test_numbers_read_back_to_the_same_floats(numbers: list[float]) -> None:
    schema = stated_sensitivity(RowBox(numbers, "replace", weights=numbers[::-1]))
    again = sensitivity_of(read_again(schema, SensitivitySchema))
    assert isinstance(again, RowBox)
    assert again.bounds.tolist() == numbers
    assert again.weights.tolist() == numbers[::-1]


@pytest.mark.parametrize(
    "sensitivity",
    [
        FrobeniusBall(0.1, "replace"),
        SymmetricBall(1e-300, "add-remove"),
        RowBounds([0.1, 1 / 3], "replace"),
        RowBox([0.1, 1 / 3], "add-remove", weights=[1.0, 7.0]),
        ScaledBall(0.1, [1 / 3], [0.1, 7.0], "replace"),
        ScaledSymmetricBall(0.1, [1 / 3, 7.0], "add-remove"),
    ],
)
def test_sets_read_back(sensitivity: Any) -> None:
    schema = stated_sensitivity(sensitivity)
    again = sensitivity_of(read_again(schema, SensitivitySchema))
    assert type(again) is type(sensitivity)
    assert stated_sensitivity(again) == schema
    assert again.neighbouring == sensitivity.neighbouring


@pytest.mark.parametrize(
    "covariance",
    [
        Isotropic(1 / 3),
        SymmetricIsotropic(1 / 3),
        SymmetricDiagonal([1 / 3, 7.0]),
        Diagonal([[0.1], [0.2]]),
        Kronecker([[2.0, 0.1], [0.1, 1.0]], [[1 / 3]]),
        Kronecker(rows=[[2.0, 0.1], [0.1, 1.0]]),
        Kronecker(columns=[[3.0]]),
    ],
)
def test_covariances_read_back(covariance: Covariance) -> None:
    schema = stated_covariance(covariance)
    again = covariance_of(read_again(schema, CovarianceSchema))
    assert type(again) is type(covariance)
    assert stated_covariance(again) == schema


def test_guarantees_read_back() -> None:
    promise = Guarantee.of_mu(1 / 3, delta=1e-7, neighbouring="replace").for_group(3)
    assert guarantee_of(read_again(stated_guarantee(promise), GuaranteeSchema)) == promise


def test_other_kinds_are_not_recorded() -> None:
    unknown: Any = "noise"
    with pytest.raises(InvalidParameterError, match="a str cannot be saved"):
        stated_covariance(unknown)


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
        ('{"schema": "matrixdp-release/1"}', "has schema 'matrixdp-release/1', not"),
    ],
)
def test_what_is_not_a_statement_is_refused(kind: Any, text: str, message: str) -> None:
    with pytest.raises(FileFormatError, match=message) as refusal:
        decoded(text.encode(), kind, "a.json")
    assert str(refusal.value).startswith("a.json ")


def test_statements_are_text_for_people() -> None:
    text = encoded(stated_sensitivity(RowBox(np.array([1.0, 2.0]), "replace"))).decode()
    assert text.startswith('{\n  "kind": "RowBox",\n')
    assert text.endswith("}\n")
