"""Schemas of workloads: the kind and the size of every factor, and the matrices of dense ones.

A workload is written as the union of products that it is. The matrices of `Dense` factors are
arrays, named ``queries_0``, ``queries_1`` and so on.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from numpy.typing import NDArray

from matrixdp.errors import FileFormatError, InvalidParameterError
from matrixdp.files.schemas.values import Schema
from matrixdp.workloads import (
    Dense,
    Factor,
    Identity,
    Prefix,
    Product,
    Ranges,
    Total,
    Union,
    Workload,
)

__all__ = ["CellNamesSchema", "FactorSchema", "stated_workload", "workload_of"]


class CellNamesSchema(Schema, frozen=True):
    """The names of an attribute and of its cells, as a user typed them."""

    name: str
    labels: tuple[str, ...]


class _FactorKind(Schema, frozen=True, tag_field="kind"):
    """One of several kinds of factors, which the field ``kind`` distinguishes."""


class _IdentitySchema(_FactorKind, frozen=True, tag="Identity"):
    """An `Identity`."""

    size: int


class _TotalSchema(_FactorKind, frozen=True, tag="Total"):
    """A `Total`."""

    size: int


class _PrefixSchema(_FactorKind, frozen=True, tag="Prefix"):
    """A `Prefix`."""

    size: int


class _RangesSchema(_FactorKind, frozen=True, tag="Ranges"):
    """`Ranges`."""

    size: int
    longest: int  # equal to the size if all ranges are asked


class _DenseSchema(_FactorKind, frozen=True, tag="Dense"):
    """A `Dense` factor: the name of the array that holds its matrix."""

    # A name and not the numbers: JSON would be several times larger, and slower to read.
    array: str


FactorSchema: TypeAlias = (
    _IdentitySchema | _TotalSchema | _PrefixSchema | _RangesSchema | _DenseSchema
)


def stated_workload(
    workload: Workload,
) -> tuple[list[list[FactorSchema]], dict[str, NDArray[Any]]]:
    """Return the factors of each product of a workload, and the arrays that they refer to.

    Raises
    ------
    InvalidParameterError
        If the workload has a factor of a kind that is not part of the library.
    """
    arrays: dict[str, NDArray[Any]] = {}
    return [[_stated(factor, arrays) for factor in term] for term in workload.terms()], arrays


def _stated(factor: Factor, arrays: dict[str, NDArray[Any]]) -> FactorSchema:
    # The type itself and no subclass, which may ask other queries.
    kind = type(factor)
    if isinstance(factor, Identity) and kind is Identity:
        return _IdentitySchema(factor.size)
    if isinstance(factor, Total) and kind is Total:
        return _TotalSchema(factor.size)
    if isinstance(factor, Prefix) and kind is Prefix:
        return _PrefixSchema(factor.size)
    if isinstance(factor, Ranges) and kind is Ranges:
        return _RangesSchema(factor.size, factor.longest)
    if isinstance(factor, Dense) and kind is Dense:
        name = f"queries_{len(arrays)}"
        arrays[name] = factor.matrix
        return _DenseSchema(name)
    raise InvalidParameterError(
        f"workload has a factor of type {kind.__name__}, which cannot be saved: pass "
        "Dense(factor.matrix_of_queries()) instead"
    )


def workload_of(terms: list[list[FactorSchema]], arrays: Mapping[str, NDArray[Any]]) -> Workload:
    """Return the workload of a schema.

    Raises
    ------
    FileFormatError
        If an array is missing, or one is left over.
    MatrixDPError
        If the factors do not make a workload.
    """
    # Exactly the arrays that are used, each once: nothing that is not part of the workload.
    used = [factor.array for term in terms for factor in term if isinstance(factor, _DenseSchema)]
    if sorted(used) != sorted(arrays):
        raise FileFormatError(
            f"its workload needs the arrays {sorted(used)} and the file holds {sorted(arrays)}"
        )
    parts = [_product([_factor(factor, arrays) for factor in term]) for term in terms]
    return parts[0] if len(parts) == 1 else Union(parts)


def _product(factors: list[Factor]) -> Workload:
    # As it was made: a single factor is not wrapped, which its repr would not show anyway.
    return factors[0] if len(factors) == 1 else Product(factors)


def _factor(schema: FactorSchema, arrays: Mapping[str, NDArray[Any]]) -> Factor:
    match schema:
        case _IdentitySchema():
            return Identity(schema.size)
        case _TotalSchema():
            return Total(schema.size)
        case _PrefixSchema():
            return Prefix(schema.size)
        case _RangesSchema():
            return Ranges(schema.size, schema.longest)
        case _DenseSchema():
            return Dense(arrays[schema.array])
