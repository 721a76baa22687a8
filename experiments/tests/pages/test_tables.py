"""The page on experiments says what the tables of results and the settings say."""

import re
from pathlib import Path

import pytest

from matrixdp.rounding import shown_up
from matrixdp_experiments.gradients.planning import Choices
from matrixdp_experiments.gradients.settings import PAPER_DATASETS, SETTINGS
from matrixdp_experiments.released_features.accounts import rows_account
from matrixdp_experiments.released_features.parts import BUCKETS, LENGTH
from matrixdp_experiments.released_features.settings import FEATURE_SETTINGS
from matrixdp_experiments.released_features.settings import PAPER_DATASETS as FEATURE_DATASETS
from matrixdp_experiments.report.features_page import features_page, with_features_summary
from matrixdp_experiments.report.features_table import FeatureRow
from matrixdp_experiments.report.gradients_page import gradients_page, with_gradients_summary
from matrixdp_experiments.report.gradients_table import Row
from matrixdp_experiments.report.tables import read_table
from pages.feature_cells import listed

ROOT = Path(__file__).resolve().parents[3]
PAGE = " ".join((ROOT / "docs" / "experiments.md").read_text().split())


def test_experiments_of_type_one() -> None:
    rows = read_table(ROOT / "results" / "type_one.csv", Row)
    page = (ROOT / "docs" / "experiments.md").read_text()
    assert with_gradients_summary(page, rows) == page
    choices = Choices(ROOT / "results" / "type_one").listed()
    tables = (ROOT / "docs" / "tables" / "type_one.md").read_text()
    assert gradients_page(rows, choices) == tables
    # The figure is made in the same step as the page.
    figure = ROOT / "docs" / "figures" / "type_one.svg"
    drawn = figure.read_text() if rows else ""
    assert all(SETTINGS[row.dataset].title in drawn for row in rows if row.accuracy)


def test_every_finished_cell_has_its_provenance() -> None:
    for row in read_table(ROOT / "results" / "type_one.csv", Row):
        finished = (row.seed, row.run, row.seconds, row.commit, row.device, row.torch)
        assert all(finished) if row.accuracy else row.note
        if row.true_epsilon and row.noise_multiplier:
            # A claim is never below what the noise costs; both are rounded up to six digits.
            assert float(row.true_epsilon) <= float(row.epsilon) * (1 + 1e-5)


def test_settings_of_the_experiments() -> None:
    settings = [SETTINGS[name] for name in PAPER_DATASETS]
    assert all((one.half is True) == (one.model == "VGG-16") for one in settings)
    assert all(re.search(rf"{one.model}\b[\w -]* on {one.title}", PAGE) for one in settings)
    epochs = [f"{one.epochs}" for one in settings]
    lots = [one.lot_size for one in settings]
    assert lots == [1024, 512, 200, 1024, 1024]
    assert (
        f"for {listed(epochs)} epochs with lots of {lots[0]:,} (Adult {lots[1]}, Cora {lots[2]})."
    ) in PAGE
    data = (ROOT / "docs" / "data.md").read_text()
    assert all(f"| `{name}` | {SETTINGS[name].records:,}" in data for name in PAPER_DATASETS)


def test_experiments_of_type_two() -> None:
    rows = read_table(ROOT / "results" / "type_two.csv", FeatureRow)
    page = (ROOT / "docs" / "experiments.md").read_text()
    assert with_features_summary(page, rows) == page
    assert features_page(rows) == (ROOT / "docs" / "tables" / "type_two.md").read_text()
    figure = ROOT / "docs" / "figures" / "type_two.svg"
    drawn = figure.read_text() if rows else ""
    for row in rows:
        finished = (row.seed, row.run, row.seconds, row.commit, row.device, row.torch)
        assert all(finished) if row.accuracy else row.note
        assert not row.accuracy or FEATURE_SETTINGS[row.dataset].title in drawn
        # Both are rounded up to six digits.
        if row.protocol == "exact" and row.true_epsilon:
            assert float(row.true_epsilon) <= float(row.epsilon) * (1 + 1e-5)
        # In the figure of a false protocol as well; MVG has one bound for all claims.
        if row.protocol == "paper" and row.mechanism != "mvg" and row.true_epsilon:
            assert f">{shown_up(float(row.true_epsilon), 3)}<" in drawn
    claims: dict[str, list[float]] = {row.dataset: [] for row in rows}
    for row in rows:
        if (row.protocol, row.mechanism) == ("paper", "mvg"):
            claims[row.dataset].append(float(row.true_epsilon))
    assert all(f"of MVG is at most {shown_up(max(one), 3)})" in drawn for one in claims.values())


@pytest.mark.parametrize("name", FEATURE_DATASETS)
def test_settings_of_released_features(name: str) -> None:
    one = FEATURE_SETTINGS[name]
    assert re.search(rf"\b{one.features:,} by (a )?{one.model} on {one.title}", PAGE)
    assert one.public_records == -(-one.records // 10)


def test_what_a_claim_of_the_paper_spends() -> None:
    spent = rows_account(FEATURE_SETTINGS["mnist"], "imgm", "paper", 1.0).true_epsilon
    assert spent is not None
    assert f"on MNIST a claimed ε = 1 spends {shown_up(spent, 3)}." in PAGE
    data = " ".join((ROOT / "docs" / "data.md").read_text().split())
    assert f"among {BUCKETS - 1:,}" in data
    assert f"cut to {LENGTH} words" in data


def test_the_commonest_class_of_adult() -> None:
    page = " ".join((ROOT / "docs" / "estimators_on_data.md").read_text().split())
    assert f"The most frequent class has {100 * SETTINGS['adult'].commonest_class:.1f}" in page
