"""What holds for every test: properties are tried on the same examples every time, untimed."""

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

# Before numpy is imported, and for processes that tests start: the workers share the cores already,
# and BLAS threads that wait for each other make small problems several times slower.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

settings.register_profile("matrixdp", deadline=None, derandomize=True)
settings.load_profile("matrixdp")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt, even where the tests were started with it ignored."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)
