"""The program ``matrixdp``: a thin start, so that an interrupt during start-up is handled too.

Importing the command line takes half a second. It happens inside the block that handles an
interrupt, and this module is outside the package because importing it must not import the package.
"""

import atexit
import os
import signal
import sys
from typing import NoReturn

__all__ = ["main", "start"]

_INTERRUPTED = 130


def start() -> NoReturn:
    """Run the program, and end the process with its exit code.

    After an interrupt, the process ends before Python takes its modules apart: a C extension that
    was interrupted during its import may crash there, which would replace the exit code.
    """
    code = 0

    def leave() -> None:
        if code == _INTERRUPTED:
            os._exit(code)

    # What is registered first is called last: files and threads of others are closed by then.
    atexit.register(leave)
    code = main()
    sys.exit(code)


def main() -> int:
    """Import the command line and run it; return its exit code.

    Interrupts of this process belong to the program from here on, until the process has ended.
    """
    try:
        # typer imports pydantic, which would look through all installed packages for plugins.
        os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
        # Imported late on purpose; see above. The handler first: the rest takes long.
        from matrixdp.interrupts import ProgramInterrupts  # noqa: PLC0415

        # Any other handler is somebody's decision, such as nohup's to ignore interrupts.
        interrupts = ProgramInterrupts()
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, interrupts)
        try:
            from matrixdp.cli.main import main as run  # noqa: PLC0415
        except Exception:
            # What is raised while a class is made comes out of Python 3.11 as a RuntimeError.
            interrupts.check()
            raise
        return run()
    except KeyboardInterrupt:
        if sys.stderr is not None:  # if closed, the exit code is enough
            sys.stderr.write("matrixdp: interrupted\n")
        return _INTERRUPTED
