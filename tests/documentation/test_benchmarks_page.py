"""The page of benchmarks is what its tables say, each row in the direction that it promises."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "benchmarks.md").read_text()
MAKER = runpy.run_path(str(ROOT / "benchmarks" / "page.py"))


def cell(start: str) -> float:
    """Return the first ratio of the row that begins with these cells."""
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| {start} |")]
    return float(row.removeprefix(f"| {start} |").split("|")[0].replace(",", ""))


def test_the_page_is_what_the_tables_make() -> None:
    assert MAKER["page"]() == PAGE, "make figures"


def test_every_section_names_commands_and_tables_that_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text()
    sections = PAGE.split("\n## ")[1:]
    assert len(sections) >= 12
    for section in sections:
        commands = re.findall(r"^`make ([\w-]+)`,.*results/\w+\.csv", section, re.MULTILINE)
        assert commands, section
        assert all(f"\n{command}: " in makefile for command in commands)
    for name in re.findall(r"\(\.\./(results/[^)]*)\)", PAGE):
        assert (ROOT / name).is_file()


@pytest.mark.parametrize(
    ("row", "name", "what", "times_as_fast"),
    [
        (
            "`release`, 4096 x 512 | numpy `standard_normal`",
            "release_speed",
            "4096 x 512, all processors, times as fast as standard_normal",
            True,
        ),
        (
            "`release`, 10 x 10 | numpy `x + rng.normal(...)`",
            "release_speed",
            "10 x 10, times as long as x + rng.normal",
            False,
        ),
        (
            "a payment, PostgreSQL | one `fsync`",
            "ledger_payments",
            "PostgreSQL, alone, payments for each fsync",
            True,
        ),
        ("*exact sums of rows* | plain Dask", "dask_queries", "sum of rows", False),
    ],
)
def test_smaller_is_better(row: str, name: str, what: str, times_as_fast: bool) -> None:  # noqa: FBT001
    figure = MAKER["figures"](name)[what]
    assert cell(row) == pytest.approx(1 / figure if times_as_fast else figure, rel=0.005)


def test_rows_that_were_recomputed_by_hand() -> None:
    # From results/training_speed_gpu.csv: 8.4 over 1.855 and 20.349 over 16.752 milliseconds.
    assert cell("LeNet, lot 1,024, in a loop") == pytest.approx(8.4 / 1.855, rel=0.005)
    assert cell("VGG-16, lot 1,024, TF32, captured") == pytest.approx(20.349 / 16.752, rel=0.005)
    # From results/gpu_noise.csv: rates, so that theirs is above.
    row = "`release`, 134 million of float64 | `torch.randn`"
    assert cell(row) == pytest.approx(172.17 / 26.2, rel=0.005)
    # From results/estimators_mnist.csv: wrong answers of 1.81 and 66.1 per cent.
    row = "MNIST, logistic regression | diffprivlib"
    assert cell(row) == pytest.approx(1.81 / 66.1, rel=0.005)
