"""Provenance of a result: the program's commit, the device, and the versions that made it."""

import os
import platform
import subprocess
from pathlib import Path

import torch

from matrixdp_experiments.grid.outcomes import Provenance

__all__ = ["provenance"]

_ROOT = Path(__file__).resolve().parents[4]


def provenance() -> Provenance:
    """Return the provenance of what this process makes."""
    return Provenance(
        commit=_commit(),
        device=_device(),
        torch=str(torch.__version__),
        python=platform.python_version(),
    )


def _commit() -> str:
    """Return the commit from MATRIXDP_COMMIT, for copies without history, or from git."""
    stated = os.environ.get("MATRIXDP_COMMIT")
    if stated:
        return stated
    # Results are written while others are made: they do not count as a change of the program.
    changed = _git("status", "--porcelain", "--", ".", ":(exclude)results")
    head = _git("rev-parse", "--short", "HEAD") or "unknown"
    return f"{head}-dirty" if changed else head


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=_ROOT)  # noqa: S603
    except OSError:  # no git on this machine
        return ""
    return done.stdout.strip()


def _device() -> str:
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), "unknown")
