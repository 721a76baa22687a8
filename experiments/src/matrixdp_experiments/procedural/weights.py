"""Weights of a learned network in one file, and its digest."""

import hashlib
import io
import pickle
from dataclasses import asdict
from pathlib import Path

import torch

from matrixdp.errors import FileFormatError
from matrixdp.files.publishing.atomic import write_all
from matrixdp_experiments.procedural.networks import Body
from matrixdp_experiments.procedural.pretraining import Pretraining

__all__ = ["digest_of", "read_body", "write_body"]


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
