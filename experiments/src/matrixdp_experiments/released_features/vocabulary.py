"""From texts to numbers by a public rule: no word is looked up in a list made from the reviews."""

import hashlib
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["BUCKETS", "LENGTH", "word_numbers", "words_of"]

BUCKETS = 20_000
"""How many numbers there are; 0 stands for no word."""

LENGTH = 256
"""A text is cut to so many words, or padded by 0."""

_MARKUP = re.compile(r"<[^<>]*>")
_WORD = re.compile(r"[a-z0-9]+(?:'[a-z]+)?")


def words_of(text: str) -> list[str]:
    """Return the words of a text: runs of letters and digits, in lower case, without markup.

    Examples
    --------
    >>> words_of("It isn't <br />GOOD: 3/10.")
    ['it', "isn't", 'good', '3', '10']
    """
    return _WORD.findall(_MARKUP.sub(" ", text).lower())


def word_numbers(texts: Sequence[str], length: int = LENGTH) -> NDArray[np.int64]:
    """Return the numbers of the first words of each text, padded by 0.

    A word's number is 1 plus its BLAKE2 hash modulo 19,999. It is the same in every process and on
    every machine, and says nothing about the texts. Some words share a number.

    Examples
    --------
    >>> word_numbers(["good", "Good film", ""], length=2).tolist()
    [[15621, 0], [15621, 9953], [0, 0]]
    """
    known: dict[str, int] = {}
    numbers = np.zeros((len(texts), length), np.int64)
    for row, text in zip(numbers, texts, strict=True):
        words = words_of(text)[:length]
        # Most words come again and again: each is hashed once.
        known |= {word: _hashed(word) for word in words if word not in known}
        row[: len(words)] = [known[word] for word in words]
    return numbers


def _hashed(word: str) -> int:
    digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
    return 1 + int.from_bytes(digest, "big") % (BUCKETS - 1)
