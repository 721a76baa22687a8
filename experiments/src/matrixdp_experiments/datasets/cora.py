"""Cora: a citation graph whose nodes are papers, described by the words that occur in them."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from matrixdp_experiments.datasets.arrays import ArrayFormat, check_labels, damaged, read_arrays
from matrixdp_experiments.datasets.records import GraphData

__all__ = ["check_cora_content", "load_cora"]

_NODES = 2_708
_WORDS = 1_433
_CLASSES = 7
_TRAIN = 1_140

_FORMATS = {
    "x_indptr": ArrayFormat("int32", (_NODES + 1,)),
    "x_indices": ArrayFormat("int16", (49_216,)),
    "x_data": ArrayFormat("uint8", (49_216,)),
    "edges": ArrayFormat("int32", (5_278, 2)),
    "y": ArrayFormat("uint8", (_NODES,)),
    "val_mask": ArrayFormat("bool", (_NODES,)),
    "test_mask": ArrayFormat("bool", (_NODES,)),
}
# Of all arrays above, in this order: features in rows of increasing columns, edges sorted, each
# once with the smaller node first. The files of the authors have no published checksums of their
# own, so what was made of them is checked instead.
_CONTENT_SHA256 = "caef974917639936779b3306bab36222820a945a3cd182810a3821149de7f44b"


def check_cora_content(path: Path) -> None:
    """Raise if a file does not hold Cora, bit by bit.

    Raises
    ------
    FileFormatError
        With the file.
    """
    arrays = read_arrays(path, _FORMATS)
    digest = hashlib.sha256()
    for name in _FORMATS:
        digest.update(arrays[name].tobytes())
    if digest.hexdigest() != _CONTENT_SHA256:
        damaged(path, "does not hold the graph, features and classes of Cora")


def load_cora(path: Path) -> GraphData:
    """Return the graph, its features propagated once, and the numbers of the nodes of each part.

    Raises
    ------
    FileFormatError
        If the file is damaged, or holds another graph than it should.
    """
    arrays = read_arrays(path, _FORMATS)
    check_labels(path, "y", arrays["y"], _CLASSES)
    _check_ranges(path, arrays)
    adjacency = _normalised(arrays["edges"])
    parts = (arrays["x_data"].astype(np.float32), arrays["x_indices"], arrays["x_indptr"])
    words = sparse.csr_array(parts, shape=(_NODES, _WORDS))
    held_out = arrays["val_mask"] | arrays["test_mask"]
    return GraphData(
        name="cora",
        classes=_CLASSES,
        features=(adjacency @ words).toarray(),
        adjacency=adjacency,
        targets=arrays["y"].astype(np.int64),
        train=_drawn(np.flatnonzero(~held_out)),
        choosing=np.flatnonzero(arrays["val_mask"]).astype(np.int64),
        test=np.flatnonzero(arrays["test_mask"]).astype(np.int64),
    )


def _check_ranges(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    """Raise if an index leads outside of the graph, or the parts are of the wrong sizes."""
    rows = arrays["x_indptr"]
    rows_fit = rows[0] == 0 and rows[-1] == len(arrays["x_indices"]) and (np.diff(rows) >= 0).all()
    for name, indices, end in (
        ("x_indices", arrays["x_indices"], _WORDS),
        ("edges", arrays["edges"], _NODES),
    ):
        if not (indices.min() >= 0 and indices.max() < end):
            damaged(path, f"has a number outside of 0 to {end - 1} in {name!r}")
    sizes = (int(arrays["val_mask"].sum()), int(arrays["test_mask"].sum()))
    apart = not (arrays["val_mask"] & arrays["test_mask"]).any()
    if not rows_fit:
        damaged(path, "has rows in 'x_indptr' that do not follow each other")
    if not (apart and sizes == (500, 1_000)):
        damaged(path, "does not have 500 nodes for choosing and 1,000 others to test")


def _normalised(edges: NDArray[np.int32]) -> Any:
    """Return ``D^(-1/2) (A + I) D^(-1/2)``."""
    ones = np.ones(len(edges))
    half = sparse.coo_array((ones, (edges[:, 0], edges[:, 1])), shape=(_NODES, _NODES))
    joined = half + half.T + sparse.eye_array(_NODES)
    # Every node is its own neighbour, so no degree is zero.
    scales = sparse.diags_array(1 / np.sqrt(joined.sum(axis=1)))
    return sparse.csr_array((scales @ joined @ scales).astype(np.float32))


def _drawn(nodes: NDArray[np.intp]) -> NDArray[np.int64]:
    """Return the nodes to train on: those whose hashes are smallest, in increasing order.

    A hash is a public rule that no version of a library changes, unlike the draws of a seeded
    generator.
    """

    def rank(node: int) -> bytes:
        return hashlib.sha256(f"matrixdp cora {node}".encode()).digest()

    return np.sort(np.array(sorted(nodes.tolist(), key=rank)[:_TRAIN], dtype=np.int64))
