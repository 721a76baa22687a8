"""Stored runs, accounts, tables, page and figures of the experiments belong together."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from matrixdp_experiments.gradients.accounts import Account, account
from matrixdp_experiments.grid.json_files import read_json
from matrixdp_experiments.report.features_table import FeatureRow, gathered_feature_rows
from matrixdp_experiments.report.tables import read_table

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "results"
ACCOUNTS = read_json(RESULTS / "type_one" / "accounts.json", list[Account])
WITHOUT_PYTORCH = (
    "import sys; sys.modules['torch'] = None; "
    "from matrixdp_experiments.command import main; sys.exit(main(sys.argv[1:]))"
)


def drawn_numbers(figure: Path) -> list[float]:
    """Return all numbers with a point: ends of lines, places of letters and marks."""
    return [float(one) for one in re.findall(r"-?\d+\.\d+", figure.read_text())]


@pytest.mark.thorough
def test_a_report_without_pytorch_is_the_one_that_is_stored(tmp_path: Path) -> None:
    shutil.copytree(RESULTS / "type_one", tmp_path / "type_one")
    for name in ("type_one.csv", "type_two.csv"):
        shutil.copy(RESULTS / name, tmp_path)
    docs = tmp_path / "docs"
    shutil.copytree(ROOT / "docs", docs)
    for path in (docs / "tables").iterdir():
        path.unlink()
    # Nothing of it may come from the table that is replaced.
    (tmp_path / "type_one.csv").unlink()
    command = ["report", "--results", str(tmp_path), "--docs", str(docs)]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PYTORCH, *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    stored = {
        "type_one.csv": RESULTS,
        "type_one/accounts.json": RESULTS,
        "docs/experiments.md": ROOT,
        "docs/tables/type_one.md": ROOT,
        "docs/tables/type_two.md": ROOT,
    }
    for name, folder in stored.items():
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()
    for name in ("type_one.svg", "type_two.svg"):
        found, known = (drawn_numbers(one / "docs/figures" / name) for one in (tmp_path, ROOT))
        assert found == pytest.approx(known, abs=0.01)


def test_the_table_of_features_is_that_of_the_stored_runs() -> None:
    rows = gathered_feature_rows(RESULTS / "type_two")
    assert rows == read_table(RESULTS / "type_two.csv", FeatureRow)


def check_account(stored: Account) -> None:
    found = account(stored.mechanism, stored.promise)
    assert found.refusal == stored.refusal
    assert found.layers == pytest.approx(stored.layers, rel=1e-6)
    # What is stored is by bounds that were up to 1e-4 wide. The account has become tighter since,
    # so that less noise is enough today: the stored noise keeps its promise.
    assert found.true_epsilon == pytest.approx(stored.true_epsilon, rel=1e-4)
    assert found.noise_multiplier == pytest.approx(stored.noise_multiplier, rel=1e-4)
    if found.noise_multiplier is not None and stored.noise_multiplier is not None:
        assert found.noise_multiplier <= stored.noise_multiplier * (1.0 + 1e-6)


# Every seventh, of all mechanisms and data sets.
@pytest.mark.parametrize("stored", ACCOUNTS[::7], ids=lambda one: one.mechanism)
def test_stored_accounts_are_those_of_the_program(stored: Account) -> None:
    check_account(stored)


@pytest.mark.thorough
@pytest.mark.parametrize("stored", ACCOUNTS, ids=lambda one: one.mechanism)
def test_all_stored_accounts_are_those_of_the_program(stored: Account) -> None:
    check_account(stored)
