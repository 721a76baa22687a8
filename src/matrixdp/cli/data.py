"""``matrixdp data``: which data sets of the experiments are there, and fetching the others."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from matrixdp.cli.groups import command_group
from matrixdp.cli.options import AsJson
from matrixdp.cli.output import print_json, print_table
from matrixdp.errors import InvalidParameterError

__all__ = ["app", "fetch", "status"]

app = command_group("The public data sets of the experiments.")

FolderOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--folder", help="Folder of the data sets; default: $MATRIXDP_DATA."),
]


@app.command("status")
def status(folder: FolderOption = None, as_json: AsJson = False) -> None:
    """Show which data sets are in the folder; their contents are checked when they are loaded."""
    # Late, as everything that a command alone needs: other commands should not wait for it.
    from matrixdp.experiments.datasets import (  # noqa: PLC0415
        DATASETS,
        missing_files,
    )

    place = _place(folder)
    missing = {name: [path.name for path in missing_files(name, place)] for name in DATASETS}
    if as_json:
        states = {name: {"present": not files, "missing": files} for name, files in missing.items()}
        print_json({"folder": str(place), "datasets": states})
        return
    print_table(
        ["data set", "state", "missing files"],
        [
            [name, "missing" if files else "present", ", ".join(files)]
            for name, files in missing.items()
        ],
        title=f"Data sets in {place}",
    )


@app.command("fetch")
def fetch(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Data sets to fetch.")],
    folder: FolderOption = None,
    as_json: AsJson = False,
) -> None:
    """Fetch data sets from their official sources; those that are there are left alone."""
    from matrixdp.experiments.datasets import fetch_dataset  # noqa: PLC0415
    from matrixdp.experiments.datasets.folder import checked_name  # noqa: PLC0415

    for name in names:
        checked_name(name)  # all of them before the first download, which may take minutes
    place = _place(folder)
    fetched = {}
    for name in names:
        fetched[name] = fetch_dataset(
            name, place, report=lambda address: typer.echo(f"fetching {address}", err=True)
        )
        if not as_json:
            typer.echo(f"{name}: {'fetched' if fetched[name] else 'already there'}")
    if as_json:
        print_json({"folder": str(place), "fetched": fetched})


def _place(folder: Path | None) -> Path:
    """Return the folder that the option or the environment names."""
    from matrixdp.experiments.datasets.folder import (  # noqa: PLC0415
        VARIABLE,
        folder_of_environment,
    )

    found = folder_of_environment() if folder is None else folder
    if found is None:
        raise InvalidParameterError(
            f"no folder of data sets is named: pass --folder, or set {VARIABLE} to one"
        )
    return found
