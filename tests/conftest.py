"""What holds for every test: properties are tried on the same examples every time, untimed."""

import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("matrixdp", deadline=None, derandomize=True)
settings.load_profile("matrixdp")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt, even where the tests were started with it ignored."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)
