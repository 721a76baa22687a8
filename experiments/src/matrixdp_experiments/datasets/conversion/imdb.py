"""IMDB: one small file for each review, named by its number and its rating."""

import gzip
import json
import lzma
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matrixdp.errors import FileFormatError

__all__ = ["IMDB_ARCHIVE", "convert_imdb"]

IMDB_ARCHIVE = "aclImdb_v1.tar.gz"

_REVIEW = re.compile(r"aclImdb/(train|test)/(pos|neg)/(\d+)_(\d+)\.txt")


def convert_imdb(downloads: Mapping[str, Path], folder: Path) -> None:
    """Write ``imdb.jsonl.xz`` from the archive of the authors, without the unlabelled reviews.

    Parameters
    ----------
    downloads : mapping of str to Path
        The archive by its name.
    folder : Path
        Where to write.

    Raises
    ------
    FileFormatError
        If the archive is damaged.
    """
    archive = downloads[IMDB_ARCHIVE]
    try:
        reviews = _reviews(archive)
    except (tarfile.TarError, EOFError, OSError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{archive.name} is not a whole archive of reviews") from error
    # The training part first, positive reviews first, then by number: whatever order the archive
    # has, the file is the same.
    reviews.sort(key=lambda review: (review["split"] != "train", -review["label"], review["id"]))
    with lzma.open(folder / "imdb.jsonl.xz", "wt", encoding="utf-8", newline="\n") as lines:
        for review in reviews:
            lines.write(json.dumps(review, ensure_ascii=False) + "\n")


def _reviews(archive: Path) -> list[dict[str, Any]]:
    reviews = []
    # As a stream: the archive has 100,000 members, and looking them up by name would read it twice.
    # Unpacked by gzip itself, which notices when the archive is cut short; tarfile does not.
    with gzip.open(archive) as unpacked, tarfile.open(fileobj=unpacked, mode="r|") as members:
        for member in members:
            found = _REVIEW.fullmatch(member.name)
            file = members.extractfile(member) if found else None
            if found is None or file is None:
                continue
            split, kind, number, rating = found.groups()
            reviews.append(
                {
                    "split": split,
                    "label": int(kind == "pos"),
                    "id": int(number),
                    "rating": int(rating),
                    "text": file.read().decode("utf-8"),
                }
            )
    return reviews
