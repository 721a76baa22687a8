"""Without PyTorch the commands that train say what to install."""

import subprocess
import sys
from pathlib import Path

import pytest

BLOCKED = "import sys; sys.modules['torch'] = None; "


@pytest.mark.parametrize("command", ["choose", "run"])
def test_the_extra_is_named(command: str, tmp_path: Path) -> None:
    code = f"{BLOCKED}from matrixdp_experiments.command import main; sys.exit(main(sys.argv[1:]))"
    arguments = [
        command,
        "type-one",
        "--dataset",
        "digits",
        "--results",
        str(tmp_path),
    ]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "pip install '.[train]'" in done.stderr
