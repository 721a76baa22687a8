"""Loaded data sets: records with their targets, a graph, or texts."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import ShapeError

__all__ = ["DataSet", "GraphData", "Records", "TextData"]


# Without equality: comparing arrays gives arrays, which are neither true nor false.
@dataclass(frozen=True, eq=False)
class Records:
    """Some records of a data set.

    Attributes
    ----------
    inputs : ndarray of float32
        One entry of the first axis for each record. Images have shape (records, channels, height,
        width) and values from -1 to 1.
    targets : ndarray of int64, shape (records,)
        The class of each record, from 0.

    Raises
    ------
    ShapeError
        If there is not one target for each input.

    Examples
    --------
    >>> some = Records(np.zeros((3, 2), np.float32), np.array([0, 1, 1]))
    >>> len(some), len(some.part(1, 3))
    (3, 2)
    """

    inputs: NDArray[Any]
    targets: NDArray[np.int64]

    def __post_init__(self) -> None:
        """Raise if inputs and targets do not belong together."""
        if self.targets.shape != self.inputs.shape[:1]:
            raise ShapeError(
                f"targets have shape {self.targets.shape} and inputs {self.inputs.shape}: pass one "
                "target for each input"
            )

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.targets)

    def part(self, start: int, stop: int) -> "Records":
        """Return the records from ``start`` to before ``stop``, without copying them."""
        return Records(self.inputs[start:stop], self.targets[start:stop])


@dataclass(frozen=True, eq=False)
class DataSet:
    """A data set whose records are independent of each other.

    Attributes
    ----------
    name : str
        One of `DATASETS`.
    classes : int
        How many there are.
    train : Records
        What the final run trains on.
    choosing_train : Records
        What runs that choose hyper-parameters train on.
    choosing : Records
        What those runs are judged on; none of them is in ``choosing_train``.
    test : Records
        What the final run is judged on.
    """

    name: str
    classes: int
    train: Records
    choosing_train: Records
    choosing: Records
    test: Records


@dataclass(frozen=True, eq=False)
class GraphData:
    """A citation graph whose nodes are the records; graph and features are public.

    Attributes
    ----------
    name : str
        One of `DATASETS`.
    classes : int
        How many there are.
    features : ndarray of float32, shape (nodes, features)
        Of all nodes, multiplied once by ``adjacency``.
    adjacency : scipy.sparse.csr_array of float32, shape (nodes, nodes)
        ``D^(-1/2) (A + I) D^(-1/2)`` for the adjacency A of the graph and the degrees D of A + I.
    targets : ndarray of int64, shape (nodes,)
        The class of each node.
    train, choosing, test : ndarray of int64
        The numbers of the nodes to train on, to choose hyper-parameters on, and to test on.
    """

    name: str
    classes: int
    features: NDArray[np.float32]
    adjacency: Any
    targets: NDArray[np.int64]
    train: NDArray[np.int64]
    choosing: NDArray[np.int64]
    test: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TextData:
    """Texts and their classes.

    Attributes
    ----------
    name : str
        One of `DATASETS`.
    classes : int
        How many there are.
    train_texts, test_texts : tuple of str
        As their authors wrote them, with the markup ``<br />``.
    train_targets, test_targets : ndarray of int64
        The class of each text.
    """

    name: str
    classes: int
    train_texts: tuple[str, ...]
    train_targets: NDArray[np.int64]
    test_texts: tuple[str, ...]
    test_targets: NDArray[np.int64]
