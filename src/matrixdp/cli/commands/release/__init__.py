"""``matrixdp release``: from a file with a matrix to a file that may be shown."""

from matrixdp.cli.commands.release.command import COMMAND_CLASS, release

__all__ = ["COMMAND_CLASS", "release"]
