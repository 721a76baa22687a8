"""Message authentication codes of values: whether a release is finished with the same value.

Two values with the noise of one key differ by exactly their difference. Whoever keeps a key to
finish a release later therefore keeps this code beside it. It is GMAC (NIST SP 800-38D) under a key
derived from the release key, the context and what is stated about the release. One code per key is
made public at most, so it tells nothing about the value as long as the key is secret, and nothing
at all once the key is gone.
"""

from typing import Any, Self

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from matrixdp.noise.keys.context import NoiseContext
from matrixdp.noise.keys.stream import HASH, KEY_BYTES

__all__ = ["ValueTag"]

# The key is used for one message, so the nonce need not differ.
_NONCE = bytes(12)
# The cipher takes less than 2**31 bytes at once.
_BYTES_TOGETHER = 1 << 30


class ValueTag:
    """The code of a value, fed in parts in the order of its elements.

    Parameters
    ----------
    secret : bytes
        Of the release key.
    context : NoiseContext
        What the noise is for.
    statement : bytes
        What is stated of the release: another statement has another code.

    Examples
    --------
    >>> context = NoiseContext.describe(shape=(2, 2), dtype="float64", scale=1.0)
    >>> one = ValueTag(bytes(32), context, b"").update(np.eye(2)).digest()
    >>> other = ValueTag(bytes(32), context, b"").update(np.zeros((2, 2))).digest()
    >>> len(one), one == other
    (16, False)
    """

    def __init__(self, secret: bytes, context: NoiseContext, statement: bytes) -> None:
        info = b"value tag" + len(statement).to_bytes(8, "big") + statement + context.encoded
        key = HKDF(HASH, KEY_BYTES, salt=None, info=info).derive(secret)
        self._code = Cipher(algorithms.AES(key), modes.GCM(_NONCE)).encryptor()

    def update(self, part: NDArray[Any]) -> Self:
        """Feed the next elements, in C order."""
        # A row at a time would be slow for narrow matrices, and a copy of all takes memory.
        for piece in [part] if part.flags.c_contiguous else part:
            content = np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data
            for start in range(0, len(content), _BYTES_TOGETHER):
                self._code.authenticate_additional_data(content[start : start + _BYTES_TOGETHER])
        return self

    def digest(self) -> bytes:
        """Return the code; nothing more can be fed."""
        self._code.finalize()
        return self._code.tag
