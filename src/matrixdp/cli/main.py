"""The command ``matrixdp``: its subcommands, and what its exit codes mean.

0: done. 1: a defect of matrixdp. 2: bad input. 3: refused by a budget. 130: interrupted. Anything
that goes wrong is told in one line on standard error.
"""

import sys
from typing import Annotated

import typer
from typer.exceptions import TyperException

from matrixdp import __version__
from matrixdp.cli import (
    account,
    audit,
    bound,
    budget,
    compare,
    curve,
    demo,
    plan,
    release,
    workload,
)
from matrixdp.errors import BudgetExceededError, MatrixDPError

__all__ = ["app", "main"]

_DEFECT = 1
_BAD_INPUT = 2
_REFUSED_BY_BUDGET = 3
_INTERRUPTED = 130

app = typer.Typer(
    name="matrixdp",
    help="Differential privacy for matrix-valued queries.",
    epilog="Exit codes: 0 fine, 1 defect, 2 bad input, 3 refused by a budget, 130 interrupted.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("bound")(bound.bound)
app.command("curve")(curve.curve)
app.command("plan")(plan.plan)
app.command("account")(account.account)
app.command("compare")(compare.compare)
app.command("release")(release.release)
app.command("demo")(demo.demo)
app.add_typer(budget.app, name="budget")
app.add_typer(audit.app, name="audit")
app.add_typer(workload.app, name="workload")


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"matrixdp {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
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

    Parameters
    ----------
    arguments : list of str, optional
        What follows the program's name; by default what the process was started with.
    """
    try:
        answer = app(args=arguments, prog_name="matrixdp", standalone_mode=False)
    except BudgetExceededError as refusal:
        told, code = str(refusal), _REFUSED_BY_BUDGET
    except TyperException as mistake:
        told, code = mistake.format_message(), _BAD_INPUT
    except (MatrixDPError, OSError) as mistake:
        told, code = str(mistake), _BAD_INPUT
    except MemoryError as full:
        told, code = f"there is not enough memory ({full}): use a smaller input", _BAD_INPUT
    except SystemExit:  # what typer makes of a pipe whose reader is gone
        told, code = "the output was closed before all of it was written", _BAD_INPUT
    except Exception as defect:  # noqa: BLE001
        told, code = f"unexpected {type(defect).__name__}: {defect}; please report it", _DEFECT
    else:
        if answer != _INTERRUPTED:
            return answer if isinstance(answer, int) else 0
        told, code = "interrupted", _INTERRUPTED  # typer's answer to an interrupt in a command
    _complain(told)
    return code


def _complain(message: str) -> None:
    if sys.stderr is not None:  # closed: the exit code must do
        print(f"matrixdp: {' '.join(message.split())}", file=sys.stderr)  # noqa: T201
