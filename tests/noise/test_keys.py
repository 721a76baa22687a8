"""Keys are used once, by one process, and say nothing; streams are pure functions."""

import copy
import gc
import hashlib
import hmac
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError, KeyStateError
from matrixdp.noise import NoiseContext, NoiseStream, ReleaseKey, add_noise
from matrixdp.noise.keys import stream as stream_module
from matrixdp.noise.keys.stream import RANGE_ELEMENTS
from reference.noise import test_key

CONTEXT = NoiseContext.describe(shape=(100, 100), dtype="float64", scale=2.0)


def test_generated_keys_differ() -> None:
    words = [ReleaseKey.generate().bind(CONTEXT).words(0, 8).tobytes() for _ in range(50)]
    assert len(set(words)) == 50


def expand(secret: bytes, info: bytes, length: int) -> bytes:
    """HKDF-Expand of RFC 5869 with the standard library."""
    block, output = b"", b""
    for number in range(1, 1 + -(-length // 32)):
        block = hmac.new(secret, block + info + bytes([number]), hashlib.sha256).digest()
        output += block
    return output[:length]


def aes(key: bytes, counter: int) -> bytes:
    return Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(counter.to_bytes(16, "big"))  # noqa: S305


def test_the_derivation_is_the_documented_one() -> None:
    secret = bytes(range(32))
    stream = ReleaseKey.from_bytes(secret).bind(CONTEXT)
    extracted = hmac.new(bytes(32), secret, hashlib.sha256).digest()
    k1, k2 = (expand(extracted, CONTEXT.encoded, 64)[i : i + 32] for i in (0, 32))
    edges = (1 << 23, (1 << 23) + 1, (1 << 24) - 1, 1 << 24, (1 << 25) - 1, 1 << 25)
    for element in (0, 1, 5, 1000, *edges, (3 << 24) + 77):
        number, offset = divmod(element, 1 << 24)
        key = expand(k1, b"first words" + number.to_bytes(8, "little"), 32)
        block = aes(key, offset // 2)[8 * (offset % 2) :][:8]
        assert int(stream.words(element, 1)[0]) == int.from_bytes(block, "little")
        for further in range(4):
            block = aes(k2, (element << 64) + further // 2)[8 * (further % 2) :][:8]
            assert stream.further_words(element)(further) == int.from_bytes(block, "little")


def test_the_version_and_everything_else_enter_the_derivation() -> None:
    assert b"matrixdp-noise-1" in CONTEXT.encoded
    others = [
        NoiseContext.describe(shape=(100, 100), dtype="float32", scale=2.0),
        NoiseContext.describe(shape=(10000,), dtype="float64", scale=2.0),
        NoiseContext.describe(shape=(100, 100), dtype="float64", scale=np.nextafter(2.0, 3.0)),
        NoiseContext.describe(shape=(100, 100), dtype="float64", scale=2.0, grid_bits=19),
        NoiseContext.describe(shape=(100, 100), dtype="float64", scale=np.full((100, 1), 2.0)),
        replace(CONTEXT, grid_exponents=(-19, -18)),
    ]
    words = {test_key(1).bind(context).words(0, 4).tobytes() for context in [CONTEXT, *others]}
    assert len(words) == 7


def test_reading_is_pure() -> None:
    stream = test_key(2).bind(CONTEXT)
    start = RANGE_ELEMENTS - 50
    whole = stream.words(start, 100)
    for offset, count in [(0, 1), (1, 1), (49, 2), (50, 3), (3, 90), (99, 1)]:
        assert np.array_equal(stream.words(start + offset, count), whole[offset : offset + count])
    reader = stream.reader(start)
    for size in (1, 2, 46, 3, 48):
        part = np.empty(size, dtype=np.uint64)
        reader.read_into(part)
        assert np.array_equal(part, whole[:size])
        whole = whole[size:]


def test_a_long_read_equals_short_ones() -> None:
    stream = test_key(3).bind(CONTEXT)
    whole = stream.words(0, 100_001)
    assert np.array_equal(whole[70_000:70_010], stream.words(70_000, 10))
    assert np.unique(whole).size == whole.size


def test_a_key_is_bound_once() -> None:
    key = test_key(4)
    key.bind(CONTEXT)
    other = NoiseContext.describe(shape=(3, 3), dtype="float64", scale=1.0)
    for context in (other, CONTEXT):
        with pytest.raises(KeyStateError, match="already bound"):
            key.bind(context)


def test_two_releases_need_two_keys() -> None:
    key = test_key(5)
    add_noise(np.zeros((3, 3)), 1.0, key)
    with pytest.raises(KeyStateError, match="already bound"):
        add_noise(np.ones((3, 3)), 1.0, key)


def test_only_one_of_many_threads_binds() -> None:
    key = test_key(6)

    def attempt(number: int) -> bool:
        context = NoiseContext.describe(shape=(number + 1,), dtype="float64", scale=1.0)
        try:
            key.bind(context)
        except KeyStateError:
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(attempt, range(200))) == 1


def test_nothing_is_shown() -> None:
    secret = bytes(range(100, 132))
    key = ReleaseKey.from_bytes(secret)
    assert repr(key) == str(key) == "ReleaseKey(unbound)"
    stream = key.bind(CONTEXT)
    shown = repr(stream) + repr(key) + str(stream.export_secret)
    for hidden in (secret, stream.export_secret()[:64]):
        assert hidden.hex() not in shown
        assert repr(hidden) not in shown


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_nothing_is_pickled(protocol: int) -> None:
    key = test_key(7)
    with pytest.raises(KeyStateError, match="never pickled"):
        pickle.dumps(key, protocol)
    with pytest.raises(KeyStateError, match="not pickled"):
        pickle.dumps(key.bind(CONTEXT), protocol)


def test_nothing_is_copied() -> None:
    key = test_key(8)
    for duplicate in (copy.copy, copy.deepcopy):
        with pytest.raises(KeyStateError):
            duplicate(key)


def test_binding_and_closing_erase() -> None:
    key = test_key(9)
    kept = key._secret
    stream = key.bind(CONTEXT)
    assert kept == bytes(32)
    secrets = [stream._first_key, stream._further_key]
    assert all(any(secret) for secret in secrets)
    stream.close()
    assert secrets == [bytes(32), bytes(32)]
    for use in (lambda: stream.words(0, 1), stream.export_secret, lambda: stream.further_words(0)):
        with pytest.raises(KeyStateError, match="closed"):
            use()
    stream.close()


def test_dropping_erases() -> None:
    key = test_key(10)
    kept = key._secret
    del key
    assert kept == bytes(32)
    stream = test_key(11).bind(CONTEXT)
    kept = stream._first_key
    del stream
    assert kept == bytes(32)


def test_a_stream_closes_while_its_secret_is_being_read() -> None:
    # A reader holds the buffer of a key as long as it derives from it; a resize would fail.
    stream = test_key(16).bind(CONTEXT)
    with memoryview(stream._first_key) as first, memoryview(stream._further_key) as further:
        stream.close()
        assert bytes(first) == bytes(further) == bytes(32)
    key = test_key(16)
    with memoryview(key._secret) as secret:
        key.close()
        assert bytes(secret) == bytes(32)


def test_the_keys_of_ranges_are_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    real = stream_module._keystream

    def watch(key: bytearray, counter: int) -> Any:
        assert any(key)
        seen.append(key)
        return real(key, counter)

    monkeypatch.setattr(stream_module, "_keystream", watch)
    stream = test_key(17).bind(CONTEXT)
    stream.words(RANGE_ELEMENTS - 1, 2)
    stream.words(5 * RANGE_ELEMENTS, 1)
    assert len({id(key) for key in seen}) == len(seen) >= 3
    assert all(key == bytes(32) for key in seen)


def test_a_context_cannot_be_exchanged() -> None:
    stream = test_key(18).bind(CONTEXT)
    with pytest.raises(AttributeError):
        stream.context = replace(CONTEXT, shape=(10,))  # type: ignore[misc]
    assert stream.context is CONTEXT


def test_closing_under_a_reader_never_gives_words_of_an_erased_key() -> None:
    expected = test_key(15).bind(CONTEXT).words(0, 4)

    def read(stream: NoiseStream) -> list[NDArray[np.uint64]]:
        return [stream.words(0, 4) for _ in range(50)]

    for _ in range(200):
        stream = test_key(15).bind(CONTEXT)
        with ThreadPoolExecutor(2) as pool:
            reading = pool.submit(read, stream)
            closing = pool.submit(stream.close)
        closing.result()
        assert not any(stream._first_key + stream._further_key)
        try:
            assert all(np.array_equal(words, expected) for words in reading.result())
        except KeyStateError:
            continue


def test_an_erased_key_is_refused() -> None:
    key = test_key(12)
    key.close()
    assert repr(key) == "ReleaseKey(erased)"
    with pytest.raises(KeyStateError, match="erased"):
        key.bind(CONTEXT)


def test_a_key_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match="32 bytes, got 31"):
        ReleaseKey.from_bytes(bytes(31))
    with pytest.raises(InvalidParameterError, match="32 bytes, got 0"):
        ReleaseKey(bytearray())


@pytest.mark.parametrize("secret", [32, "k" * 32, [0] * 32, memoryview(bytes(32)), np.zeros(32)])
def test_a_key_is_made_from_bytes_alone(secret: Any) -> None:
    with pytest.raises(InvalidParameterError, match="bytes or bytearray"):
        ReleaseKey.from_bytes(secret)


FORK = """
import os, sys
from matrixdp.errors import KeyStateError
from matrixdp.noise import NoiseContext, ReleaseKey
context = NoiseContext.describe(shape=(100,), dtype="float64", scale=2.0)
fresh, bound = ReleaseKey.generate(), ReleaseKey.generate()
stream = bound.bind(context)
words = stream.words(5, 3).tobytes()
if os.fork() == 0:
    try:
        fresh.bind(context)
    except KeyStateError as error:
        same = stream.words(5, 3).tobytes() == words
        os._exit(42 if "another process" in str(error) and same else 1)
    os._exit(2)
_, status = os.wait()
fresh.bind(context)
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_a_fork_cannot_bind_but_can_recompute() -> None:
    assert subprocess.run([sys.executable, "-c", FORK], check=False).returncode == 42


ELSEWHERE = """
import sys
import numpy as np
from matrixdp.noise import ExactNoise, NoiseContext, NoiseStream
context = NoiseContext.describe(shape=(100, 100), dtype="float64", scale=2.0)
stream = NoiseStream.from_secret(bytes.fromhex(sys.stdin.read()), context)
tile = ExactNoise(stream, 2.0).add_tile(np.zeros((7, 5)), (90, 11))
sys.stdout.write(tile.tobytes().hex())
"""


def test_a_tile_is_recomputed_in_another_process() -> None:
    key, again = test_key(13), test_key(13)
    whole = add_noise(np.zeros((100, 100)), 2.0, key)
    secret = again.bind(CONTEXT).export_secret()
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE],
        input=secret.hex(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert bytes.fromhex(done.stdout) == whole[90:97, 11:16].tobytes()


def test_an_exported_secret_stays_bound() -> None:
    secret = test_key(14).bind(CONTEXT).export_secret()
    other = NoiseContext.describe(shape=(100, 100), dtype="float64", scale=3.0)
    with pytest.raises(KeyStateError, match="another context"):
        NoiseStream.from_secret(secret, other)
    with pytest.raises(InvalidParameterError, match="export_secret"):
        NoiseStream.from_secret(secret[:-1], CONTEXT)


def test_contexts_refuse_what_they_cannot_serve() -> None:
    with pytest.raises(InvalidParameterError, match="version='matrixdp-noise-0'"):
        replace(CONTEXT, version="matrixdp-noise-0")
    with pytest.raises(InvalidParameterError, match="grid_bits=21"):
        NoiseContext.describe(shape=(2,), dtype="float64", scale=1.0, grid_bits=21)
    with pytest.raises(InvalidParameterError, match="at least one axis"):
        NoiseContext.describe(shape=(), dtype="float64", scale=1.0)
    for grid_bits in (19.5, 19.0, True, "19", None):
        with pytest.raises(InvalidParameterError, match="grid_bits must be an integer"):
            NoiseContext.describe(shape=(2,), dtype="float64", scale=1.0, grid_bits=grid_bits)  # type: ignore[arg-type]
        with pytest.raises(InvalidParameterError, match="grid_bits must be an integer"):
            replace(CONTEXT, grid_bits=grid_bits)  # type: ignore[arg-type]
    for length in (2.0, True, np.True_, "2"):
        with pytest.raises(InvalidParameterError, match="shape must be an integer"):
            NoiseContext.describe(shape=(2, length), dtype="float64", scale=1.0)  # type: ignore[arg-type]
        with pytest.raises(InvalidParameterError, match="shape must be an integer"):
            replace(CONTEXT, shape=(length,))  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="dtype='<i8'"):
        NoiseContext.describe(shape=(2,), dtype="int64", scale=1.0)


@pytest.mark.parametrize("make", [partial(NoiseStream, CONTEXT), ReleaseKey])
@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_what_failed_to_be_made_is_dropped_in_silence(make: Any) -> None:
    with pytest.raises(TypeError):
        make(None)
    gc.collect()
