"""A written report: for each experiment a table, its part of the page, and a figure."""

from pathlib import Path

from matrixdp.errors import InvalidParameterError
from matrixdp_experiments.report.features_figure import draw_features
from matrixdp_experiments.report.features_page import with_feature_tables
from matrixdp_experiments.report.features_table import FeatureRow, gathered_feature_rows
from matrixdp_experiments.report.gradients_figure import draw_accuracies
from matrixdp_experiments.report.gradients_page import with_tables
from matrixdp_experiments.report.gradients_table import Row, gathered_rows
from matrixdp_experiments.report.table_files import read_table, table_as_csv

__all__ = ["report_contents"]


def report_contents(
    results: Path, page: Path, figures: Path
) -> tuple[int, list[tuple[Path, bytes | Path]]]:
    """Return the number of rows of all tables, and the files of a report with their contents.

    Parameters
    ----------
    results : Path
        Where the tables and the folders of runs are.
    page : Path
        Whose tables are replaced.
    figures : Path
        The folder for the figures.

    Raises
    ------
    InvalidParameterError
        If there is no such page.
    """
    if not page.is_file():
        raise InvalidParameterError(
            f"page={str(page)!r} is not a file: name the page whose tables are replaced by --page"
        )
    one, two = results / "type_one.csv", results / "type_two.csv"
    # Where the files of single runs were not kept, the table has what they said.
    gradients = gathered_rows(results / "type_one", kept=read_table(one, Row))
    features = gathered_feature_rows(results / "type_two", kept=read_table(two, FeatureRow))
    text = with_feature_tables(with_tables(page.read_text("utf-8"), gradients), features)
    return len(gradients) + len(features), [
        (one, table_as_csv(gradients, Row)),
        (two, table_as_csv(features, FeatureRow)),
        (page, text.encode()),
        (figures / "type_one.svg", draw_accuracies(gradients, "svg")),
        (figures / "type_two.svg", draw_features(features, "svg")),
    ]
