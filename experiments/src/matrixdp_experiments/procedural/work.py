"""The work of each command: learn, make rows, choose, release."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from matrixdp import Budget
from matrixdp_experiments.grid.runner import provenance
from matrixdp_experiments.grid.tasks import this_device
from matrixdp_experiments.procedural.account import Account, Descent
from matrixdp_experiments.procedural.blocks import Block
from matrixdp_experiments.procedural.centring import ROW_LENGTH, Centring, released_mean
from matrixdp_experiments.procedural.features import FeatureMap, FeatureSetting
from matrixdp_experiments.procedural.folders import RowFolder, load_images
from matrixdp_experiments.procedural.head import CLASSES, Classifier, descend
from matrixdp_experiments.procedural.neighbours import NeighbourWatch, crafted_images, crafted_rows
from matrixdp_experiments.procedural.pretraining import (
    Pretraining,
    Progress,
    digest_of,
    pretrained,
    read_body,
    write_body,
)
from matrixdp_experiments.procedural.releasing import ExactNoise, Noise, SimulatedNoise

__all__ = ["choose", "make_rows", "pretrain", "release"]

_HELD_OUT = 5000
_REMOVED, _MOVED_IMAGES = 4, 2048


def pretrain(
    plan: Pretraining, path: Path, *, seconds: float, progress: Progress
) -> dict[str, Any]:
    """Learn for some time; write the network to a file once all steps are done."""
    state = path.with_suffix(".state")
    body = pretrained(plan, this_device(), checkpoint=state, seconds=seconds, progress=progress)
    if body is None:
        return {"finished": False, "checkpoint": str(state)}
    write_body(path, body, plan)
    return {"finished": True, "weights": str(path), "digest": digest_of(path)}


def make_rows(
    networks: Sequence[Path],
    parts: Sequence[str],
    setting: FeatureSetting,
    folder: RowFolder,
    progress: Progress,
) -> dict[str, Any]:
    """Write the rows of some parts of CIFAR-10, and those of crafted images."""
    device = this_device()
    start = time.monotonic()
    feature_map = FeatureMap.of([read_body(path)[0] for path in networks], setting, device)
    blocks = feature_map.blocks
    columns = sum(block.columns for block in blocks)
    progress(f"{len(blocks)} blocks, {columns} columns: {time.monotonic() - start:.0f} s")
    for part in parts:
        images, labels = load_images(part)
        rows = feature_map(images)
        folder.write(part, rows, labels)
        progress(f"{part}: {len(rows)} rows, {time.monotonic() - start:.0f} s")
    some, _ = load_images("train")
    crafted = torch.cat([feature_map(crafted_images()), crafted_rows(blocks)])
    folder.write("crafted", crafted, torch.arange(len(crafted)) % CLASSES)
    facts = {
        "networks": [digest_of(path) for path in networks],
        "rows_changed_without_the_first": _changed_by_index(feature_map, some[:_MOVED_IMAGES]),
        "rows_compared": min(_MOVED_IMAGES, len(some)) - 1,
    }
    folder.write_facts(blocks, facts)
    return {"columns": columns, "blocks": len(blocks), **facts}


def _changed_by_index(feature_map: FeatureMap, images: Tensor) -> int:
    """Return how many rows change if the first image is taken out, so that all others move up."""
    whole, without = feature_map(images)[1:], feature_map(images[1:])
    return int((whole != without).any(dim=1).sum())


@dataclass(frozen=True, eq=False)
class _Trained:
    centring: Centring
    classifier: Classifier

    def accuracy(self, rows: Tensor, labels: Tensor) -> float:
        """Return the share of rows that are classified correctly."""
        scores = self.classifier.scores(self.centring(rows))
        return float((scores.argmax(dim=1).cpu() == labels).double().mean())


def _centred(
    rows: Tensor, blocks: Sequence[Block], descent: Descent, account: Account, noise: Noise
) -> tuple[Centring, Tensor]:
    """Release the mean; return what it makes of rows, and the rows."""
    private = rows.to(this_device())
    mean = released_mean(private, blocks, descent.records, account.mean, noise)
    centring = Centring(blocks, mean)
    return centring, centring(private)


def choose(
    folder: RowFolder, whole: Budget, descent: Descent, *, folds: Sequence[int], seed: int
) -> dict[str, Any]:
    """Return accuracies on held-out training images, with simulated noise.

    Each fold holds out 5,000 images in their order. This looks at private data and is not paid for.
    """
    rows, labels = folder.read("train")
    blocks, facts = folder.read_facts()
    held = min(_HELD_OUT, len(rows) // 2)
    found = []
    for fold in folds:
        out = torch.zeros(len(rows), dtype=torch.bool)
        out[fold * held : (fold + 1) * held] = True
        fitted = replace(descent, records=int((~out).sum()))
        account = Account.of(whole, fitted)
        noise = SimulatedNoise(1000 * seed + fold)
        centring, centred = _centred(rows[~out], blocks, fitted, account, noise)
        kept = labels[~out].to(centred.device)
        trained = _Trained(centring, descend(centred, kept, fitted, account.steps, noise))
        del centred
        found.append(trained.accuracy(rows[out], labels[out]))
    return {"held_out": found, "mean": sum(found) / len(found), **facts}


def release(
    folder: RowFolder, whole: Budget, descent: Descent, *, measured: bool, test: bool
) -> dict[str, Any]:
    """Release mean and gradients of all training images with exact noise; return what is known.

    Parameters
    ----------
    folder : RowFolder
        Rows of the training images, and of the test images if those are looked at.
    whole : Budget
        For all releases together.
    descent : Descent
        The schedule.
    measured : bool
        Whether neighbours are measured on the way.
    test : bool
        Whether to look at the test images.
    """
    rows, labels = folder.read("train")
    blocks, facts = folder.read_facts()
    account = Account.of(whole, descent)
    noise = ExactNoise(account.whole)
    start = time.monotonic()
    centring, centred = _centred(rows, blocks, descent, account, noise)
    watch = _watch(folder, centring, centred, labels, descent) if measured else None
    kept = labels.to(centred.device)
    trained = _Trained(centring, descend(centred, kept, descent, account.steps, noise, watch=watch))
    del centred
    found: dict[str, Any] = {
        "epsilon": whole.epsilon,
        "delta": whole.delta,
        "mu": whole.mu,
        "spent": noise.privacy_filter.spent,
        "releases": 1 + len(account.steps),
        "seconds": time.monotonic() - start,
        "train_accuracy": trained.accuracy(rows, labels),
        **facts,
        **msgspec.to_builtins(provenance()),
    }
    if watch is not None:
        found |= {"largest_move": watch.largest, "neighbours": watch.compared}
    if test:
        found["test_accuracy"] = trained.accuracy(*folder.read("test"))
    return found


def _watch(
    folder: RowFolder, centring: Centring, centred: Tensor, labels: Tensor, descent: Descent
) -> NeighbourWatch:
    """Return what measures a few neighbours in a few steps: others taken out each time it runs."""
    extra_rows, extra_labels = folder.read("crafted")
    last = descent.steps - 1
    return NeighbourWatch(
        rows=centred,
        labels=labels.to(centred.device),
        clip=descent.clip / ROW_LENGTH,
        extra_rows=centring(extra_rows),
        extra_labels=extra_labels.to(centred.device),
        removed=torch.randint(len(centred), (_REMOVED,)).tolist(),
        steps=frozenset({0, 1, last // 4, last // 2, last}),
    )
