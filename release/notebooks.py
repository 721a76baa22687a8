"""The notebooks in ``examples``, each made from the script beside it and executed.

A second run gives the same files, apart from what the noise changes.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import jupytext
import nbformat
from nbclient import NotebookClient

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
# What a notebook says of the machine that ran it, without versions.
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def executed(script: Path) -> nbformat.NotebookNode:
    """Return a script in the percent format as a notebook with its output."""
    notebook = jupytext.read(script, fmt="py:percent")
    with TemporaryDirectory() as folder:
        NotebookClient(
            notebook, resources={"metadata": {"path": folder}}, record_timing=False
        ).execute()
    notebook.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    for number, cell in enumerate(notebook.cells):
        cell.id, cell.metadata, cell.source = f"cell-{number}", {}, cell.source.strip()
        # Warnings of packages name the folders that they lie in.
        if "outputs" in cell:
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
    nbformat.validate(notebook)
    return notebook


def main() -> int:
    """Write a notebook for every script, or for those that are named."""
    for name in sys.argv[1:] or sorted(path.stem for path in EXAMPLES.glob("*.py")):
        notebook = EXAMPLES / f"{name}.ipynb"
        nbformat.write(executed(EXAMPLES / f"{name}.py"), notebook)
        print(f"wrote {notebook.name}: {notebook.stat().st_size / 1024:.0f} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
