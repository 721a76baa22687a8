"""Contrastive learning on scenes (SimCLR), in pieces that continue where the last one stopped.

The weights that were learned are in one file. The method is that of
Chen, Kornblith, Norouzi and Hinton, *A simple framework for contrastive learning of visual
representations*, 2020.
"""

import hashlib
import io
import math
import pickle
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn, optim
from torch.nn import functional

from matrixdp.errors import FileFormatError
from matrixdp.files.publishing.atomic import write_all
from matrixdp_experiments.procedural.draws import Draws
from matrixdp_experiments.procedural.networks import (
    Body,
    NetworkName,
    Projection,
    half_on_gpu,
    shown,
)
from matrixdp_experiments.procedural.rendering import rendered
from matrixdp_experiments.procedural.scenes import drawn_pairs
from matrixdp_experiments.procedural.textures import texture_bank
from matrixdp_experiments.procedural.views import random_views

__all__ = [
    "Pretraining",
    "Progress",
    "contrast",
    "digest_of",
    "pretrained",
    "read_body",
    "write_body",
]

Progress = Callable[[str], None]
_REPORTED = 100  # steps between two lines


@dataclass(frozen=True)
class Pretraining:
    """What a network learns from; two of these that are equal give the same network on one machine.

    Attributes
    ----------
    network : str
        One of `NETWORKS`.
    seed : int
        Of weights, textures and scenes.
    steps : int
        How many, in all pieces together.
    pairs : int
        Scenes of one step.
    textures : int
        Size of the bank.
    rate, decay : float
        Learning rate and weight decay of AdamW.
    warm_up : int
        Steps in which the rate rises; it then falls to 0 as a cosine.
    temperature : float
        Of the contrastive loss.
    hidden, outputs : int
        Sizes of the projection.
    """

    network: NetworkName
    seed: int
    steps: int
    pairs: int = 2048
    textures: int = 65_536
    rate: float = 1.2e-3
    decay: float = 1e-4
    warm_up: int = 300
    temperature: float = 0.15
    hidden: int = 1024
    outputs: int = 128

    def rate_at(self, step: int) -> float:
        """Return the learning rate of a step, from 0.

        Examples
        --------
        >>> plan = Pretraining("tiny", 0, steps=1000)
        >>> plan.rate_at(299), round(plan.rate_at(650), 6), round(plan.rate_at(999), 6)
        (0.0012, 0.0006, 0.0)
        """
        if step < self.warm_up:
            return self.rate * (step + 1) / self.warm_up
        done = (step - self.warm_up) / max(1, self.steps - self.warm_up)
        return self.rate * (1 + math.cos(math.pi * done)) / 2


def contrast(rows: Tensor, temperature: float) -> Tensor:
    """Return the mean loss of finding each row's partner among all others.

    Row i and row ``i + len(rows) / 2`` are partners. The loss of a row is the cross-entropy of its
    products with all other rows, over the temperature.

    Examples
    --------
    >>> rows = torch.eye(4).repeat(2, 1)
    >>> round(float(contrast(rows, 1.0)), 4)  # log(1 + 6 / e)
    1.1654
    """
    half = len(rows) // 2
    logits = rows @ rows.T / temperature
    logits.fill_diagonal_(-torch.inf)
    partner = torch.arange(len(rows), device=rows.device).roll(half)
    return functional.cross_entropy(logits, partner)


class _State:
    """Network, optimiser, step and generator: all that a checkpoint holds."""

    def __init__(self, plan: Pretraining, device: torch.device) -> None:
        torch.manual_seed(plan.seed)
        self.plan = plan
        self.body = Body(plan.network).to(device)
        self.projection = Projection(self.body.channels, plan.hidden, plan.outputs).to(device)
        both = nn.ModuleList([self.body, self.projection])
        self.parameters = list(both.parameters())
        self.optimizer = optim.AdamW(
            self.parameters, lr=plan.rate, weight_decay=plan.decay, fused=device.type == "cuda"
        )
        # Two streams: the bank is made again for every piece.
        self.bank = texture_bank(plan.textures, Draws.of(2 * plan.seed, device))
        self.draws = Draws.of(2 * plan.seed + 1, device)
        self.step = 0

    def saved(self) -> dict[str, Any]:
        return {
            "body": self.body.state_dict(),
            "projection": self.projection.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.draws.generator.get_state(),
            "step": self.step,
        }

    def restore(self, saved: dict[str, Any]) -> None:
        self.body.load_state_dict(saved["body"])
        self.projection.load_state_dict(saved["projection"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.draws.generator.set_state(saved["generator"].cpu())
        self.step = saved["step"]

    def advance(self) -> Tensor:
        """Take one step and return its loss."""
        plan = self.plan
        for group in self.optimizer.param_groups:
            group["lr"] = plan.rate_at(self.step)
        with torch.no_grad():
            pair = drawn_pairs(plan.pairs, plan.textures, self.draws)
            views = [random_views(rendered(layers, self.bank), self.draws) for layers in pair]
            images = shown(torch.cat(views))
        with half_on_gpu(self.draws.device):
            rows = self.projection(self.body(images))
        loss = contrast(rows, plan.temperature)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.step += 1
        return loss.detach()


def pretrained(
    plan: Pretraining,
    device: torch.device,
    *,
    checkpoint: Path,
    seconds: float,
    progress: Progress,
) -> Body | None:
    """Return the body after all steps, or None if the time was over before.

    Parameters
    ----------
    plan : Pretraining
        What to do.
    device : torch.device
        Where.
    checkpoint : Path
        Continued from if it is there; written at the end of the piece.
    seconds : float
        When to stop.
    progress : callable
        Told how it goes.
    """
    state = _State(plan, device)
    if checkpoint.exists():
        state.restore(torch.load(checkpoint, map_location=device, weights_only=True))
    for line in _piece(state, seconds):
        progress(line)
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state.saved(), checkpoint)
    return state.body if state.step >= plan.steps else None


def _piece(state: _State, seconds: float) -> Iterator[str]:
    """Take steps until they are done or the time is over; yield lines about them."""
    start = last = time.monotonic()
    reported = state.step
    while state.step < state.plan.steps and time.monotonic() - start < seconds:
        loss = state.advance()
        if state.step % _REPORTED == 0 or state.step == state.plan.steps:
            value = float(loss)  # waits for the device
            now = time.monotonic()
            speed = 2 * state.plan.pairs * (state.step - reported) / (now - last)
            yield f"step {state.step}: loss {value:.3f}, {speed:.0f} views/s"
            last, reported = now, state.step


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_body(path: Path, body: Body, plan: Pretraining) -> None:
    """Write weights, rounded to bfloat16, and what they were learned from."""
    content = io.BytesIO()
    weights = {name: part.cpu().bfloat16() for name, part in body.state_dict().items()}
    torch.save({"plan": asdict(plan), "weights": weights}, content)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_all([(path, content.getvalue())], force=True)


def read_body(path: Path) -> tuple[Body, Pretraining]:
    """Return a network and what it was learned from.

    Raises
    ------
    FileFormatError
        If the file does not hold them.
    """
    try:
        saved = torch.load(path, weights_only=True)
        plan = Pretraining(**saved["plan"])
        body = Body(plan.network)
        body.load_state_dict(saved["weights"])
    except (pickle.UnpicklingError, EOFError, KeyError, RuntimeError, TypeError) as error:
        raise FileFormatError(
            f"{path} does not hold a network of `record pretrain`: make it again"
        ) from error
    return body.eval(), plan
