"""Keys and streams under threads, and what becomes of their secrets at every step."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from matrixdp.errors import BudgetExceededError, KeyStateError
from matrixdp.files.publishing.npy_stream import add_noise_to_npy
from matrixdp.noise import NoiseContext, NoiseStream, ReleaseKey, add_noise
from matrixdp.noise.keys import release_key as key_module
from matrixdp.noise.keys import stream as stream_module
from reference.noise import test_key

CONTEXT = NoiseContext.describe(shape=(100, 100), dtype="float64", scale=2.0)
ZEROS = np.zeros((100, 100))


@pytest.fixture
def derivation_begun(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Let derivations take their time before they read the key; return what says one has begun."""
    begun, real = threading.Event(), HKDF

    class Slow:
        def __init__(self, *arguments: Any, **options: Any) -> None:
            self.real = real(*arguments, **options)

        def derive_into(self, secret: bytearray, derived: bytearray) -> None:
            begun.set()
            time.sleep(0.3)
            self.real.derive_into(secret, derived)

    monkeypatch.setattr(key_module, "HKDF", Slow)
    return begun


def test_a_key_cannot_be_bound_while_it_is_being_bound(derivation_begun: threading.Event) -> None:
    key = test_key(130)
    with ThreadPoolExecutor(1) as pool:
        binding = pool.submit(key.bind, CONTEXT)
        assert derivation_begun.wait(20.0)
        with pytest.raises(KeyStateError, match="already bound"):
            key.bind(CONTEXT)
        assert binding.result().words(0, 1).size == 1


def test_a_key_is_not_erased_while_it_is_being_bound(derivation_begun: threading.Event) -> None:
    expected = test_key(131).bind(CONTEXT).words(0, 4)
    derivation_begun.clear()
    key = test_key(131)
    with ThreadPoolExecutor(1) as pool:
        binding = pool.submit(key.bind, CONTEXT)
        assert derivation_begun.wait(20.0)
        key.close()
        assert np.array_equal(binding.result().words(0, 4), expected)


def closing_keystream(stream: NoiseStream) -> Callable[[bytearray, int], Any]:
    """Return a keystream that another thread closes the stream in the middle of."""
    real = stream_module._keystream

    def keystream(key: bytearray, counter: int) -> Any:
        made = real(key, counter)
        stream.close()
        return made

    return keystream


USES: dict[str, Callable[[NoiseStream], object]] = {
    "first words": lambda stream: stream.words(0, 4),
    "a reader": lambda stream: stream.reader(0),
    "the keystream of a range": lambda stream: stream.open_range(0, 0),
    "further words": lambda stream: stream.further_words(3)(0),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_what_was_read_while_the_stream_was_closed_is_not_used(
    monkeypatch: pytest.MonkeyPatch, use: Callable[[NoiseStream], object]
) -> None:
    stream = test_key(132).bind(CONTEXT)
    monkeypatch.setattr(stream_module, "_keystream", closing_keystream(stream))
    with pytest.raises(KeyStateError, match="closed"):
        use(stream)


class ClosingSecret(bytearray):
    """The bytes of a key; another thread closes the stream just before they are exported."""

    stream: NoiseStream

    def __add__(self, other: Any) -> bytearray:
        self.stream.close()
        return bytearray(super().__add__(other))


def test_a_secret_that_was_erased_meanwhile_is_not_exported() -> None:
    stream = test_key(133).bind(CONTEXT)
    secret = ClosingSecret(stream._first_key)
    secret.stream = stream
    stream._first_key = secret
    with pytest.raises(KeyStateError, match="closed"):
        stream.export_secret()


class WatchedSecret(bytearray):
    """The bytes of a key, which note whether the stream was closed when they were overwritten."""

    stream: NoiseStream
    closed_before: bool

    def __setitem__(self, index: Any, content: Any) -> None:
        self.closed_before = self.stream._closed
        super().__setitem__(index, content)


def test_a_stream_is_marked_as_closed_before_anything_is_overwritten() -> None:
    stream = test_key(134).bind(CONTEXT)
    secret = WatchedSecret(stream._first_key)
    secret.stream = stream
    stream._first_key = secret
    stream.close()
    assert secret.closed_before
    assert not any(secret)


def test_what_a_stream_is_made_from_is_erased() -> None:
    secret = bytearray(range(64))
    stream = NoiseStream(CONTEXT, secret)
    assert secret == bytes(64)
    assert stream.export_secret()[:64] == bytes(range(64))


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> list[NoiseStream]:
    """Return a list that keeps every stream that is bound from now on."""
    kept: list[NoiseStream] = []
    real = ReleaseKey.bind

    def bind(key: ReleaseKey, context: NoiseContext, **options: Any) -> NoiseStream:
        kept.append(real(key, context, **options))
        return kept[-1]

    monkeypatch.setattr(ReleaseKey, "bind", bind)
    return kept


def assert_closed(streams: list[NoiseStream]) -> None:
    (stream,) = streams
    assert not any(stream._first_key + stream._further_key)
    with pytest.raises(KeyStateError, match="closed"):
        stream.words(0, 1)


def test_a_release_closes_its_stream(streams: list[NoiseStream]) -> None:
    add_noise(ZEROS, 2.0, test_key(135))
    assert_closed(streams)


def test_the_release_of_a_file_closes_its_stream(
    streams: list[NoiseStream], tmp_path: Path
) -> None:
    np.save(tmp_path / "value.npy", ZEROS)
    add_noise_to_npy(tmp_path / "value.npy", tmp_path / "noisy.npy", 2.0, test_key(136))
    assert_closed(streams)


def test_a_release_that_fails_closes_its_stream(
    streams: list[NoiseStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("matrixdp.noise.application.add.fill_tile", fail)
    with pytest.raises(MemoryError):
        add_noise(ZEROS, 2.0, test_key(137))
    assert_closed(streams)


def test_a_refused_payment_leaves_the_key_as_it_was() -> None:
    def refuse() -> None:
        raise BudgetExceededError("nothing is left")

    key = test_key(138)
    with pytest.raises(BudgetExceededError):
        key.bind(CONTEXT, pay=refuse)
    expected = test_key(138).bind(CONTEXT).words(0, 4)
    assert np.array_equal(key.bind(CONTEXT).words(0, 4), expected)


@pytest.mark.parametrize("exception", [KeyboardInterrupt, SystemExit, TimeoutError, MemoryError])
def test_a_payment_that_is_interrupted_spends_the_key(exception: type[BaseException]) -> None:
    paid = []

    def interrupted() -> None:
        paid.append(1)
        raise exception

    key = test_key(139)
    with pytest.raises(exception):
        key.bind(CONTEXT, pay=interrupted)
    with pytest.raises(KeyStateError, match="already bound"):
        key.bind(CONTEXT, pay=interrupted)
    assert not any(key._secret)
    assert len(paid) == 1


def test_a_key_that_cannot_be_bound_is_not_paid_for() -> None:
    paid: list[int] = []
    bound, erased = test_key(140), test_key(141)
    bound.bind(CONTEXT)
    erased.close()
    for key in (bound, erased):
        with pytest.raises(KeyStateError):
            key.bind(CONTEXT, pay=lambda: paid.append(1))
    assert paid == []
