"""``matrixdp plan``: the error of a budget, or the epsilon of an error, before it is spent."""

from matrixdp.cli.commands.plan.command import plan

__all__ = ["plan"]
