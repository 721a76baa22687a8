"""Answers that were drawn are paid for: they are written, whatever comes in between."""

import signal
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import typer
from numpy.typing import ArrayLike, NDArray

from matrixdp.errors import StorageError
from matrixdp.files.answers import check_answers_target, save_answers
from matrixdp.files.statement import statement_path
from matrixdp.mechanisms.matrix_mechanism import MatrixMechanism, WorkloadRelease

__all__ = ["answer_into"]


class _Interrupts:
    """Interrupts from the keyboard that wait: noted while held, raised while let through."""

    def __init__(self) -> None:
        self.came = False

    def note(self, _signal: int = signal.SIGINT, _frame: FrameType | None = None) -> None:
        self.came = True

    @contextmanager
    def held(self) -> Iterator[None]:
        elsewhere = threading.current_thread() is not threading.main_thread()
        # Ignored, as under nohup; or handled by what Python could not put back.
        left_alone = signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None)
        if elsewhere or left_alone:
            yield  # none can come here
            return
        former = signal.signal(signal.SIGINT, self.note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, former)

    @contextmanager
    def let_through(self) -> Iterator[None]:
        """Go on after an interrupt of what stands within, as if that had ended."""
        holding = signal.getsignal(signal.SIGINT) == self.note
        try:
            if holding:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            yield
        except KeyboardInterrupt:
            self.note()
        finally:
            if holding:
                signal.signal(signal.SIGINT, self.note)


def answer_into(
    mechanism: MatrixMechanism,
    counts: ArrayLike,
    target: Path,
    steps: tuple[str, ...],
    *,
    force: bool,
) -> tuple[str, ...]:
    """Release a histogram, write the answers, and return what was done to them.

    All that can fail is tried first. Post-processing that fails or is interrupted leaves the
    answers as they are; if the target cannot be written after all, they go to a temporary folder.

    Raises
    ------
    InvalidParameterError, ShapeError, StorageError
        Before anything is drawn.
    StorageError
        Afterwards, where the error says where the answers are.
    KeyboardInterrupt
        After everything is written, if it came meanwhile.
    """
    check_answers_target(mechanism, target, force=force)
    interrupts = _Interrupts()
    with interrupts.held(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        release = mechanism.release(counts)
        answers, failure = _post_processed(release, steps, interrupts)
        _save(mechanism, answers, target, () if failure else steps, force=force)
    # All is told when nothing can be lost any more, not even by that.
    for warning in caught:
        typer.echo(f"matrixdp: {warning.message}", err=True)
    if failure:
        typer.echo(f"matrixdp: the answers are not post-processed: {failure}", err=True)
    if interrupts.came:
        typer.echo(f"matrixdp: wrote {target} and {statement_path(target)}", err=True)
        raise KeyboardInterrupt
    return () if failure else steps


def _post_processed(
    release: WorkloadRelease, steps: tuple[str, ...], interrupts: _Interrupts
) -> tuple[NDArray[Any], str | None]:
    """Return the answers; or if that fails those without post-processing, and why."""
    plain = release.answers
    if not steps:
        return plain, None
    reason = "interrupted"
    with interrupts.let_through():
        try:
            if not interrupts.came:
                return release.workload.apply(_processed(release, steps)), None
        except Exception as failure:  # noqa: BLE001 (whatever it is, the answers are paid for)
            reason = str(failure) or type(failure).__name__
    return plain, reason


def _processed(release: WorkloadRelease, steps: tuple[str, ...]) -> NDArray[Any]:
    from matrixdp.postprocess.counts import nonnegative_estimate, whole_counts  # noqa: PLC0415

    estimate = nonnegative_estimate(release) if "non-negative" in steps else release.estimate
    return whole_counts(estimate).astype(float) if "whole" in steps else estimate


def _save(
    mechanism: MatrixMechanism,
    answers: NDArray[Any],
    target: Path,
    done: tuple[str, ...],
    *,
    force: bool,
) -> None:
    try:
        save_answers(mechanism, answers, target, post_processing=done, force=force)
    except Exception as failure:  # noqa: BLE001 (whatever it is, the answers are paid for)
        reason = str(failure) or type(failure).__name__
    else:
        return
    try:
        refuge = Path(tempfile.mkdtemp(prefix="matrixdp-")) / target.name
        save_answers(mechanism, answers, refuge, post_processing=done)
    except Exception as failure:
        raise StorageError(
            f"{reason}; nor could the answers be written to a temporary folder "
            f"({str(failure) or type(failure).__name__}): they are lost, and their budget is spent"
        ) from failure
    raise StorageError(
        f"{reason}; the answers, which are paid for, are in {refuge}, with their statement beside "
        "them: move both"
    )
