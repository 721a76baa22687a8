"""Poisson lots: each record is in a step by a coin of its own, whatever happens to the others.

The coin is exact. A record is taken if a uniform 64-bit word is below ``floor(q 2**64)``, so the
probability is a multiple of ``2**-64`` that is at most q, which is the rate that is accounted for.
"""

import abc
import os
import warnings
from fractions import Fraction
from typing import Protocol

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError, MatrixDPError
from matrixdp.noise.application.tensors import cuda_kernel
from matrixdp.noise.kernels.cuda.kernel import TensorKernel
from matrixdp.training.guarantee import Lots

__all__ = [
    "Coins",
    "DeviceCoins",
    "SecureCoins",
    "SeededCoins",
    "WordCoins",
    "drawn_records",
    "secure_coins",
]

_KEY_BYTES = 32
_FROM_THE_START = modes.CTR(bytes(16))
# For fewer the processor is done before a GPU has begun.
_LEAST_RECORDS_OF_A_GPU = 1 << 16


class Coins(Protocol):
    """Uniform 64-bit words, each of them a coin."""

    @property
    def kind(self) -> Lots:
        """What the guarantee says about them."""

    def taken(self, number: int, most: int, step: int) -> NDArray[np.int64]:
        """Return which of so many words for a step are at most a threshold, ascending."""

    def order(self, records: NDArray[np.int64], step: int) -> NDArray[np.uint64]:
        """Return words by which some records are put in a random order in a step."""


class WordCoins(abc.ABC):
    """Coins whose words are drawn on the processor."""

    kind: Lots

    @abc.abstractmethod
    def words(self, number: int, step: int) -> NDArray[np.uint64]:
        """Return so many words for a step."""

    def taken(self, number: int, most: int, step: int) -> NDArray[np.int64]:
        """Return which of so many words for a step are at most a threshold, ascending."""
        return np.flatnonzero(self.words(number, step) <= np.uint64(most))

    def order(self, records: NDArray[np.int64], step: int) -> NDArray[np.uint64]:
        """Return words by which some records are put in a random order in a step."""
        return self.words(len(records), step)


class SecureCoins(WordCoins):
    """Words for real releases, which nobody can know: of AES-256-CTR, under a key for each step.

    The key is of the operating system's entropy. With n words under it they differ from uniform
    ones by at most ``n**2 / 2**131``, if AES-256 is what it is taken for (Bellare et al. 1997).
    """

    kind = "secure"

    def words(self, number: int, step: int) -> NDArray[np.uint64]:  # noqa: ARG002
        """Return fresh words; the step does not matter."""
        # The keystream is the encryption of zeros, here in place.
        found = np.zeros(number, np.uint64)
        memory = found.view(np.uint8).data
        cipher = Cipher(algorithms.AES(os.urandom(_KEY_BYTES)), _FROM_THE_START).encryptor()
        cipher.update_into(memory, memory)
        return found


class DeviceCoins:
    """Words of the same kind, drawn by a GPU that tells only which records are taken.

    Parameters
    ----------
    kernel : TensorKernel
        Of the GPU; it draws a fresh key for every 2**24 words.
    """

    kind: Lots = "secure"

    def __init__(self, kernel: TensorKernel) -> None:
        self._kernel = kernel
        # Of its own, so that a lot does not wait for what the GPU is busy with.
        on_gpu = kernel.device.type == "cuda"
        self._stream = torch.cuda.Stream(kernel.device) if on_gpu else None

    def taken(self, number: int, most: int, step: int) -> NDArray[np.int64]:  # noqa: ARG002
        """Return which of so many fresh words are at most a threshold, ascending."""
        with torch.cuda.stream(self._stream):
            found: NDArray[np.int64] = (
                self._kernel.coins(number, most).nonzero()[:, 0].cpu().numpy()
            )
        return found

    def order(self, records: NDArray[np.int64], step: int) -> NDArray[np.uint64]:
        """Return fresh words of the processor, as there are few."""
        return SecureCoins().order(records, step)


class SeededCoins(WordCoins):
    """Words from a seed and the number of the step, for experiments: they can be drawn again.

    No state is carried from step to step, so that a run that is resumed draws the lots that it
    would have drawn.
    """

    kind = "seeded"

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def words(self, number: int, step: int) -> NDArray[np.uint64]:
        """Return the words of a step, always the same."""
        # The last number keeps these words apart from those that noise is seeded with.
        generator = np.random.default_rng([self._seed, step, 0])
        return generator.integers(0, 2**64, size=number, dtype=np.uint64)

    def order(self, records: NDArray[np.int64], step: int) -> NDArray[np.uint64]:
        """Return a word for each record, which depends on seed, step and record alone."""
        generator = np.random.default_rng([self._seed, step, 0, 1])
        most = int(records.max(initial=-1)) + 1
        words: NDArray[np.uint64] = generator.integers(0, 2**64, size=most, dtype=np.uint64)
        return words[records]


def drawn_records(coins: Coins, records: int, rate: Fraction, step: int) -> NDArray[np.int64]:
    """Return the numbers of the records in a step's lot, ascending; there may be none.

    Parameters
    ----------
    coins : Coins
        Where the words come from.
    records : int
        How many records there are.
    rate : Fraction
        The probability of each to be in the lot, at least ``2**-64`` and at most 1.
    step : int
        The number of the step.
    """
    threshold = int(rate * 2**64)
    if not 1 <= threshold <= 2**64:
        raise InvalidParameterError(
            f"rate={float(rate)!r} is outside its domain: it is a probability from 2**-64 to 1"
        )
    # Not `< threshold`: a rate of 1 has the threshold 2**64, which does not fit into 64 bits.
    return coins.taken(records, threshold - 1, step)


def secure_coins(device: torch.device, records: int) -> Coins:
    """Return secure coins for so many records: a GPU's for many, and the processor's otherwise."""
    if device.type == "cuda" and records >= _LEAST_RECORDS_OF_A_GPU:
        try:
            return DeviceCoins(cuda_kernel(torch.empty(0, device=device).get_device()))
        except MatrixDPError as error:
            warnings.warn(f"{error}. Lots are drawn on the processor", RuntimeWarning, stacklevel=3)
    return SecureCoins()
