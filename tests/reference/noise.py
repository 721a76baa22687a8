"""Streams with prescribed words, and the specification applied element by element."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import arb, ctx, fmpq
from numpy.typing import NDArray

from matrixdp.noise import ExactNoise, NoiseContext, NoiseStream, ReleaseKey
from matrixdp.noise.kernels import KernelFactory, fastest_kernel
from matrixdp.noise.kernels.block import Block
from matrixdp.noise.specification.exact import exact_element


def test_key(number: int) -> ReleaseKey:
    """Return a fixed key, so that a test of noise never depends on chance."""
    return ReleaseKey.from_bytes(number.to_bytes(32, "little"))


test_key.__test__ = False  # type: ignore[attr-defined]


def empty_block(length: int) -> Block:
    """Return a block to be filled by hand."""
    return Block(
        values=np.empty(length, dtype=np.float64),
        words=np.empty(length, dtype=np.uint64),
        scales=np.empty(length, dtype=np.float64),
        noisy=np.empty(length, dtype=np.float64),
        undecided=np.empty(length, dtype=np.bool_),
    )


@dataclass
class _ScriptedReader:
    words: NDArray[np.uint64]
    position: int

    def read_into(self, words: NDArray[np.uint64]) -> None:
        words[:] = self.words[self.position : self.position + words.size]
        self.position += words.size


class ScriptedStream(NoiseStream):
    """A stream whose words are given instead of derived from a key."""

    def __init__(
        self,
        context: NoiseContext,
        words: NDArray[np.uint64],
        further: Callable[[int, int], int] | None = None,
    ) -> None:
        super().__init__(context, bytearray(secrets.token_bytes(64)))
        self.scripted = words
        self.further = further or (
            lambda element, number: (element * 0x9E3779B97F4A7C15 + number) % 2**64
        )

    def reader(self, start: int) -> Any:
        return _ScriptedReader(self.scripted, start)

    def further_words(self, element: int) -> Callable[[int], int]:
        return lambda number: self.further(element, number)


def by_specification(
    values: NDArray[Any], scale: Any, stream: NoiseStream, words: NDArray[np.uint64]
) -> NDArray[Any]:
    """Return the noisy values by the exact path alone."""
    scales = np.broadcast_to(np.asarray(scale, dtype=np.float64), values.shape).ravel()
    noisy = [
        exact_element(
            float(value),
            float(sigma),
            int(word),
            stream.further_words(number),
            stream.context.grid_bits,
        )
        for number, (value, sigma, word) in enumerate(
            zip(values.ravel(), scales, words, strict=True)
        )
    ]
    return np.array(noisy).reshape(values.shape).astype(values.dtype)


def by_pipeline(
    values: NDArray[Any],
    scale: Any,
    words: NDArray[np.uint64],
    make_kernel: KernelFactory = fastest_kernel,
    further: Callable[[int, int], int] | None = None,
) -> tuple[NDArray[Any], ScriptedStream]:
    """Return the noisy values by the fast path and what follows it, and the stream."""
    context = NoiseContext.describe(shape=values.shape, dtype=values.dtype, scale=scale)
    stream = ScriptedStream(context, words, further)
    return ExactNoise(stream, scale, make_kernel=make_kernel).add(values), stream


def inverse_tail(numerator: int, bits: int, precision: int = 400) -> Any:
    """Return ``sqrt(2) erfcinv(numerator / 2**bits)`` as a narrow ball."""
    ctx.prec = precision
    v = arb(fmpq(numerator, 1 << bits))
    w = arb(2).sqrt() * arb(0.5)
    low, high = arb(0), arb(60)
    while float(high - low) > 1e-3:
        w = ((low + high) / 2).mid()
        if (w / arb(2).sqrt()).erfc() > v:
            low = w
        else:
            high = w
    slope = -(arb.pi() / 2).sqrt()
    for _ in range(8):
        w = (w - ((w / arb(2).sqrt()).erfc() - v) * slope * (w * w / 2).exp()).mid()
    return w
