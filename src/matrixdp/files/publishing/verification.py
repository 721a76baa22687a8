"""Verification of saved releases of any kind: their statement, once it is proven."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, Union

from matrixdp.errors import InvalidParameterError
from matrixdp.files.publishing.chunked_release import ChunkedStatement, verified_chunks
from matrixdp.files.publishing.releases import ReleaseStatement, verified_statement
from matrixdp.files.publishing.statement import read_schema
from matrixdp.privacy.guarantee import Guarantee

if TYPE_CHECKING:
    from matrixdp.files.publishing.workload_releases import WorkloadStatement

__all__ = ["Statement", "Verified", "verified_file"]

Statement: TypeAlias = Union[ReleaseStatement, ChunkedStatement, "WorkloadStatement"]


class Verified(NamedTuple):
    """A file that proves its guarantee, and its statement."""

    statement: Statement
    guarantee: Guarantee


def verified_file(file: Path) -> Verified:
    """Prove the guarantee of a saved release of any kind, from the file and its statement.

    A folder of chunks is proven one by one, by threads.

    Raises
    ------
    InvalidParameterError
        If it is not a release that could prove anything.
    FileFormatError
        If it does not prove its guarantee.
    """
    schema = read_schema(file)
    if schema.startswith("matrixdp-strategy/"):
        raise InvalidParameterError(
            f"{file} is a strategy: it holds no data and guarantees nothing; verify what workload "
            "answer wrote"
        )
    if file.is_dir():
        return Verified(*verified_chunks(file))
    if schema.startswith("matrixdp-workload-release/"):
        # Late: workloads are slow to import.
        from matrixdp.files.publishing.workload_releases import load_stated_workload  # noqa: PLC0415

        release, statement = load_stated_workload(file)
        return Verified(statement, release.guarantee)
    return Verified(*verified_statement(file))
