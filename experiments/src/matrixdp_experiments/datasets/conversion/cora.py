"""Cora as Planetoid has it: several files, most of them pickles of Python 2.

A pickle is a program that may call any function. The reader here opens those that hold plain
arrays, sparse matrices and lists, and nothing else. It knows a handful of harmless functions and
raises on every other name, so that a file from anywhere can be opened.
"""

import io
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from matrixdp.errors import FileFormatError

__all__ = ["CORA_FILES", "SparseParts", "convert_cora", "read_plain_pickle"]

# An eighth, ind.cora.x, repeats the first rows of allx.
CORA_FILES = tuple(
    f"ind.cora.{part}" for part in ("y", "tx", "ty", "allx", "ally", "graph", "test.index")
)

# The nodes for choosing come right after those that Planetoid trains on.
_CHOOSING = 500


class SparseParts:
    """The parts of a sparse matrix in a pickle, instead of the matrix.

    Attributes
    ----------
    parts : dict
        The arrays ``data``, ``indices`` and ``indptr``, and the shape.
    """

    def __init__(self) -> None:
        self.parts: dict[str, Any] = {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over what the matrix was made of."""
        self.parts = dict(state)


def read_plain_pickle(content: bytes, name: str) -> Any:
    """Return the one value of a pickle.

    Parameters
    ----------
    content : bytes
        The pickle.
    name : str
        Of the file, for messages.

    Returns
    -------
    ndarray, SparseParts, or dict of lists
        Whatever it is.

    Raises
    ------
    FileFormatError
        If the pickle is damaged, or names anything but arrays, matrices and containers.
    """
    try:
        # Python 2 wrote the bytes of arrays as text, which latin1 turns back one to one.
        return _PlainUnpickler(io.BytesIO(content), encoding="latin1").load()
    except FileFormatError as error:
        raise FileFormatError(f"{name} {error}") from None
    except Exception as error:  # a damaged pickle raises anything
        raise FileFormatError(f"{name} is not a whole pickle of plain arrays") from error


class _PlainUnpickler(pickle.Unpickler):
    """Knows the names that the files of Planetoid use, in the spelling of Python 2."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what a name stands for, or raise if it is not on the list."""
        try:
            return _KNOWN[module, name]
        except KeyError:
            raise FileFormatError(
                f"names {module}.{name}, which is neither an array nor a container: not opened"
            ) from None


def _number_type(code: str, *_: int) -> np.dtype[Any]:
    # Not of objects, whose arrays could hold anything.
    if code[:1] not in {"f", "i", "u", "b"}:
        raise FileFormatError("holds an array of something else than numbers")
    # A copy, since the pickle sets its byte order, and types are shared otherwise.
    return np.dtype(code, copy=True)


def _new(kind: type, *_: Any) -> Any:
    if kind is not SparseParts:
        raise FileFormatError("makes an object that is not a sparse matrix")
    return SparseParts()


def _dictionary(*_: Any) -> dict[Any, Any]:
    return {}


_KNOWN = {
    # The function that numpy's own arrays name in their pickles, wherever this version keeps it.
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _number_type,
    ("scipy.sparse.csr", "csr_matrix"): SparseParts,
    ("copy_reg", "_reconstructor"): _new,
    ("__builtin__", "object"): object,
    ("__builtin__", "list"): list,
    ("collections", "defaultdict"): _dictionary,
}


def convert_cora(downloads: Mapping[str, Path], folder: Path) -> None:
    """Write ``cora.npz`` from the files of Planetoid.

    Parameters
    ----------
    downloads : mapping of str to Path
        The files by their names.
    folder : Path
        Where to write.

    Raises
    ------
    FileFormatError
        If a file is not what it should be.
    """
    try:
        arrays = _converted(downloads)
    except (ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, FileFormatError):
            raise
        raise FileFormatError(
            "the files ind.cora.* do not belong together: fetch them again"
        ) from error
    np.savez_compressed(folder / "cora.npz", **arrays)


def _converted(downloads: Mapping[str, Path]) -> dict[str, Any]:
    def content(part: str) -> Any:
        name = f"ind.cora.{part}"
        return read_plain_pickle(downloads[name].read_bytes(), name)

    # Features and classes of the test nodes are in the order of this file.
    order = np.array(downloads["ind.cora.test.index"].read_text().split(), dtype=np.int64)
    words = sparse.vstack([_matrix(content("allx")), _matrix(content("tx"))]).tolil()
    words[order] = words[np.sort(order)]
    one_hot = np.concatenate([content("ally"), content("ty")])
    one_hot[order] = one_hot[np.sort(order)]
    rows = sparse.csr_array(words)
    rows.sort_indices()
    nodes, first = len(one_hot), len(content("y"))
    return {
        "x_indptr": rows.indptr.astype(np.int32),
        "x_indices": rows.indices.astype(np.int16),
        "x_data": rows.data.astype(np.uint8),
        "x_shape": np.array(rows.shape, np.int32),
        "edges": _edges(content("graph")),
        "y": one_hot.argmax(axis=1).astype(np.uint8),
        "train_mask": _mask(nodes, np.arange(first)),
        "val_mask": _mask(nodes, np.arange(first, first + _CHOOSING)),
        "test_mask": _mask(nodes, order),
    }


def _matrix(found: SparseParts) -> Any:
    parts = found.parts
    shape = parts.get("_shape", parts.get("shape"))
    return sparse.csr_array((parts["data"], parts["indices"], parts["indptr"]), shape=shape)


def _edges(graph: dict[int, list[int]]) -> NDArray[np.int32]:
    """Return each edge once, the smaller node first, without loops, in increasing order."""
    pairs = {
        (min(node, other), max(node, other))
        for node, others in graph.items()
        for other in others
        if node != other
    }
    return np.array(sorted(pairs), np.int32)


def _mask(nodes: int, chosen: NDArray[np.int64]) -> NDArray[np.bool_]:
    mask = np.zeros(nodes, bool)
    mask[chosen] = True
    return mask
