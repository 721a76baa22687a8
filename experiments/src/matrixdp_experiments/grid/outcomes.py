"""Outcomes of runs: one small file for each, by the key of its run."""

from collections.abc import Iterable
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from matrixdp.errors import FileFormatError
from matrixdp_experiments.grid.json_files import read_json
from matrixdp_experiments.grid.runs import run_key

__all__ = ["AnyRun", "Outcome", "Provenance", "outcome_path", "read_outcomes", "unfinished"]


class AnyRun(Protocol):
    """A frozen msgspec structure that says everything about a run."""

    @property
    def dataset(self) -> str:
        """What it is trained on."""

    @property
    def steps(self) -> int:
        """How many steps it takes."""


R = TypeVar("R", bound=AnyRun)


class Provenance(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where a result comes from."""

    commit: str
    device: str
    torch: str
    python: str


class Outcome(msgspec.Struct, Generic[R], frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The accuracy that a run reached, and how it was made."""

    run: R
    accuracy: float
    seconds: float
    provenance: Provenance


def outcome_path(folder: Path, run: AnyRun) -> Path:
    """Return where the outcome of a run is kept, or will be."""
    return folder / "runs" / f"{run.dataset}-{run_key(run)}.json"


def read_outcomes(folder: Path, kind: type[R]) -> dict[str, Outcome[R]]:
    """Return the outcomes of all finished runs by the keys of these runs.

    Raises
    ------
    FileFormatError
        If a file is damaged, or two files are of the same run.
    """
    # A file that was being written when its process was killed has a hidden name: no match.
    paths = sorted((folder / "runs").glob("*.json"))
    found = [read_json(path, Outcome[kind]) for path in paths]  # type: ignore[valid-type]
    outcomes: dict[str, Outcome[R]] = {}
    for path, one in zip(paths, found, strict=True):
        # By what a file says and not by its name, which somebody may have changed.
        key = run_key(one.run)
        # Neither of the two may be shown: they need not come from the same program.
        if key in outcomes:
            raise FileFormatError(
                f"{path} is of a run that another file of {path.parent} is of, too: delete the "
                f"one whose name does not end in {key}"
            )
        outcomes[key] = one
    return outcomes


def unfinished(runs: Iterable[R], folder: Path) -> list[R]:
    """Return the runs that have no outcome yet, each of them once."""
    # By key: runs hold a dict, so they cannot be hashed themselves.
    once = {run_key(run): run for run in runs}
    return [run for run in once.values() if not outcome_path(folder, run).exists()]
