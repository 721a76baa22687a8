"""Examples run as they are, from an empty folder, leave what they say, and are the notebooks."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))
# The others take longer, and use what other tests use.
QUICK = {"group_means"}
# Pandas holds columns with names.
NEEDS = {
    "covariance": ("sklearn",),
    "group_means": ("sklearn", "pandas"),
    "lora": ("sklearn", "torch", "peft"),
    "marginals": ("sklearn", "pandas"),
    "private_cnn": ("sklearn", "torch"),
    "ridge_pipeline": ("sklearn",),
    "two_days": ("sklearn", "pandas"),
}
LEAVES = {name: f"{name}.png" for name in NEEDS} | {"two_days": "two_days.html"}


def test_every_example_is_known() -> None:
    assert {path.stem for path in SCRIPTS} == NEEDS.keys()


@pytest.mark.parametrize(
    "name",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.thorough)
        for name in sorted(NEEDS)
    ],
)
def test_an_example_runs_and_leaves_what_it_says(name: str, tmp_path: Path) -> None:
    for module in NEEDS[name]:
        pytest.importorskip(module, reason="the example needs it")
    script = ROOT / "examples" / f"{name}.py"
    done = subprocess.run(
        [sys.executable, "-W", "error", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "-differential privacy under " in done.stdout
    assert f"wrote {LEAVES[name]}" in done.stdout
    assert (tmp_path / LEAVES[name]).stat().st_size > 5000
    # It says how to run it, and what it needs besides the library.
    first = script.read_text().split("\n# %%")[0]
    assert f"python examples/{name}.py" in first
    needed = {"sklearn": "`sklearn`", "torch": "`train`", "pandas": "pandas", "peft": "peft"}
    for module, words in needed.items():
        assert (words in first) is (module in NEEDS[name])


def cells_of(script: str) -> list[tuple[str, str]]:
    """Return the kind and the text of each cell of a script in the percent format."""
    cells = []
    for piece in re.split(r"^# %%", script, flags=re.MULTILINE)[1:]:
        kind, text = piece.split("\n", 1)
        if kind == " [markdown]":
            cells.append(("markdown", re.sub(r"^# ?", "", text.strip(), flags=re.MULTILINE)))
        else:
            assert kind == "", f"a cell that begins with {kind}"
            cells.append(("code", text.strip()))
    return cells


def notebook(name: str) -> list[dict[str, Any]]:
    """Return the cells of a notebook."""
    cells: list[dict[str, Any]] = json.loads((ROOT / "examples" / f"{name}.ipynb").read_text())[
        "cells"
    ]
    return cells


@pytest.mark.parametrize("name", sorted(NEEDS))
def test_a_notebook_is_its_script_with_output(name: str) -> None:
    cells = notebook(name)
    expected = cells_of((ROOT / "examples" / f"{name}.py").read_text())
    assert [(cell["cell_type"], "".join(cell["source"])) for cell in cells] == expected, (
        "make notebooks"
    )
    assert expected[0][0] == "markdown"
    assert expected[0][1].startswith("# ")
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not any(output["output_type"] == "error" for output in outputs)
    printed = "".join("".join(output.get("text", [])) for output in outputs)
    assert "-differential privacy under " in printed
    assert f"wrote {LEAVES[name]}" in printed


@pytest.mark.parametrize("name", sorted(NEEDS))
def test_a_notebook_is_small_and_says_nothing_of_its_machine(name: str) -> None:
    path = ROOT / "examples" / f"{name}.ipynb"
    assert path.stat().st_size < 300_000
    assert json.loads(path.read_text())["metadata"] == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    assert all(cell["metadata"] == {} for cell in notebook(name))
    assert [cell["id"] for cell in notebook(name)] == [
        f"cell-{n}" for n in range(len(notebook(name)))
    ]
    assert "/tmp" not in path.read_text()  # noqa: S108
    assert "/home" not in path.read_text()


def test_a_script_that_has_moved_on_is_found() -> None:
    script = "# %% [markdown]\n# # Title\n#\n# Words\n\n# %%\nprint(1)\n"
    assert cells_of(script) == [("markdown", "# Title\n\nWords"), ("code", "print(1)")]
    assert cells_of(script.replace("print(1)", "print(2)")) != cells_of(script)
