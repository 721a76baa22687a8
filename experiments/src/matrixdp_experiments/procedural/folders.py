"""A folder of rows: what the feature map made of images, and the blocks of its columns."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from matrixdp.errors import FileFormatError
from matrixdp_experiments.datasets.folder import data_folder, files_of
from matrixdp_experiments.datasets.images import CIFAR10, read_images
from matrixdp_experiments.procedural.blocks import Block

__all__ = ["RowFolder", "load_images"]


def load_images(part: str) -> tuple[Tensor, Tensor]:
    """Return the images of a part of CIFAR-10 as uint8, channels first, and their labels.

    Parameters
    ----------
    part : {"train", "test"}
        Of the file in the folder that MATRIXDP_DATA names.
    """
    arrays = read_images(files_of(CIFAR10.name, data_folder(None))[0], CIFAR10)
    images = np.ascontiguousarray(arrays[f"x_{part}"].transpose(0, 3, 1, 2))
    return torch.from_numpy(images), torch.from_numpy(arrays[f"y_{part}"].astype(np.int64))


class RowFolder:
    """Rows of each part in a file, and what is known of all of them.

    Parameters
    ----------
    folder : Path
        Where they are, or will be.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, part: str, rows: Tensor, labels: Tensor) -> None:
        """Write the rows and labels of a part."""
        self.folder.mkdir(parents=True, exist_ok=True)
        np.save(self.folder / f"{part}_rows.npy", rows.numpy())
        np.save(self.folder / f"{part}_labels.npy", labels.numpy())

    def read(self, part: str) -> tuple[Tensor, Tensor]:
        """Return the rows and labels of a part."""
        paths = [self.folder / f"{part}_{what}.npy" for what in ("rows", "labels")]
        if not all(path.exists() for path in paths):
            raise FileFormatError(f"{paths[0]} is missing: `record features` makes it")
        rows, labels = (torch.from_numpy(np.load(path)) for path in paths)
        return rows, labels

    def write_facts(self, blocks: Sequence[Block], facts: dict[str, object]) -> None:
        """Write the blocks, and what else is known."""
        self.folder.mkdir(parents=True, exist_ok=True)
        written = {**facts, "blocks": [asdict(block) for block in blocks]}
        (self.folder / "facts.json").write_text(json.dumps(written, indent=2) + "\n")

    def read_facts(self) -> tuple[list[Block], dict[str, object]]:
        """Return the blocks, and what else is known."""
        path = self.folder / "facts.json"
        if not path.exists():
            raise FileFormatError(f"{path} is missing: `record features` makes it")
        facts = json.loads(path.read_text())
        return [Block(**block) for block in facts.pop("blocks")], facts
