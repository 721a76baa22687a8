"""The command ``matrixdp``: its subcommands, and what its exit codes mean.

0: done. 1: a defect of matrixdp. 2: bad input, nothing was released. 3: refused by a budget,
nothing was spent. 4: the release is out, at least in part, or it is paid by a ledger and pending:
its budget is spent, but the command could not finish, for instance because the reader of standard
output went away or the disk is full. 5: a claim was checked and is false. 130: interrupted; nothing
was released or paid. Every error is one line on standard error.
"""

import importlib
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from matrixdp import __version__
from matrixdp.cli.shared.commands import Commands
from matrixdp.cli.shared.exit_codes import (
    BAD_INPUT,
    DEFECT,
    FALSE_CLAIM,
    INTERRUPTED,
    REFUSED_BY_BUDGET,
    RELEASED_BUT_CUT_SHORT,
    FalseClaimError,
    ReleasedButCutShortError,
)
from matrixdp.errors import BudgetExceededError, MatrixDPError
from matrixdp.interrupts import ProgramInterrupts

__all__ = ["main"]

# Each is a module of `commands` with a function of that name, or with an `app` of subcommands.
_COMMANDS = ("budget", "curve", "plan", "account", "compare", "release", "verify", "report", "demo")
_GROUPS = ("audit", "workload", "query", "ledger")


def _program(arguments: Sequence[str]) -> Commands:
    """Return the program with the command that is called, or with all of them to show its help.

    Importing all commands takes several times as long as most of them run.
    """
    app = Commands(
        name="matrixdp",
        help="Differential privacy for matrix-valued queries.",
        epilog="Exit codes: 0 done, 1 defect, 2 bad input, 3 refused by a budget, 4 released or "
        "paid, but cut short (the budget is spent), 5 a claim is false, 130 interrupted.",
        add_completion=False,
        # A pretty traceback would show local variables, which may be private.
        pretty_exceptions_enable=False,
    )
    app.callback(invoke_without_command=True)(_root)
    called = next((word for word in arguments if not word.startswith("-")), None)
    for name in (*_COMMANDS, *_GROUPS):
        if called == name or called not in {*_COMMANDS, *_GROUPS}:
            module = importlib.import_module(f"matrixdp.cli.commands.{name}")
            if name in _GROUPS:
                app.add_typer(module.app, name=name)
            else:
                command_class = getattr(module, "COMMAND_CLASS", None)
                app.command(name, cls=command_class)(getattr(module, name))
    return app


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"matrixdp {__version__}")
        raise typer.Exit


def _root(
    context: typer.Context,
    _version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code.

    What an interrupt means after a release is decided by whoever runs it; see `matrixdp_command`.

    Parameters
    ----------
    arguments : list of str, optional
        What follows the program's name; by default what the process was started with.
    """
    words = sys.argv[1:] if arguments is None else arguments
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = _warn  # type: ignore[assignment]
            answer = _program(words)(args=words, prog_name="matrixdp", standalone_mode=False)
        if sys.stdout is not None:
            # Here, where a failure has an exit code; at the end of the process it would have none.
            sys.stdout.flush()
    except (Exception, SystemExit) as error:  # noqa: BLE001 (a user is never shown a traceback)
        handler = signal.getsignal(signal.SIGINT)
        # Some libraries, numba for one, make another error of an interrupt.
        interrupted = isinstance(handler, ProgramInterrupts) and handler.came
        # Unless it says what the interrupt has left.
        interrupted = interrupted and not isinstance(error, ReleasedButCutShortError)
        message, code = ("interrupted", INTERRUPTED) if interrupted else _explained(error)
    else:
        if answer != INTERRUPTED:
            return answer if isinstance(answer, int) else 0
        message, code = "interrupted", INTERRUPTED  # what typer returns after an interrupt
    _complain(message)
    _drop_unwritten_output()
    return code


def _explained(error: BaseException) -> tuple[str, int]:
    """Return what to say about an error, and its exit code."""
    # From special to plain: an error of matrixdp may also be an OSError.
    match error:
        case ReleasedButCutShortError():
            answer = str(error), RELEASED_BUT_CUT_SHORT
        case FalseClaimError():
            answer = str(error), FALSE_CLAIM
        case BudgetExceededError():
            answer = str(error), REFUSED_BY_BUDGET
        case TyperException():
            answer = error.format_message(), BAD_INPUT
        case BrokenPipeError() | SystemExit():  # typer exits when a pipe has no reader
            answer = "the output was closed before all of it was written", BAD_INPUT
        case MatrixDPError() | OSError():
            answer = str(error), BAD_INPUT
        case MemoryError():
            answer = "there is not enough memory: use a smaller input", BAD_INPUT
        case _:
            answer = _defect(error), DEFECT
    return answer


def _defect(error: BaseException) -> str:
    """Say where it happened, not what the error says: a foreign message may quote private data."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(frame.filename).name}, line {frame.lineno}"
    return f"unexpected {type(error).__name__} in {where}; please report it"


def _warn(message: Warning | str, *_: object) -> None:
    """Show a warning as one line, like everything else that the program says."""
    _complain(str(message))


def _complain(message: str) -> None:
    # Where standard error is closed or has no reader, the exit code has to be enough.
    if sys.stderr is not None:
        with suppress(OSError):
            print(f"matrixdp: {' '.join(message.split())}", file=sys.stderr, flush=True)  # noqa: T201


def _drop_unwritten_output() -> None:
    """Let nothing that is still buffered fail again when Python shuts down.

    Python flushes standard output at the very end; if that fails, it replaces the exit code by 120.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
