"""A graph of Cora's size: its normalisation against the formula, its parts, and damaged files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from matrixdp.errors import FileFormatError
from matrixdp_experiments.datasets.cora import check_cora_content, load_cora

NODES, WORDS, ONES, EDGES = 2_708, 1_433, 49_216, 5_278


def random_arrays() -> dict[str, NDArray[Any]]:
    generator = np.random.default_rng(8)
    rows = np.sort(generator.integers(0, NODES, ONES))
    smaller = generator.integers(0, NODES - 1, EDGES)
    numbers = np.arange(NODES)
    return {
        "x_indptr": np.searchsorted(rows, np.arange(NODES + 1)).astype(np.int32),
        "x_indices": generator.integers(0, WORDS, ONES).astype(np.int16),
        "x_data": np.ones(ONES, np.uint8),
        "edges": np.stack([smaller, generator.integers(smaller + 1, NODES)], 1).astype(np.int32),
        "y": generator.integers(0, 7, NODES).astype(np.uint8),
        "val_mask": (numbers >= 140) & (numbers < 640),
        "test_mask": numbers >= 1_708,
    }


def written(folder: Path, **changes: NDArray[Any]) -> Path:
    path = folder / "cora.npz"
    np.savez(path, **(random_arrays() | changes))  # type: ignore[arg-type]
    return path


def test_graph_and_features(tmp_path: Path) -> None:
    arrays = random_arrays()
    data = load_cora(written(tmp_path))
    joined = np.eye(NODES)
    np.add.at(joined, tuple(arrays["edges"].T), 1)
    np.add.at(joined, tuple(arrays["edges"].T[::-1]), 1)
    degrees = joined.sum(1)
    expected = joined / np.sqrt(degrees[:, np.newaxis] * degrees)
    np.testing.assert_allclose(data.adjacency[:50].toarray(), expected[:50], rtol=1e-6)
    words = np.zeros((NODES, WORDS))
    owners = np.repeat(np.arange(NODES), np.diff(arrays["x_indptr"]))
    np.add.at(words, (owners, arrays["x_indices"]), 1)
    assert data.features.dtype == np.float32
    np.testing.assert_allclose(data.features[:50], expected[:50] @ words, rtol=1e-5, atol=1e-6)


def test_parts(tmp_path: Path) -> None:
    data = load_cora(written(tmp_path))
    assert data.choosing.tolist() == list(range(140, 640))
    assert data.test.tolist() == list(range(1_708, 2_708))
    assert len(data.train) == 1_140
    parts = np.concatenate([data.train, data.choosing, data.test])
    assert len(set(parts.tolist())) == 2_640
    # The public rule, on which all results depend.
    assert data.train[:10].tolist() == [0, 1, 2, 3, 5, 6, 7, 8, 10, 11]
    assert int(data.train.sum()) == 1_191_354


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": np.full(NODES, 7, np.uint8)}, "a label above 6 in 'y'"),
        ({"edges": np.full((EDGES, 2), NODES, np.int32)}, "outside of 0 to 2707 in 'edges'"),
        ({"x_indices": np.full(ONES, -1, np.int16)}, "outside of 0 to 1432 in 'x_indices'"),
        ({"x_indptr": np.zeros(NODES + 1, np.int32)}, "'x_indptr' that do not follow"),
        ({"val_mask": np.ones(NODES, bool)}, "500 nodes for choosing"),
    ],
)
def test_wrong_files(tmp_path: Path, changes: dict[str, NDArray[Any]], message: str) -> None:
    with pytest.raises(FileFormatError, match=message):
        load_cora(written(tmp_path, **changes))


def test_another_graph_is_not_cora(tmp_path: Path) -> None:
    path = written(tmp_path)
    load_cora(path)
    with pytest.raises(FileFormatError, match="does not hold the graph"):
        check_cora_content(path)
