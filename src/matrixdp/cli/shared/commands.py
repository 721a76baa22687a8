"""Commands whose options are in one order and given once, and groups of such commands.

Of an option that is given twice, a parser takes the last value. ``--epsilon 0.1 ... --epsilon 5``
would spend 5, so it is an error; options that take a list are repeated on purpose.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

__all__ = ["ORDER", "Command", "Commands", "called_with", "command_group"]

called_with: ContextVar[tuple[list[str], list[str]]] = ContextVar("called_with", default=([], []))
"""The name of the command that is run, as words, and its arguments."""

ORDER = (
    # The data, and what is asked of them.
    *("--query", "--workload", "--strategy", "--records", "--columns", "--by"),
    *("--categories", "--bins", "--other", "--of", "--ways", "--order", "--table", "--wide"),
    *("--header", "--index", "--names", "--delimiter", "--decimal", "--thousands"),
    *("--missing", "--fill", "--input-format"),
    *("--mechanism", "--shape", "--sampling-rate", "--steps"),
    # What one record can change.
    *("--sensitivity", "--symmetric", "--row-bounds", "--box", "--range", "--bounded"),
    *("--norm", "--lower", "--upper", "--norm-bound", "--count", "--most-records"),
    # What is promised, and how it is shared out.
    *("--neighbouring", "--epsilon", "--mu", "--delta"),
    *("--unit", "--records-per-unit", "--claims-delta", "--plan"),
    *("--parts", "--weight", "--clipped-share"),
    # What pays.
    *("--ledger", "--account", "--keys", "--new-keys", "--request", "--last"),
    # The noise, and the errors that it makes.
    *("--noise-scale", "--noise-multiplier", "--exact", "--samples", "--confidence", "--seed"),
    *("--entry-error", "--frobenius-error", "--largest-error", "--from", "--to", "--points"),
    # What is made.
    *("--dataset", "--purpose"),
    *("--non-negative", "--integer", "--output", "--output-format", "--statement", "--folder"),
    *("--csv", "--figure", "--out", "--registry", "--preview", "--force", "--json", "--threads"),
    # Who computes it.
    *("--scheduler", "--worker-keys", "--no-check"),
)
"""The options of all commands, in the order of every help."""


class Command(TyperCommand):
    """A command that shows its options in one order, and refuses repeated ones."""

    def __init__(self, name: str | None, **settings: Any) -> None:
        super().__init__(name, **settings)
        self.params.sort(key=_index)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments if no option is repeated."""
        _refuse_repeated(self, ctx, args)
        called_with.set((ctx.command_path.split()[1:], list(args)))
        return super().parse_args(ctx, args)


class _Group(TyperGroup):
    """A group that refuses its own options if they are repeated."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments if no option is repeated."""
        _refuse_repeated(self, ctx, args)
        return super().parse_args(ctx, args)


class Commands(typer.Typer):
    """A program, or a group of its commands."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(cls=_Group, **settings)

    def command(
        self, name: str | None = None, *, cls: type[TyperCommand] | None = None, **settings: Any
    ) -> Callable[[Any], Any]:
        """Return a decorator that registers a command."""
        return super().command(name, cls=cls or Command, **settings)


def command_group(explanation: str) -> Commands:
    """Return a group of commands that shows its help if none of them is named."""
    app = Commands(help=explanation)

    # Not `no_args_is_help`, which exits with an error code: asking for help is not an error.
    @app.callback(invoke_without_command=True)
    def show_help(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            typer.echo(context.get_help())

    return app


def _index(parameter: Any) -> int:
    """Return the position of an option; arguments come first and keep their own order."""
    if parameter.param_type_name == "argument":
        return -1
    name = parameter.opts[0]
    return ORDER.index(name) if name in ORDER else len(ORDER)


def _refuse_repeated(command: TyperCommand | TyperGroup, context: Any, args: list[str]) -> None:
    # A copy, which the parser consumes. It lists every option as often as it is given.
    _, _, given = command.make_parser(context).parse_args(args=list(args))
    # An argument is listed once, even if it takes many values.
    once = [option for option in given if not getattr(option, "multiple", False)]
    for option in once:
        # Help and version end the program, whatever else is given.
        if once.count(option) > 1 and not any(each.is_eager for each in given):
            context.fail(f"Option '{option.opts[0]}' is given more than once: give it once.")
