"""Matrices and records larger than one machine, on Dask (extra ``dask``).

`release_to` writes the release of a Dask array of any size, chunk by chunk; `release_lazily`
returns one that is computed when it is needed. `on_workers` names records that the workers of a
cluster read for a query. See ``docs/scale.md``.
"""

from matrixdp.errors import MissingExtraError

try:
    import dask.array as _dask  # noqa: F401
    import distributed as _distributed  # noqa: F401
    import zarr as _zarr  # noqa: F401
except ImportError:
    raise MissingExtraError(
        "arrays of Dask need more: pip install '.[dask]' in a clone of matrixdp"
    ) from None

# Below the check, since these import Dask.
from matrixdp.distributed.lazy import release_lazily
from matrixdp.distributed.queries import on_workers
from matrixdp.distributed.release import release_to

__all__ = ["on_workers", "release_lazily", "release_to"]


def __dir__() -> list[str]:
    return __all__
