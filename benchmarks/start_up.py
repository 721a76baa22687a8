"""Time to import matrixdp and to run its smallest command, against ``import numpy``, in one run.

Processor time of whole processes, Python's own start included; the least of interleaved rounds,
since everything that disturbs a start makes it longer.
"""

import os
import subprocess
import sys
from pathlib import Path

from saved import save

ROUNDS = 15
PROMISED = {"import matrixdp": 2.0, "matrixdp budget": 4.0}


def processor_seconds(command: list[str]) -> float:
    """Return the processor time of a process."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: S603
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{' '.join(command)} failed")
    return usage.ru_utime + usage.ru_stime


def main() -> int:
    """Print the ratios; fail if one is above what the project promises."""
    python = sys.executable
    program = str(Path(python).with_name("matrixdp"))
    commands = {
        "import numpy": [python, "-c", "import numpy"],
        "import matrixdp": [python, "-c", "import matrixdp"],
        "matrixdp.IMGM": [python, "-c", "import matrixdp; matrixdp.IMGM"],
        "matrixdp budget": [program, "budget", "--epsilon", "1", "--delta", "1e-5"],
    }
    seconds = {name: [processor_seconds(command)] for name, command in commands.items()}
    for _ in range(ROUNDS - 1):
        for name, command in commands.items():
            seconds[name].append(processor_seconds(command))
    numpy = min(seconds.pop("import numpy"))
    ratios = {name: min(times) / numpy for name, times in seconds.items()}
    for name, ratio in ratios.items():
        print(f"{name}: {ratio:.2f} times as long as import numpy")
    save("start_up", ratios)
    return 0 if all(ratios[name] <= most for name, most in PROMISED.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
