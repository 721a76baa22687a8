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
    from matrixdp.experiments.outcomes import AnyRun
    from matrixdp.experiments.runner import Tell
    from matrixdp.experiments.tally import Tally

__all__ = ["app"]

app = command_group("Experiments: accuracy of models that were trained privately.")

_A_RUN_FAILED = 2  # like any input that could not be processed: it is not a defect of matrixdp

ListOption: TypeAlias = list[str] | None
ExperimentArgument: TypeAlias = Annotated[
    str, typer.Argument(help="type-one: private gradients; type-two: private features (run only).")
]
DatasetOption: TypeAlias = Annotated[
    ListOption,
    typer.Option("--dataset", help="Names as on the page, or digits; default: all but digits."),
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
        places,
        planning,
        settings,
    )

    options.check_experiment(experiment, ["type-one"])
    datasets = options.listed(dataset, "dataset") or list(settings.PAPER_DATASETS)
    wanted = [cell for cell in cells.grid(datasets, seeds=[0]) if cell.epsilon is not None]
    places.check_results(results / "type_one")
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
    from matrixdp.experiments.work import Work  # noqa: PLC0415

    options.check_experiment(experiment, ["type-one"])
    datasets = options.listed(dataset, "dataset") or list(settings.PAPER_DATASETS)
    work = Work(folder=results / type_one.FOLDER, parallel=parallel, progress=_progress)
    _report(type_one.choose(datasets, work), as_json=as_json)


@app.command()
def run(
    experiment: ExperimentArgument,
    dataset: DatasetOption = None,
    mechanism: Annotated[ListOption, typer.Option(help="Names as on the page.")] = None,
    epsilon: Annotated[ListOption, typer.Option(help="Claimed epsilons.")] = None,
    seeds: Annotated[ListOption, typer.Option(help="Whole numbers from 0.")] = None,
    network: Annotated[ListOption, typer.Option(help="type-two: public, random.")] = None,
    protocol: Annotated[ListOption, typer.Option(help="type-two: exact, paper.")] = None,
    clip: Annotated[ListOption, typer.Option(help="type-two: tanh, public.")] = None,
    method: Annotated[ListOption, typer.Option(help="type-two: names as on the page.")] = None,
    results: ResultsOption = Path("results"),
    parallel: ParallelOption = 1,
    as_json: AsJson = False,
) -> None:
    """Run the cells of a grid that are not finished yet; the page is docs/experiments.md.

    Lists are repeated or joined by commas. What is left out is run as the page describes it. The
    data sets are in the folder that MATRIXDP_DATA names.
    """
    from matrixdp.experiments.asked import Asked, run_experiment  # noqa: PLC0415 (torch is slow)

    asked = Asked(
        dataset=dataset,
        mechanism=mechanism,
        epsilon=epsilon,
        seeds=seeds,
        network=network,
        protocol=protocol,
        clip=clip,
        method=method,
    )
    tally = run_experiment(
        experiment,
        asked,
        results,
        parallel=parallel,
        progress=_progress,
        warn=lambda sentence: typer.echo(f"matrixdp: warning: {sentence}", err=True),
    )
    _report(tally, as_json=as_json)


@app.command()
def report(
    results: ResultsOption = Path("results"),
    page: Annotated[Path, typer.Option("--page", help="Page whose tables are replaced.")] = Path(
        "docs/experiments.md"
    ),
    figures: Annotated[
        Path, typer.Option("--figures", help="Folder for the figures, as SVG.")
    ] = Path("docs/figures"),
    as_json: AsJson = False,
) -> None:
    """Gather the finished runs of each experiment in a table; make page and figures from them."""
    from matrixdp.experiments.written_report import report_contents  # noqa: PLC0415 (slow)

    rows, contents = report_contents(results, page, figures)
    # All or none, so that page, figure and table never disagree.
    write_all(contents, force=True)
    written = [str(path) for path, _ in contents]
    if as_json:
        print_json({"rows": rows, "written": written})
        return
    for name in written:
        typer.echo(f"wrote {name}")


@contextmanager
def _progress(runs: Sequence["AnyRun"]) -> "Iterator[Tell]":
    """Show a bar whose length is the steps of all runs, so that long runs count for more."""
    with progress_bar(sum(run.steps for run in runs), f"{len(runs)} runs") as advance:

        def tell(run: "AnyRun", failure: str | None) -> None:
            # When a run ends: a worker's steps are not seen from here.
            advance(run.steps)
            if failure is not None:
                typer.echo(f"matrixdp: a run on {run.dataset} failed: {failure}", err=True)

        yield tell


def _report(tally: "Tally", *, as_json: bool) -> None:
    """Print what was made; exit with an error code if a run failed."""
    if as_json:
        names = ("made", "failed", "finished", "inapplicable")
        print_json({name: getattr(tally, name) for name in names})
    else:
        typer.echo(str(tally))
    # After the counts, which are worth knowing in any case.
    if tally.failed:
        raise typer.Exit(_A_RUN_FAILED)
