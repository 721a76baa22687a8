"""Settings of every test: the same examples of properties every time, untimed, and signals."""

import os
import secrets
import signal

from hypothesis import settings

# Before numpy is imported, and for processes that tests start: the workers share the cores already,
# and BLAS threads that wait for each other make small problems several times slower.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Tests change their folder: programs that they start must find the library that they do.
if "PYTHONPATH" in os.environ:
    os.environ["PYTHONPATH"] = os.pathsep.join(
        map(os.path.abspath, os.environ["PYTHONPATH"].split(os.pathsep))
    )

settings.register_profile("matrixdp", deadline=None, derandomize=True)
settings.load_profile("matrixdp")

# A job that a shell starts in the background ignores interrupts, and so does all that it starts.
# Tests send some, to themselves and to processes of their own.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Here, so that all processes of a run draw the same files (`cli/test_damaged_files.py`) and moments
# to die at (`ledger/test_crashes.py`).
os.environ.setdefault("MATRIXDP_FUZZ_SEED", str(secrets.randbits(32)))


def pytest_report_header() -> str:
    """Show the seed of damaged files and crashes, with which a failure can be repeated."""
    return f"MATRIXDP_FUZZ_SEED={os.environ['MATRIXDP_FUZZ_SEED']}"
