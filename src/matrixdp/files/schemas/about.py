"""Schemas of what statements say for people: about what, when, and by which version."""

import re
from dataclasses import asdict
from datetime import UTC, date, datetime
from typing import Protocol, TypeVar

import msgspec

from matrixdp.errors import InvalidParameterError
from matrixdp.files.schemas.values import Schema
from matrixdp.mechanisms.about import About

__all__ = ["AboutSchema", "about_of", "checked_stamp", "stamped", "stated_about"]

# The versions of this library; nothing else can be hidden in their place.
_VERSION = re.compile(r"[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4}")


class AboutSchema(Schema, frozen=True, omit_defaults=True):
    """An `About`."""

    dataset: str | None = None
    purpose: str | None = None
    unit: str | None = None
    missing: str | None = None


class _Stamped(Protocol):
    @property
    def date(self) -> str | None: ...

    @property
    def version(self) -> str | None: ...


S = TypeVar("S", bound=msgspec.Struct)


def stated_about(about: About | None) -> AboutSchema | None:
    """Return the schema of what a release is about."""
    return None if about is None else AboutSchema(**asdict(about))


def about_of(schema: AboutSchema | None) -> About | None:
    """Return what a statement says that its release is about, or raise if it says too much."""
    if schema is None:
        return None
    return About(**msgspec.structs.asdict(schema))


def stamped(statement: S) -> S:
    """Return a statement with today's date (UTC) and the version of the library.

    Not before it is written: a release that is finished after a crash may be so on another day.
    """
    from matrixdp import __version__  # noqa: PLC0415 - the top level imports what is below it

    today = datetime.now(UTC).date().isoformat()
    return msgspec.structs.replace(statement, date=today, version=__version__)


def checked_stamp(statement: _Stamped) -> None:
    """Raise unless date and version are that, and nothing else."""
    if statement.date is not None:
        try:
            exact = date.fromisoformat(statement.date).isoformat() == statement.date
        except ValueError:
            exact = False
        if not exact:
            raise InvalidParameterError("its date is not a day such as 2026-01-31")
    if statement.version is not None and not _VERSION.fullmatch(statement.version):
        raise InvalidParameterError("its version is not one of this library")
