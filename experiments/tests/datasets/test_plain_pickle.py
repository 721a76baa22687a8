"""Pickles of Python 2: arrays and matrices come through, everything else is refused."""

import numpy as np
import pytest
from scipy import sparse

from matrixdp.errors import FileFormatError
from matrixdp_experiments.datasets.conversion.cora import SparseParts, read_plain_pickle
from small_files import array_opcodes, csr_opcodes, graph_opcodes, pickled


@pytest.mark.parametrize("dtype", ["float32", "int32", "int64"])
def test_arrays(dtype: str) -> None:
    array = np.arange(12).reshape(3, 4).astype(dtype)
    found = read_plain_pickle(pickled(array_opcodes(array)), "y")
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, array)


def test_matrices_and_graphs() -> None:
    matrix = sparse.csr_array(np.eye(3, 4, dtype=np.float32))
    found = read_plain_pickle(pickled(csr_opcodes(matrix)), "x")
    assert isinstance(found, SparseParts)
    assert found.parts["_shape"] == (3, 4)
    np.testing.assert_array_equal(found.parts["indptr"], matrix.indptr)
    graph = {0: [1, 2], 2: [0]}
    assert read_plain_pickle(pickled(graph_opcodes(graph)), "graph") == graph


@pytest.mark.parametrize(
    "program",
    [
        b"cos\nsystem\n(U\x04truetR",
        b"c__builtin__\neval\n(U\x031+1tR",
        b"cposix\nsystem\n(U\x04truetR",
        b"cnumpy\nload\n(U\x01xtR",
        b"ccopy_reg\n_reconstructor\n(cnumpy\nndarray\nc__builtin__\nobject\nNtR",
    ],
)
def test_programs_are_refused(program: bytes) -> None:
    with pytest.raises(FileFormatError, match=r"ind\.cora\.x (names|makes)"):
        read_plain_pickle(pickled(program), "ind.cora.x")


def test_arrays_of_objects_are_refused() -> None:
    with pytest.raises(FileFormatError, match="something else than numbers"):
        read_plain_pickle(pickled(array_opcodes(np.zeros(2), code="O8")), "y")


def test_pickles_that_are_cut_short() -> None:
    whole = pickled(array_opcodes(np.zeros(5)))
    for cut in range(0, len(whole), 7):
        with pytest.raises(FileFormatError, match=r"ind\.cora\.y"):
            read_plain_pickle(whole[:cut], "ind.cora.y")
