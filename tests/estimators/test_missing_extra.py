"""Without scikit-learn, importing the estimators says what to install."""

import subprocess
import sys


def test_the_extra_is_named() -> None:
    code = "import sys; sys.modules['sklearn'] = None; import matrixdp.estimators"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install '.[sklearn]'" in done.stderr
