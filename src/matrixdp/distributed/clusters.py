"""Clusters that commands use: one that runs already, or workers on this machine."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from distributed import Client, LocalCluster, as_completed

from matrixdp.errors import InvalidParameterError, StorageError
from matrixdp.files.formats.chunk_layout import Mapper
from matrixdp.noise.application.threads import usable_cores

__all__ = ["connected", "mapper_on"]


@contextmanager
def connected(address: str | None) -> Iterator[Client]:
    """Yield a client of the scheduler at an address, or of one worker for each processor here.

    Raises
    ------
    InvalidParameterError
        If no scheduler answers.
    """
    with ExitStack() as stack:
        if address is None:
            cluster = stack.enter_context(
                LocalCluster(n_workers=usable_cores(), threads_per_worker=1, dashboard_address=":0")
            )
            yield stack.enter_context(Client(cluster))
            return
        try:
            # One that could not connect must not become what Dask computes on.
            client = stack.enter_context(Client(address, set_as_default=False))
        except (OSError, ValueError, TypeError) as error:
            raise InvalidParameterError(
                f"--scheduler {address} does not answer ({type(error).__name__}): pass the address "
                "of a running scheduler, such as tls://host:8786"
            ) from error
        stack.enter_context(client.as_current())
        yield client


def mapper_on(client: Client) -> Mapper:
    """Return what applies a function to every item on the workers of a client."""

    def mapped(work: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        futures = client.map(work, items, pure=False, key=f"matrixdp-{secrets.token_hex(8)}")
        try:
            for _, result in as_completed(futures, with_results=True):
                yield result
        except StorageError:
            raise
        except OSError as error:
            raise StorageError(f"a worker was lost ({type(error).__name__})") from error
        finally:
            client.cancel(futures)

    return mapped
