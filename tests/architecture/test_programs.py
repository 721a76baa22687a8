"""Programs that tests start run the library that is tested."""

import subprocess
import sys
from pathlib import Path

import matrixdp


def test_a_program_in_another_folder_finds_the_same_library(tmp_path: Path) -> None:
    code = "import matrixdp; print(matrixdp.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == matrixdp.__file__
