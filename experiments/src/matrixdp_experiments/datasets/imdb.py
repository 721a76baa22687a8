"""IMDB: film reviews as texts, one JSON object a line, compressed by xz."""

import json
import lzma
from pathlib import Path

import numpy as np

from matrixdp_experiments.datasets.arrays import damaged
from matrixdp_experiments.datasets.records import TextData

__all__ = ["REVIEWS", "load_imdb"]

REVIEWS = 12_500
"""How many reviews there are of each class in each part."""

_CLASSES = 2


def load_imdb(path: Path, reviews: int = REVIEWS) -> TextData:
    """Return the reviews; class 1 is positive.

    Parameters
    ----------
    path : Path
        The file ``imdb.jsonl.xz``.
    reviews : int, optional
        How many there have to be of each class in each part.

    Raises
    ------
    FileFormatError
        If the file is damaged, or does not have that many.
    """
    texts: dict[tuple[str, int], list[str]] = {
        (split, label): [] for split in ("train", "test") for label in (1, 0)
    }
    try:
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                record = json.loads(line)
                texts[record["split"], record["label"]].append(record["text"])
    except (lzma.LZMAError, EOFError, ValueError, KeyError, TypeError):
        damaged(path, "cannot be read: it is cut short, or is not a file of reviews")
    if any(len(found) != reviews for found in texts.values()):
        damaged(path, f"does not have {reviews:,} reviews of each class in each part")
    # Positive ones first, as the file has them; whoever trains draws them in another order.
    targets = np.repeat(np.array([1, 0], np.int64), reviews)
    return TextData(
        name="imdb",
        classes=_CLASSES,
        train_texts=(*texts["train", 1], *texts["train", 0]),
        train_targets=targets,
        test_texts=(*texts["test", 1], *texts["test", 0]),
        test_targets=targets.copy(),
    )
