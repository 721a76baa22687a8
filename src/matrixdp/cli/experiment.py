"""``matrixdp experiment``: choose hyper-parameters, run a grid of experiments, report on it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from matrixdp.cli.groups import command_group
from matrixdp.cli.options import AsJson, whole_number_option
from matrixdp.cli.output import print_json, print_table
from matrixdp.cli.progress import progress_bar
from matrixdp.files.atomic import write_all
from matrixdp.rounding import shown_up

if TYPE_CHECKING:
    from matrixdp.experiments.accounts import Account
    from matrixdp.experiments.cells import Run
    from matrixdp.experiments.outcomes import AnyRun
    from matrixdp.experiments.runner import Tell
    from matrixdp.experiments.type_one import Work

__all__ = ["app"]

app = command_group("Experiments: accuracy of models that were trained privately.")

_A_RUN_FAILED = 2  # like any input that could not be processed: it is not a defect of matrixdp

ExperimentArgument: TypeAlias = Annotated[str, typer.Argument(help="type-one: private gradients.")]
DatasetOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--dataset", help="mnist, adult, cora, cifar10, svhn or digits; default: all."),
]
ResultsOption: TypeAlias = Annotated[
    Path, typer.Option("--results", help="Folder of results; what is finished there is kept.")
]
ParallelOption: TypeAlias = Annotated[
    int, whole_number_option("--parallel", "Runs at a time, each in a process of its own.")
]


@app.command()
def accounts(
    experiment: ExperimentArgument,
    dataset: DatasetOption = None,
    results: ResultsOption = Path("results"),
    as_json: AsJson = False,
) -> None:
    """Compute the noise of every cell and keep it, so that a machine that trains only reads it."""
    from matrixdp.experiments import (  # noqa: PLC0415
        account_book,
        cells,
        options,
        planning,
        settings,
    )

    options.check_experiment(experiment)
    datasets = options.listed(dataset) or list(settings.PAPER_DATASETS)
    wanted = [cell for cell in cells.grid(datasets, seeds=[0]) if cell.epsilon is not None]
    book = account_book.AccountBook(results / "type_one")
    # Those of the choice as well: the machine that chooses may have no accountant.
    for name in datasets:
        planning.reference_accounts(name, book)
    found = [(cell.dataset, planning.account_of(cell, book)) for cell in wanted]
    if as_json:
        print_json({"accounts": [{"dataset": name, **_numbers(one)} for name, one in found]})
        return
    print_table(
        ["data set", "mechanism", "epsilon", "noise multiplier", "true epsilon"],
        [[name, *map(_shown, _numbers(one).values())] for name, one in found],
    )


def _numbers(one: "Account") -> dict[str, str | float | None]:
    return {
        "mechanism": one.mechanism,
        "epsilon": one.promise.epsilon,
        "noise_multiplier": one.noise_multiplier,
        "true_epsilon": one.true_epsilon,
    }


def _shown(value: str | float | None) -> str:
    if value is None:
        return "does not apply"
    return value if isinstance(value, str) else shown_up(value, 4)


@app.command()
def choose(
    experiment: ExperimentArgument,
    dataset: DatasetOption = None,
    results: ResultsOption = Path("results"),
    parallel: ParallelOption = 1,
    as_json: AsJson = False,
) -> None:
    """Choose learning rate and clip norm for each data set, on its records for choosing."""
    from matrixdp.experiments import options, settings, type_one  # noqa: PLC0415 (torch is slow)

    options.check_experiment(experiment)
    datasets = options.listed(dataset) or list(settings.PAPER_DATASETS)
    counts = _Counts()
    type_one.choose(datasets, _work(results, parallel, counts))
    counts.report(as_json=as_json)


@app.command()
def run(
    experiment: ExperimentArgument,
    dataset: DatasetOption = None,
    mechanism: Annotated[
        list[str] | None,
        typer.Option("--mechanism", help="Names as in docs/experiments.md; default: all."),
    ] = None,
    epsilon: Annotated[
        list[str] | None, typer.Option("--epsilon", help="Default: 0.01, 0.1, 0.5 and 1.")
    ] = None,
    seeds: Annotated[
        list[str] | None, typer.Option("--seeds", help="Default: those of each data set.")
    ] = None,
    results: ResultsOption = Path("results"),
    parallel: ParallelOption = 1,
    as_json: AsJson = False,
) -> None:
    """Run the cells of a grid that are not finished yet; lists are repeated or joined by commas."""
    from matrixdp.experiments import (  # noqa: PLC0415
        accounts,
        cells,
        options,
        settings,
        type_one,
    )

    options.check_experiment(experiment)
    wanted = cells.grid(
        options.listed(dataset) or settings.PAPER_DATASETS,
        options.listed(mechanism) or list(accounts.MECHANISMS),
        options.numbers(epsilon, "epsilon") or settings.EPSILONS,
        options.whole_numbers(seeds, "seeds"),
    )
    counts = _Counts()
    type_one.run_grid(wanted, _work(results, parallel, counts))
    counts.report(as_json=as_json)


@app.command()
def report(
    results: ResultsOption = Path("results"),
    page: Annotated[Path, typer.Option("--page", help="Page whose tables are replaced.")] = Path(
        "docs/experiments.md"
    ),
    figures: Annotated[
        Path, typer.Option("--figures", help="Folder for the figure, as SVG.")
    ] = Path("docs/figures"),
    as_json: AsJson = False,
) -> None:
    """Gather all finished runs in one table, and make the page's tables and the figure from it."""
    from matrixdp.experiments.figure import draw_accuracies  # noqa: PLC0415 (for this command alone)
    from matrixdp.experiments.report import with_tables  # noqa: PLC0415
    from matrixdp.experiments.results_table import (  # noqa: PLC0415
        gathered_rows,
        read_rows,
        rows_as_csv,
    )

    table, folder = results / "type_one.csv", results / "type_one"
    # Where the files of single runs were not kept, the table has what they said.
    rows = gathered_rows(folder, kept=read_rows(table))
    contents: list[tuple[Path, bytes | Path]] = [
        (table, rows_as_csv(rows)),
        (page, with_tables(page.read_text("utf-8"), rows).encode()),
        (figures / "type_one.svg", draw_accuracies(rows, "svg")),
    ]
    # All or none, so that page, figure and table never disagree.
    write_all(contents, force=True)
    written = [str(path) for path, _ in contents]
    if as_json:
        print_json({"rows": len(rows), "written": written})
        return
    for name in written:
        typer.echo(f"wrote {name}")


def _work(results: Path, parallel: int, counts: "_Counts") -> "Work":
    from matrixdp.experiments.type_one import FOLDER, Work  # noqa: PLC0415 (torch is slow)

    return Work(folder=results / FOLDER, parallel=parallel, progress=counts.progress)


class _Counts:
    """Shows a progress bar, and counts the runs that were made and those that failed."""

    def __init__(self) -> None:
        self.made = 0
        self.failed = 0

    @contextmanager
    def progress(self, runs: Sequence["Run"]) -> "Iterator[Tell]":
        """Show a bar whose length is the steps of all runs, so that long runs count for more."""
        with progress_bar(sum(run.steps for run in runs), f"{len(runs)} runs") as advance:

            def tell(run: "AnyRun", failure: str | None) -> None:
                # When a run ends: a worker's steps are not seen from here.
                advance(run.steps)
                self.made += failure is None
                self.failed += failure is not None
                if failure is not None:
                    typer.echo(f"matrixdp: a run on {run.dataset} failed: {failure}", err=True)

            yield tell

    def report(self, *, as_json: bool) -> None:
        """Print the counts; exit with an error code if a run failed."""
        if as_json:
            print_json({"made": self.made, "failed": self.failed})
        else:
            typer.echo(f"{self.made} runs made, {self.failed} failed")
        # After the counts, which are worth knowing in any case.
        if self.failed:
            raise typer.Exit(_A_RUN_FAILED)
