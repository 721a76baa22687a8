"""Ranks as real processes on this machine: they run a program, and leave what they found."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch

SECONDS = 240


def started(program: str, size: int, folder: Path, *words: str) -> list[subprocess.Popen[str]]:
    """Start a function of `training.ranks.programs` on so many ranks."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "meeting").unlink(missing_ok=True)
    return [
        subprocess.Popen(
            [sys.executable, "-m", "training.ranks.programs", program, str(folder), *words],
            env=os.environ
            | {
                "PYTHONPATH": os.pathsep.join(sys.path),
                "RANK": str(rank),
                "WORLD_SIZE": str(size),
                "OMP_NUM_THREADS": "1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]


def ended(processes: Sequence[subprocess.Popen[str]]) -> list[str]:
    """Wait for processes, and return what they said; none is left behind."""
    try:
        return [process.communicate(timeout=SECONDS)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def run(program: str, size: int, folder: Path, *words: str) -> list[dict[str, Any]]:
    """Run a program on so many ranks, and return what each of them found."""
    processes = started(program, size, folder, *words)
    said = ended(processes)
    codes = [process.returncode for process in processes]
    assert codes == [0] * size, "\n".join(said)
    return [torch.load(folder / f"found-{rank}.pt") for rank in range(size)]
