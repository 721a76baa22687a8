"""Commands with subcommands."""

import typer

__all__ = ["command_group"]


def command_group(explanation: str) -> typer.Typer:
    """Return a group of commands that shows its help if none of them is named."""
    app = typer.Typer(help=explanation)

    # Not `no_args_is_help`, which exits with an error code: asking for help is not an error.
    @app.callback(invoke_without_command=True)
    def show_help(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            typer.echo(context.get_help())

    return app
