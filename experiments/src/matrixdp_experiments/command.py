"""The command line of the experiments: data sets, accounts, choices, runs and the report.

Exit codes: 0 done, 2 bad input or a failed run, 130 interrupted.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from typer.exceptions import TyperException

from matrixdp.cli.shared.commands import Commands
from matrixdp.errors import InvalidParameterError, MatrixDPError
from matrixdp.files.publishing.atomic import write_all
from matrixdp.rounding import shown_up
from matrixdp_experiments.datasets import DATASETS, fetch_dataset, missing_files
from matrixdp_experiments.datasets.folder import VARIABLE, checked_name, folder_of_environment
from matrixdp_experiments.options import RESULTS, check_experiment, listed
from matrixdp_experiments.procedural.command import procedural

if TYPE_CHECKING:
    from matrixdp_experiments.gradients.accounts import Account
    from matrixdp_experiments.grid.outcomes import AnyRun
    from matrixdp_experiments.grid.runner import Tell
    from matrixdp_experiments.grid.tally import Tally

__all__ = ["main"]

_NAME = "matrixdp_experiments"
_BAD_INPUT = 2

app = Commands(
    name=f"python -m {_NAME}",
    help="Experiments: accuracy of models that were trained privately, on public data sets.",
    add_completion=False,
    no_args_is_help=True,
)
data = Commands(help="The public data sets of the experiments.", no_args_is_help=True)
app.add_typer(data, name="data")
app.add_typer(procedural, name="procedural")

ListOption: TypeAlias = list[str] | None
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]
FolderOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--folder", help=f"Folder of the data sets; default: ${VARIABLE}."),
]
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
    int, typer.Option("--parallel", help="Runs at a time, each in a process of its own.")
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        answer = app(args=words, prog_name=f"python -m {_NAME}", standalone_mode=False)
    except TyperException as error:
        _say(f"{_NAME}: {error.format_message()}")
        return _BAD_INPUT
    except (MatrixDPError, OSError) as error:
        _say(f"{_NAME}: {error}")
        return _BAD_INPUT
    return answer if isinstance(answer, int) else 0


@data.command()
def status(folder: FolderOption = None, as_json: AsJson = False) -> None:
    """Show which data sets are in the folder; their contents are checked when they are loaded."""
    root = _folder(folder)
    missing = {name: [path.name for path in missing_files(name, root)] for name in DATASETS}
    if as_json:
        states = {name: {"present": not files, "missing": files} for name, files in missing.items()}
        _print_json({"folder": str(root), "datasets": states})
        return
    typer.echo(f"Data sets in {root}")
    for name, files in missing.items():
        typer.echo(f"{name:8} {'missing: ' + ', '.join(files) if files else 'present'}")


@data.command()
def fetch(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Data sets to fetch.")],
    folder: FolderOption = None,
    as_json: AsJson = False,
) -> None:
    """Fetch data sets from their official sources; those that are there are left alone."""
    for name in names:
        checked_name(name)  # all of them before the first download, which may take minutes
    root = _folder(folder)
    fetched = {}
    for name in names:
        fetched[name] = fetch_dataset(
            name, root, report=lambda address: _say(f"fetching {address}")
        )
        if not as_json:
            typer.echo(f"{name}: {'fetched' if fetched[name] else 'already there'}")
    if as_json:
        _print_json({"folder": str(root), "fetched": fetched})


def _folder(folder: Path | None) -> Path:
    """Return the folder that the option or the environment names."""
    found = folder_of_environment() if folder is None else folder
    if found is None:
        raise InvalidParameterError(
            f"no folder of data sets is named: pass --folder, or set {VARIABLE} to one"
        )
    return found


@app.command()
def accounts(
    experiment: ExperimentArgument,
    dataset: DatasetOption = None,
    results: ResultsOption = RESULTS,
    as_json: AsJson = False,
) -> None:
    """Compute the noise of every cell and keep it, so that a machine that trains only reads it."""
    # Late, as all that a command alone needs: other commands should not wait for it.
    from matrixdp_experiments.gradients import (  # noqa: PLC0415
        account_book,
        cells,
        planning,
        settings,
    )
    from matrixdp_experiments.grid import folders  # noqa: PLC0415

    check_experiment(experiment, ["type-one"])
    datasets = listed(dataset, "dataset") or list(settings.PAPER_DATASETS)
    wanted = [cell for cell in cells.grid(datasets, seeds=[0]) if cell.epsilon is not None]
    folders.check_results(results / "type_one")
    book = account_book.AccountBook(results / "type_one")
    # Those of the choice as well: the machine that chooses may have no accountant.
    for name in datasets:
        planning.reference_accounts(name, book)
    found = [(cell.dataset, planning.account_of(cell, book)) for cell in wanted]
    if as_json:
        _print_json({"accounts": [{"dataset": name, **_numbers(one)} for name, one in found]})
        return
    for line in (
        ["data set", "mechanism", "epsilon", "noise multiplier", "true epsilon"],
        *([name, *map(_shown, _numbers(one).values())] for name, one in found),
    ):
        typer.echo("".join(f"{text:20}" for text in line).rstrip())


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
    results: ResultsOption = RESULTS,
    parallel: ParallelOption = 1,
    as_json: AsJson = False,
) -> None:
    """Choose learning rate and clip norm for each data set, on its records for choosing."""
    from matrixdp_experiments.gradients import experiment as type_one  # noqa: PLC0415 (slow: torch)
    from matrixdp_experiments.gradients.settings import PAPER_DATASETS  # noqa: PLC0415
    from matrixdp_experiments.grid.runner import Work  # noqa: PLC0415

    check_experiment(experiment, ["type-one"])
    datasets = listed(dataset, "dataset") or list(PAPER_DATASETS)
    work = Work(folder=results / type_one.FOLDER, parallel=parallel, progress=_progress)
    _report(type_one.choose(datasets, work), as_json=as_json)


@app.command()
def run(
    experiment: ExperimentArgument,
    dataset: DatasetOption = None,
    mechanism: Annotated[ListOption, typer.Option(help="Names as on the page.")] = None,
    epsilon: Annotated[ListOption, typer.Option(help="Claimed epsilons.")] = None,
    seed: Annotated[ListOption, typer.Option(help="Integers from 0.")] = None,
    network: Annotated[ListOption, typer.Option(help="type-two: public, random.")] = None,
    protocol: Annotated[ListOption, typer.Option(help="type-two: exact, paper.")] = None,
    clip: Annotated[ListOption, typer.Option(help="type-two: tanh, public.")] = None,
    method: Annotated[ListOption, typer.Option(help="type-two: names as on the page.")] = None,
    results: ResultsOption = RESULTS,
    parallel: ParallelOption = 1,
    as_json: AsJson = False,
) -> None:
    """Run the cells of a grid that are not finished yet; the page is docs/experiments.md.

    Lists are repeated or joined by commas. What is left out is run as the page describes it. The
    data sets are in the folder that MATRIXDP_DATA names.
    """
    from matrixdp_experiments.asked import Asked, run_experiment  # noqa: PLC0415 (slow: torch)

    asked = Asked(
        dataset=dataset,
        mechanism=mechanism,
        epsilon=epsilon,
        seed=seed,
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
        warn=lambda sentence: _say(f"{_NAME}: warning: {sentence}"),
    )
    _report(tally, as_json=as_json)


@app.command()
def report(
    results: ResultsOption = RESULTS,
    docs: Annotated[
        Path,
        typer.Option("--docs", help="Folder of experiments.md, and of its tables and figures."),
    ] = Path("docs"),
    as_json: AsJson = False,
) -> None:
    """Gather the finished runs of each experiment in a table; make pages and figures from them."""
    from matrixdp_experiments.report.written_report import report_contents  # noqa: PLC0415 (slow)

    rows, contents = report_contents(results, docs)
    # All or none, so that pages, figures and tables never disagree.
    write_all(contents, force=True)
    written = [str(path) for path, _ in contents]
    if as_json:
        _print_json({"rows": rows, "written": written})
        return
    for name in written:
        typer.echo(f"wrote {name}")


@contextmanager
def _progress(runs: Sequence["AnyRun"]) -> "Iterator[Tell]":
    """Print a line for each run that ends."""
    _say(f"{len(runs)} runs to make")
    # By the order in which runs end: several at a time do not end in the order they began.
    ended = count(1)

    def tell(run: "AnyRun", failure: str | None) -> None:
        ending = "done" if failure is None else f"failed: {failure}"
        _say(f"{next(ended)}/{len(runs)} {run.dataset} {ending}")

    yield tell


def _report(tally: "Tally", *, as_json: bool) -> None:
    """Print what was made; exit with an error code if a run failed."""
    if as_json:
        names = ("made", "failed", "finished", "inapplicable")
        _print_json({name: getattr(tally, name) for name in names})
    else:
        typer.echo(str(tally))
    # After the counts, which are worth knowing in any case.
    if tally.failed:
        raise typer.Exit(_BAD_INPUT)


def _print_json(values: Mapping[str, Any]) -> None:
    # JSON has neither NaN nor infinity; a result that is one must not be printed as if it were.
    typer.echo(json.dumps(values, indent=2, allow_nan=False))


def _say(text: str) -> None:
    # Flushed, so that the log of a killed process says how far it came.
    print(text, file=sys.stderr, flush=True)  # noqa: T201
