"""The program ``matrixdp``: a door so thin that an interrupt at start-up is an interrupt.

Importing the package takes half a second; it happens inside the one place that knows what an
interrupt means.
"""

import sys

__all__ = ["main"]

_INTERRUPTED = 130


def main() -> int:
    """Import the command line and run it; return its exit code."""
    try:
        from matrixdp.cli.main import main as run  # noqa: PLC0415

        return run()
    except KeyboardInterrupt:
        sys.stderr.write("matrixdp: interrupted\n")
        return _INTERRUPTED
