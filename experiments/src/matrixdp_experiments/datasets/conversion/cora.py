"""Cora as Planetoid has it: several files, most of them pickles of Python 2."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from matrixdp.errors import FileFormatError
from matrixdp_experiments.datasets.conversion.plain_pickle import SparseParts, read_plain_pickle

__all__ = ["CORA_FILES", "convert_cora"]

# An eighth, ind.cora.x, repeats the first rows of allx.
CORA_FILES = tuple(
    f"ind.cora.{part}" for part in ("y", "tx", "ty", "allx", "ally", "graph", "test.index")
)

# The nodes for choosing come right after those that Planetoid trains on.
_CHOOSING = 500


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
