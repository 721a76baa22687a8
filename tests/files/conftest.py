"""The folder in which tests of streamed files read and write."""

from pathlib import Path

import pytest

from matrixdp.files.publishing import npy_stream


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Return a source and a target, and let files be streamed in many small chunks."""
    monkeypatch.setattr(npy_stream, "_CHUNK_ELEMENTS", 10_007)
    return tmp_path / "value.npy", tmp_path / "noisy.npy"
