"""Saved figures of a benchmark: a small table under ``results/`` with its provenance."""

import csv
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[1] / "results"


def save(name: str, figures: Mapping[str, float], packages: Iterable[str] = ()) -> None:
    """Write ``results/<name>.csv`` if the script was started with ``--save``.

    With the versions of packages that the figures rest on.
    """
    if "--save" not in sys.argv[1:]:
        return
    RESULTS.mkdir(exist_ok=True)
    made_by = commit()  # before the file is touched, which is a change, too
    with (RESULTS / f"{name}.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["what", "figure"])
        writer.writerow(["commit", made_by])
        writer.writerow(["processor", processor()])
        writer.writerow(["python", platform.python_version()])
        writer.writerows((f"version of {each}", version(each)) for each in packages)
        writer.writerows((what, f"{figure:.4g}") for what, figure in figures.items())


def commit() -> str:
    """Return the commit, and whether anything but other results has changed since."""
    head = _git("rev-parse", "--short", "HEAD") or "unknown"
    changed = _git("status", "--porcelain", "--", ".", ":(exclude)results")
    return f"{head}-dirty" if changed else head


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=RESULTS.parent)  # noqa: S603
    return done.stdout.strip()


def processor() -> str:
    """Return the model of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), "unknown")
