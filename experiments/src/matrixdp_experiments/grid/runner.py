"""Makes runs, one after another or several at a time, and keeps what comes out in small files.

A finished run is one file, which appears whole. So a grid can be killed at any time: what is
finished is not made again, and what was under way starts anew. Each file says by which commit, on
which device and with which versions it was made.
"""

import multiprocessing
import os
import platform
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch

from matrixdp.errors import MatrixDPError
from matrixdp.parameters import positive_integer
from matrixdp_experiments.grid.json_files import write_json
from matrixdp_experiments.grid.outcomes import AnyRun, Outcome, Provenance, outcome_path

__all__ = ["Progress", "Tell", "Work", "perform", "provenance"]

R = TypeVar("R", bound=AnyRun)
Tell = Callable[[AnyRun, str | None], None]
"""Told about each run when it ends: with None, or with the reason for its failure."""
_ROOT = Path(__file__).resolve().parents[4]
Progress = Callable[[Sequence[AnyRun]], AbstractContextManager[Tell]]
"""Shows the progress of some runs: it yields a function to call as each of them ends."""


def perform(
    runs: Sequence[R],
    work: Callable[[R], float],
    folder: Path,
    *,
    parallel: int,
    tell: Tell,
) -> int:
    """Make runs and keep their outcomes; return how many failed.

    A run that fails, for instance because the memory of the GPU is used up, does not stop the
    others. It has no outcome, so that it is made again the next time.

    Parameters
    ----------
    runs : sequence
        What is left to be made.
    work : callable
        Makes a run and returns its accuracy; a function of a module, so that processes can find it.
    folder : Path
        Of the experiment's results.
    parallel : int
        How many runs at a time, each in a process of its own if there are several.
    tell : callable
        Called after each run.
    """
    failed = 0
    for run, failure in _ended(runs, work, folder, parallel):
        failed += failure is not None
        tell(run, failure)
    return failed


def _ended(
    runs: Sequence[R], work: Callable[[R], float], folder: Path, parallel: int
) -> Iterator[tuple[R, str | None]]:
    if not parallel > 1:
        for run in runs:
            yield run, _made(run, work, folder)
        return  # in this process: errors and interrupts are easier to follow
    # A new interpreter for each worker: CUDA does not survive a fork.
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(parallel, mp_context=context, initializer=_begin_worker)
    try:
        under_way = {executor.submit(_made, run, work, folder): run for run in runs}
        for future in as_completed(under_way):
            try:
                yield under_way[future], future.result()
            except BrokenProcessPool as error:
                yield under_way[future], f"a worker process died ({error})"
    finally:
        # After an interrupt, what has not begun is not begun any more.
        executor.shutdown(cancel_futures=True)


def _begin_worker() -> None:
    torch.set_num_threads(1)  # the workers share the cores
    parent = multiprocessing.parent_process()
    # Workers wait for work on a pipe whose other end they hold as well: without this they would
    # outlive a parent that was killed, and keep the memory of the GPU.
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: multiprocessing.process.BaseProcess) -> None:
    """End this process when its parent is gone, also if that was killed."""
    parent.join()
    # Not sys.exit, which would end this thread only.
    os._exit(1)


def _made(run: R, work: Callable[[R], float], folder: Path) -> str | None:
    """Make a run and write its outcome; return why it failed, if it did."""
    begin = time.perf_counter()
    try:
        accuracy = work(run)
    # torch raises RuntimeError for whatever a device refuses.
    except (MatrixDPError, RuntimeError, OSError) as error:
        return f"{type(error).__name__}: {error}"
    outcome = Outcome(
        run=run,
        accuracy=accuracy,
        seconds=round(time.perf_counter() - begin, 2),
        provenance=provenance(),
    )
    # By the worker and not by its parent, so that nothing is lost if the parent is killed.
    write_json(outcome_path(folder, run), outcome)
    return None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The folder of an experiment's results, and how its runs are made.

    Raises
    ------
    InvalidParameterError
        If no run is to be made at a time.
    """

    folder: Path
    parallel: int
    progress: Progress

    def __post_init__(self) -> None:
        """Check the number of runs at a time."""
        positive_integer(self.parallel, "parallel")

    def perform(self, runs: Sequence[R], make: Callable[[R], float]) -> int:
        """Make runs, whether they are finished or not; return how many failed."""
        with self.progress(runs) as tell:
            return perform(runs, make, self.folder, parallel=self.parallel, tell=tell)
