"""Every snippet of README and docs is executed, and says what the program says.

A ``python`` block is a doctest; the blocks of a page share their names, top to bottom. In a
``console`` block every line that starts with ``$ matrixdp``, ``$ python`` or ``$ sed`` is run, in a
copy of the folder ``examples``, and its output compared; ``...`` stands for anything, and
``$ echo $?`` shows the exit code of the command before it. Other kinds of blocks are prose, and
only those listed here may occur.
"""

import doctest
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from matrixdp.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What a page needs besides the library, and why; without it the page's snippets are skipped.
_EXPERIMENTS = {"matrixdp_experiments": "the experiments are a distribution of their own"}
NEEDS = {
    "README.md": {
        "sklearn": "private estimators need the extra `sklearn`",
        "torch": "private training needs the extra `train`",
    },
    "data.md": _EXPERIMENTS,
    "estimators_on_data.md": _EXPERIMENTS,
    "estimators.md": {"sklearn": "private estimators need the extra `sklearn`"},
    "scale.md": dict.fromkeys(("dask.array", "distributed", "zarr"), "arrays are of Dask"),
    "ranks.md": {"torch": "private training needs the extra `train`"},
    "start.md": {
        "sklearn": "the patients are those of scikit-learn",
        "pandas": "they come as a data frame",
    },
    "training.md": {
        "torch": "private training needs the extra `train`",
        "sklearn": "the example is on scikit-learn's digits",
    },
    "from_opacus.md": {"torch": "private training needs the extra `train`"},
    "transformers.md": {
        "torch": "private training needs the extra `train`",
        "transformers": "the models are of transformers",
        "peft": "the adapters are of peft",
    },
}
OTHER_PROGRAMS = {"python": sys.executable, "sed": "sed"}
PROSE = {"text", "sh", "bibtex"}
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

page_names = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def blocks(page: Path, kind: str) -> list[str]:
    return [body for found, body in BLOCK.findall(page.read_text()) if found == kind]


def commands(block: str) -> list[tuple[str, str]]:
    """Return the commands of a console block, each with the output written under it."""
    # A command that goes on in the next line ends in a backslash.
    pieces = re.split(r"^\$ ", block.replace("\\\n", ""), flags=re.MULTILINE)[1:]
    return [(piece.split("\n", 1)[0], piece.split("\n", 1)[1]) for piece in pieces]


@page_names
def test_python_blocks(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, reason in NEEDS.get(page.name, {}).items():
        pytest.importorskip(module, reason=reason)
    monkeypatch.chdir(tmp_path)
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(optionflags=FLAGS)
    names: dict[str, object] = {}
    for number, body in enumerate(blocks(page, "python")):
        assert ">>>" in body, "a python block that cannot be checked"
        example = parser.get_doctest(body, names, f"{page.name}[{number}]", str(page), 0)
        report: list[str] = []
        failed, _ = runner.run(example, out=report.append, clear_globs=False)
        assert failed == 0, "".join(report)
        names = example.globs


@page_names
def test_console_blocks(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for module, reason in NEEDS.get(page.name, {}).items():
        if "$ python" in page.read_text():
            pytest.importorskip(module, reason=reason)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    shutil.copytree(ROOT / "examples", tmp_path, dirs_exist_ok=True)
    checker, code = doctest.OutputChecker(), 0
    for body in blocks(page, "console"):
        for command, expected in commands(body):
            program, *arguments = shlex.split(command)
            if command == "echo $?":
                got = f"{code}\n"
            elif program in OTHER_PROGRAMS:
                got = subprocess.run(
                    [OTHER_PROGRAMS[program], *arguments],
                    capture_output=True,
                    text=True,
                    check=True,
                ).stdout
            else:
                assert program == "matrixdp", "a console block that cannot be checked"
                code = main(arguments)
                output = capsys.readouterr()
                got = output.out + output.err
            assert checker.check_output(expected, got, FLAGS), f"$ {command}\n{got}"


@page_names
def test_no_other_kind_of_block(page: Path) -> None:
    kinds = {kind for kind, _ in BLOCK.findall(page.read_text())}
    assert kinds <= {"python", "console"} | PROSE


@page_names
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+?)(?:#[\w-]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_checks_above_can_fail(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```python\n>>> 1 + 1\n3\n```\n\n```console\n$ matrixdp --version\nwrong\n```\n"
    )
    example = doctest.DocTestParser().get_doctest(blocks(page, "python")[0], {}, "p", None, 0)
    assert doctest.DocTestRunner(verbose=False).run(example, out=lambda _: None).failed == 1
    assert commands(blocks(page, "console")[0]) == [("matrixdp --version", "wrong\n")]
