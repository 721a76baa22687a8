"""Running one task for each chunk, on a cluster or in this process, and what the tasks answer.

A task answers with its errors instead of raising them: what is raised on a worker is logged there
and shown on dashboards, and the words of foreign libraries may quote numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import dask.array as da
from dask.callbacks import Callback
from distributed import Client, as_completed, default_client, futures_of

from matrixdp.errors import InvalidParameterError, MatrixDPError, ShapeError, StorageError
from matrixdp.files.formats.chunk_layout import ChunkIndex

__all__ = ["Advance", "Refusal", "answered", "client_in_use", "run_chunks"]

Advance: TypeAlias = Callable[[int], None]
"""Called with the number of chunks just done."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a task did not do its work.

    Attributes
    ----------
    message : str
        It quotes nothing of the data.
    of_value : bool
        Whether the block itself was refused.
    """

    message: str
    of_value: bool


def answered(work: Callable[[], Any]) -> Any:
    """Return what a task has to say: its result, or why there is none."""
    try:
        return work()
    except (InvalidParameterError, ShapeError) as error:
        return Refusal(str(error), of_value=True)
    except MatrixDPError as error:
        return Refusal(str(error), of_value=False)
    except Exception as error:  # noqa: BLE001 - of any library, whose words may quote numbers
        return Refusal(f"a task failed with {type(error).__name__}", of_value=False)


def client_in_use() -> Client | None:
    """Return the client that Dask computes by, or None if it does so in this process."""
    try:
        return default_client()
    except ValueError:
        return None


def run_chunks(answers: da.Array, advance: Advance) -> dict[ChunkIndex, Any]:
    """Compute an array whose blocks hold one answer each; return the answers by block.

    Parameters
    ----------
    answers : dask array
        Of objects, in blocks of shape (1, 1).
    advance : callable
        Called whenever a block is done.

    Raises
    ------
    StorageError
        If a block that the answers are made from cannot be computed; its own error is the cause.
    """
    client = client_in_use()
    try:
        if client is None:
            with _Counted(answers.name, advance):
                found = answers.compute()
            return {index: found[index] for index in _indices(answers)}
        return _on_cluster(client, answers, advance)
    except MatrixDPError:
        raise
    except Exception as error:
        raise StorageError(
            f"a chunk of the matrix could not be computed ({type(error).__name__})"
        ) from error


def _on_cluster(client: Client, answers: da.Array, advance: Advance) -> dict[ChunkIndex, Any]:
    # An answer that is here is held nowhere else: a worker that dies takes none with it.
    left = set(futures_of(client.persist(answers)))
    found: dict[ChunkIndex, Any] = {}
    try:
        for future, answer in as_completed(list(left), with_results=True):
            _, row, column = future.key
            found[row, column] = answer[0, 0]
            left.discard(future)
            advance(1)
    finally:
        # After an error or an interrupt nothing more is begun.
        client.cancel(list(left))
    return found


def _indices(answers: da.Array) -> list[ChunkIndex]:
    rows, columns = answers.numblocks
    return [(row, column) for row in range(rows) for column in range(columns)]


class _Counted(Callback):
    """Counts the blocks of an array while they are computed in this process."""

    def __init__(self, name: str, advance: Advance) -> None:
        self._name = name
        self._advance = advance

    def _posttask(self, key: Any, *_others: Any) -> None:
        if isinstance(key, tuple) and key[0] == self._name:
            self._advance(1)
