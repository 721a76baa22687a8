"""The parts of a data set: public records, private ones, and those that heads are tested on.

Texts become numbers by a public rule: no word is looked up in a list made from the reviews.
"""

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from matrixdp.errors import InvalidParameterError
from matrixdp_experiments.datasets import load_dataset
from matrixdp_experiments.grid.digits import digits_model, load_digit_records
from matrixdp_experiments.models import FeatureNetwork, model_for
from matrixdp_experiments.released_features.settings import PUBLIC_EVERY, feature_setting_of

__all__ = [
    "BUCKETS",
    "LENGTH",
    "Part",
    "Parts",
    "load_parts",
    "new_network",
    "word_numbers",
    "words_of",
]

BUCKETS = 20_000
"""How many numbers there are; 0 stands for no word."""

LENGTH = 256
"""A text is cut to so many words, or padded by 0."""

_MARKUP = re.compile(r"<[^<>]*>")
_WORD = re.compile(r"[a-z0-9]+(?:'[a-z]+)?")


class Part(NamedTuple):
    """Inputs of some records, or their features, and their targets."""

    inputs: Tensor
    targets: Tensor

    def to(self, device: torch.device) -> "Part":
        """Return the same on a device."""
        return Part(self.inputs.to(device), self.targets.to(device))


class Parts(NamedTuple):
    """A data set, divided by the index of a record and not by what is in it."""

    public: Part
    private: Part
    test: Part


# A worker process makes one run after another, mostly on the same data set.
@lru_cache(maxsize=1)
def load_parts(dataset: str) -> Parts:
    """Return the parts of a data set.

    Raises
    ------
    InvalidParameterError
        If it has another number of training records than its accounts are for.
    """
    setting = feature_setting_of(dataset)
    (inputs, targets), test = _training_and_test(dataset)
    # Sampling rate and blocks, and with them the noise, are those of the stated number.
    if len(inputs) != setting.records:
        raise InvalidParameterError(
            f"the data of dataset={dataset!r} has {len(inputs)} training records, but it is "
            f"accounted for with {setting.records}: use the data set that the page describes"
        )
    # By index, so that texts that are sorted by class are divided evenly.
    public = np.arange(len(inputs)) % PUBLIC_EVERY == 0
    return Parts(
        public=_part(inputs[public], targets[public]),
        private=_part(inputs[~public], targets[~public]),
        test=_part(*test),
    )


Arrays = tuple[NDArray[Any], NDArray[np.int64]]


def _training_and_test(dataset: str) -> tuple[Arrays, Arrays]:
    found: Any = load_digit_records() if dataset == "digits" else load_dataset(dataset)
    if hasattr(found, "train_texts"):
        return (
            (word_numbers(found.train_texts), found.train_targets),
            (word_numbers(found.test_texts), found.test_targets),
        )
    return (
        (found.train.inputs, found.train.targets),
        (found.test.inputs, found.test.targets),
    )


def _part(inputs: NDArray[Any], targets: NDArray[np.int64]) -> Part:
    return Part(torch.from_numpy(inputs), torch.from_numpy(targets))


def new_network(dataset: str) -> FeatureNetwork:
    """Return a network with weights from torch's own generator, cut at its features."""
    if dataset == "digits":
        *body, head = digits_model().children()
        return FeatureNetwork(nn.Sequential(*body), head)
    network = model_for(dataset)
    if not isinstance(network, FeatureNetwork):
        raise InvalidParameterError(f"the model of dataset={dataset!r} releases no features")
    return network


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
