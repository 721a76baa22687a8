"""A written report: for each experiment a table, a summary, a page of all tables and a figure."""

from pathlib import Path

from matrixdp.errors import InvalidParameterError
from matrixdp_experiments.gradients.planning import Choices
from matrixdp_experiments.report.features_figure import draw_features
from matrixdp_experiments.report.features_page import features_page, with_features_summary
from matrixdp_experiments.report.features_table import FeatureRow, gathered_feature_rows
from matrixdp_experiments.report.gradients_figure import draw_accuracies
from matrixdp_experiments.report.gradients_page import gradients_page, with_gradients_summary
from matrixdp_experiments.report.gradients_table import Row, gathered_rows
from matrixdp_experiments.report.tables import read_table, table_as_csv

__all__ = ["report_contents"]


def report_contents(results: Path, docs: Path) -> tuple[int, list[tuple[Path, bytes | Path]]]:
    """Return the number of rows of all tables, and the files of a report with their contents.

    Parameters
    ----------
    results : Path
        Where the tables and the folders of runs are.
    docs : Path
        The folder of ``experiments.md``, whose summaries are replaced, and of the folders
        ``tables`` and ``figures``.

    Raises
    ------
    InvalidParameterError
        If there is no such page.
    """
    page = docs / "experiments.md"
    if not page.is_file():
        raise InvalidParameterError(
            f"docs={str(docs)!r} has no experiments.md: name the folder of that page by --docs"
        )
    one, two = results / "type_one.csv", results / "type_two.csv"
    # Where the files of single runs were not kept, the table has what they said.
    gradients = gathered_rows(results / "type_one", kept=read_table(one, Row))
    choices = Choices(results / "type_one").listed()
    features = gathered_feature_rows(results / "type_two", kept=read_table(two, FeatureRow))
    text = with_features_summary(
        with_gradients_summary(page.read_text("utf-8"), gradients), features
    )
    return len(gradients) + len(features), [
        (one, table_as_csv(gradients, Row)),
        (two, table_as_csv(features, FeatureRow)),
        (page, text.encode()),
        (docs / "tables/type_one.md", gradients_page(gradients, choices).encode()),
        (docs / "tables/type_two.md", features_page(features).encode()),
        (docs / "figures/type_one.svg", draw_accuracies(gradients, "svg")),
        (docs / "figures/type_two.svg", draw_features(features, "svg")),
    ]
