"""A report has every finished cell, also at epsilons that are not on the grid."""

from pathlib import Path

from matrixdp_experiments.command import main
from matrixdp_experiments.gradients.account_book import AccountBook
from matrixdp_experiments.gradients.cells import Cell
from matrixdp_experiments.gradients.planning import account_of
from matrixdp_experiments.gradients.settings import SETTINGS
from matrixdp_experiments.report.gradients_table import Row
from matrixdp_experiments.report.tables import read_table


def report(results: Path, docs: Path) -> list[Row]:
    assert main(["report", "--results", str(results), "--docs", str(docs)]) == 0
    return read_table(results / "type_one.csv", Row)


def test_every_finished_cell_is_reported(toy_results: Path, empty_docs: Path) -> None:
    run = ["run", "type-one", "--dataset", "digits", "--results", str(toy_results)]
    assert main([*run, "--mechanism", "none,imgm-pld,classic", "--epsilon", "1,2"]) == 0
    assert main([*run, "--mechanism", "classic", "--epsilon", "1000"]) == 0  # does not apply
    # An account alone is no result.
    account_of(Cell("digits", "rdp", 3.0, 0), AccountBook(toy_results / "type_one"))
    rows = report(toy_results, empty_docs)
    done = [(row.mechanism, row.epsilon, row.seed) for row in rows if row.accuracy]
    assert done == [
        *(("none", "", seed) for seed in "01"),
        *(("imgm-pld", epsilon, seed) for epsilon in "12" for seed in "01"),
        *(("classic", epsilon, seed) for epsilon in "12" for seed in "01"),
    ]
    assert {row.epsilon for row in rows} == {"", "0.01", "0.1", "0.5", "1", "2"}
    # Of epsilon 2 there is what was run, and nothing that was not.
    assert {row.mechanism for row in rows if row.epsilon == "2"} == {"imgm-pld", "classic"}
    text = (empty_docs / "tables/type_one.md").read_text()
    assert "| mechanism, rule | ε = 0.01 | ε = 0.1 | ε = 0.5 | ε = 1 | ε = 2 |" in text
    (accuracy,) = [line for line in text.splitlines() if "| IMGM, subsampled PLD | –" in line]
    assert accuracy.endswith("| 50.5 (50.0–51.0) | 50.5 (50.0–51.0) |")
    noise = [line for line in text.splitlines() if line.startswith("| Gaussian, RDP")][1]
    assert noise.endswith("| – |")
    assert ">2<" in (empty_docs / "figures/type_one.svg").read_text()


def test_the_accounts_of_another_data_set_are_not_taken(toy_results: Path) -> None:
    book = AccountBook(toy_results / "type_one")
    account_of(Cell("digits", "rdp", 3.0, 0), book)
    assert book.promised("rdp", SETTINGS["digits"]) == [3.0]
    assert book.promised("rdp", SETTINGS["adult"]) == []
    assert book.promised("classic", SETTINGS["digits"]) == []
