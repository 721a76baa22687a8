"""Secrets of the parts of a release that is paid for as a whole."""

from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from matrixdp.noise.keys.stream import HASH, KEY_BYTES

__all__ = ["secret_of_part"]


def secret_of_part(secret: bytes, part: str) -> bytes:
    """Return the secret of a part by HKDF-SHA256.

    Two parts may have the same shape and scale, and would have the same noise from one key. A
    `NoiseContext` begins with a brace and a `ValueTag` with another word, so neither is derived
    from the same text.

    Examples
    --------
    >>> secret_of_part(bytes(32), "records") == secret_of_part(bytes(32), "clipped")
    False
    """
    return HKDF(HASH, KEY_BYTES, salt=None, info=b"part " + part.encode()).derive(secret)
