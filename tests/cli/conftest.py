"""Fixtures that tests of several commands share."""

from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def workload_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder with a histogram and a matrix of queries."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    np.save("counts.npy", np.full((16, 1), 20))
    np.savetxt("counts.csv", np.full((4, 4), 20), delimiter=",", fmt="%d")
    np.save("queries.npy", np.tril(np.ones((16, 16))))
    return tmp_path
