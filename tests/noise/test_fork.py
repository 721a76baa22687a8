"""A fork at any moment: the child can release, and cannot bind what the parent may bind."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matrixdp.errors import KeyStateError
from matrixdp.files.formats import numpy_format
from matrixdp.noise import NoiseContext, ReleaseKey, add_noise
from matrixdp.noise.application import filling
from matrixdp.noise.application.filling import WorkSpace
from reference.noise import test_key

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")

CONTEXT = NoiseContext.describe(shape=(10,), dtype="float64", scale=1.0)


def in_a_child(check: Callable[[], bool]) -> bool:
    """Return what the check gives in a forked child; false if it raises or hangs there."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(10)
        passed = False
        try:
            passed = check()
        finally:
            os._exit(not passed)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def hang() -> bool:
    signal.setitimer(signal.ITIMER_REAL, 0.1)  # instead of ten seconds
    threading.Event().wait()
    return True


def test_a_child_that_hangs_or_fails_is_noticed() -> None:
    assert in_a_child(lambda: True)
    assert not in_a_child(lambda: False)
    assert not in_a_child(hang)


def test_a_fork_while_another_thread_allocates(monkeypatch: pytest.MonkeyPatch) -> None:
    entered, go_on = threading.Event(), threading.Event()

    class SlowNumpy:
        """numpy, whose arrays take long to allocate in the other thread."""

        def __getattr__(self, name: str) -> object:
            if name == "empty" and threading.current_thread() is not threading.main_thread():
                entered.set()
                go_on.wait(30.0)
            return getattr(np, name)

    monkeypatch.setattr(filling, "np", SlowNumpy())
    expected = add_noise(np.zeros(10), 1.0, test_key(110))
    other = threading.Thread(target=lambda: WorkSpace(10).words)
    other.start()
    assert entered.wait(20.0)
    try:
        assert in_a_child(
            lambda: np.array_equal(add_noise(np.zeros(10), 1.0, test_key(110)), expected)
        )
    finally:
        go_on.set()
        other.join()


def refused(key: ReleaseKey) -> bool:
    try:
        key.bind(CONTEXT)
    except KeyStateError as error:
        return "another process" in str(error)
    return False


def test_a_child_with_the_number_of_its_parent_cannot_bind(monkeypatch: pytest.MonkeyPatch) -> None:
    # As in another namespace of process numbers, where the numbers begin anew.
    key, number = ReleaseKey.generate(), os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: number)
    assert in_a_child(lambda: refused(key))
    assert in_a_child(lambda: ReleaseKey.generate().bind(CONTEXT).words(0, 1).size == 1)
    key.bind(CONTEXT)


def test_a_process_of_another_number_cannot_bind(monkeypatch: pytest.MonkeyPatch) -> None:
    # As after a fork by foreign code, of which Python does not know.
    key, number = ReleaseKey.generate(), os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: number + 1)
    assert refused(key)


def test_a_key_is_closed_in_a_child_whose_lock_is_held() -> None:
    key = ReleaseKey.generate()

    def closed() -> bool:
        key.close()
        return repr(key) == "ReleaseKey(erased)" and not any(key._secret)

    with key._lock:  # as while another thread binds
        assert in_a_child(closed)
        assert in_a_child(lambda: refused(key))
    key.bind(CONTEXT)


STORM = """
import os, signal, sys, threading
import numpy as np
from matrixdp.noise import ReleaseKey, add_noise

value = np.random.default_rng(0).uniform(-9.0, 9.0, (200, 1000))
key = lambda: ReleaseKey.from_bytes(bytes(32))
expected = add_noise(value, 1.0, key())

def others():
    while True:
        add_noise(value, 1.0, ReleaseKey.generate(), threads=2)

for _ in range(2):
    threading.Thread(target=others, daemon=True).start()
for _ in range(20):
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        same = np.array_equal(add_noise(value, 1.0, key(), threads=2), expected)
        os._exit(0 if same else 1)
    if os.waitpid(child, 0)[1]:
        os._exit(1)
os._exit(0)
"""


def test_forks_while_other_threads_release() -> None:
    done = subprocess.run([sys.executable, "-c", STORM], check=False, timeout=120)
    assert done.returncode == 0


def test_a_fork_while_another_thread_reads_a_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "x.npy", np.zeros(3))
    entered, go_on, read_magic = threading.Event(), threading.Event(), np.lib.format.read_magic

    def slowly(file: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            entered.set()
            go_on.wait(30.0)
        return read_magic(file)

    monkeypatch.setattr(np.lib.format, "read_magic", slowly)
    reading = threading.Thread(target=numpy_format.map_npy, args=(tmp_path / "x.npy",))
    reading.start()
    assert entered.wait(30.0)
    threading.Timer(0.2, go_on.set).start()
    assert in_a_child(lambda: numpy_format.map_npy(tmp_path / "x.npy").shape == (3,))
    reading.join()
