"""Words and their numbers: by a rule that every process follows alike."""

import hashlib

import pytest

from matrixdp_experiments.released_features.parts import (
    BUCKETS,
    LENGTH,
    word_numbers,
    words_of,
)


def bucket(word: str) -> int:
    digest = hashlib.blake2b(word.encode(), digest_size=8).hexdigest()
    return 1 + int(digest, 16) % 19_999


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A film.A FILM!", ["a", "film", "a", "film"]),
        ("Don't<br /><br />stop", ["don't", "stop"]),
        ("7/10 -- 'great'", ["7", "10", "great"]),
        ("<", []),
        ("", []),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert words_of(text) == words


def test_numbers_are_hashes_cut_and_padded() -> None:
    # Not Python's own hashes, which differ between processes.
    found = word_numbers(["the cat sat on the mat", "cat"], length=3)
    assert found.tolist() == [[bucket("the"), bucket("cat"), bucket("sat")], [bucket("cat"), 0, 0]]
    assert word_numbers(["word " * 1000]).shape == (1, LENGTH)
    many = word_numbers([" ".join(map(str, range(3000)))], length=3000)
    assert 1 <= many.min() <= many.max() < BUCKETS


def test_numbers_do_not_depend_on_other_texts() -> None:
    alone = word_numbers(["a quiet film"], length=5)
    among = word_numbers(["loud noise", "a quiet film", "noise"], length=5)
    assert among[1].tolist() == alone[0].tolist()
