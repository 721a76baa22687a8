"""Reviews: both parts, both classes, and files that are cut short."""

from pathlib import Path

import pytest

from matrixdp.errors import FileFormatError
from matrixdp_experiments.datasets.imdb import load_imdb
from small_files import reviews, write_reviews


def test_reviews(tmp_path: Path) -> None:
    path = tmp_path / "imdb.jsonl.xz"
    write_reviews(path, reviews(3)[::-1])
    data = load_imdb(path, reviews=3)
    assert data.train_targets.tolist() == data.test_targets.tolist() == [1, 1, 1, 0, 0, 0]
    assert data.train_texts[3:] == ("train 2 é", "train 1 é", "train 0 é")
    assert all(text.startswith("test") for text in data.test_texts)


def test_wrong_files(tmp_path: Path) -> None:
    path = tmp_path / "imdb.jsonl.xz"
    write_reviews(path, reviews(3)[:-1])
    with pytest.raises(FileFormatError, match=r"imdb\.jsonl\.xz does not have 3 reviews"):
        load_imdb(path, reviews=3)
    write_reviews(path, [{"split": "other", "label": 1, "text": ""}])
    with pytest.raises(FileFormatError, match="is not a file of reviews"):
        load_imdb(path, reviews=3)
    write_reviews(path, reviews(3))
    content = path.read_bytes()
    for cut in (0, 20, len(content) // 2, len(content) - 3):
        path.write_bytes(content[:cut])
        with pytest.raises(FileFormatError, match=r"imdb\.jsonl\.xz"):
            load_imdb(path, reviews=3)
