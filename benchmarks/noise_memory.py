"""Memory of exact noise: 1 GiB released in place, and a 4 GiB file within 1 GiB of addresses.

Each measurement is a process of its own. Run it by ``make benchmark-noise``; it needs 8 GiB of disk
in the folder for temporary files, half of it for a moment only. It fails if a limit is not kept.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from saved import save

GIB = 1 << 30
MOST_MIB = 32

IN_PLACE = """
import resource
import numpy as np
from matrixdp.noise import ReleaseKey, add_noise

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

add_noise(np.zeros((1000, 1000)), 1.0, ReleaseKey.generate(), threads=2)
value = np.ones((8192, 16384))
before = peak()
add_noise(value, 1.0, ReleaseKey.generate(), out=value)
print(peak() - before)
"""

LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
from matrixdp.files.publishing.npy_stream import add_noise_to_npy
from matrixdp.noise import ReleaseKey
from matrixdp.noise.kernels import available_kernels
add_noise_to_npy(sys.argv[1], sys.argv[2], 1.0, ReleaseKey.generate())
print(next(iter(available_kernels())), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def run(code: str, *arguments: str) -> str:
    """Run code in a fresh interpreter and return what it prints."""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
    return done.stdout.strip()


def sparse_matrix(path: Path, size: int) -> None:
    """Make a .npy file of zeros that takes no room on the disk."""
    with path.open("wb") as file:
        shape = (size // 8 // 8192, 8192)
        header = {"descr": "<f8", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + size)


def main() -> None:
    """Measure and print."""
    extra = float(run(IN_PLACE))
    print(
        f"in-place release of 1 GiB: {extra:.1f} MiB over the peak before it (at most {MOST_MIB})"
    )
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "value.npy"), Path(folder, "noisy.npy")
        sparse_matrix(source, 4 * GIB)
        start = time.perf_counter()
        kernel, peak = run(LIMITED, str(source), str(target)).split()
        elapsed = time.perf_counter() - start
        complete = target.stat().st_size == source.stat().st_size
        state = "completes" if complete else "FAILS"
        save(
            "noise_memory",
            {"in place, 1 GiB, MiB": extra, "4 GiB file completes": complete, "MiB": float(peak)},
        )
        print(
            f"a 4 GiB file in a process limited to 1 GiB: {state} ({kernel} kernel, "
            f"{elapsed:.0f} s, {peak} MiB resident at most)"
        )
    if not (extra <= MOST_MIB and complete):
        raise SystemExit("more memory than there may be")


if __name__ == "__main__":
    main()
