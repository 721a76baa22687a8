"""Fetching a data set: download, check, convert, check again, and only then appear."""

import importlib
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from matrixdp.errors import FileFormatError, StorageError
from matrixdp.files.publishing.atomic import write_all
from matrixdp_experiments.datasets.folder import checked_name, data_folder, missing_files
from matrixdp_experiments.datasets.sources import SOURCES, Source

__all__ = ["fetch_dataset"]


def fetch_dataset(
    name: str, folder: Path | None = None, report: Callable[[str], None] | None = None
) -> bool:
    """Fetch a data set from its official source, unless it is there.

    Parameters
    ----------
    name : str
        One of `DATASETS`.
    folder : Path, optional
        Where its files are to be; by default the folder that the environment variable
        ``MATRIXDP_DATA`` names. It is made if it does not exist.
    report : callable, optional
        Called with each address before it is fetched.

    Returns
    -------
    bool
        Whether anything was fetched: False if all of its files existed, which are not read.

    Raises
    ------
    MissingExtraError
        If pooch is not installed.
    StorageError
        If a download or a file could not be written.
    FileFormatError
        If what came is not what should have come.

    Notes
    -----
    Whatever happens, also an interrupt, each file of the data set exists complete or not at all,
    and folders that were made for nothing are removed.
    """
    source = SOURCES[checked_name(name)]
    target = data_folder(folder)
    missing = missing_files(name, target)
    if not missing:
        return False
    pooch = _pooch()
    try:
        # Inside the target, so that giving the files their names moves nothing between disks.
        with (
            _made(target),
            tempfile.TemporaryDirectory(prefix=f".{name}.", dir=target) as hidden,
        ):
            _fetch(pooch, source, Path(hidden), missing, report or _say_nothing)
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(f"{target} could not be written to: {error.strerror}") from error
    return True


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    """Make a folder and its parents; those that are new go again if nothing was put there."""
    fresh = [one for one in (folder, *folder.parents) if not one.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    finally:
        # Only empty folders can be removed like this: what somebody else put there stays.
        with suppress(OSError):
            for one in fresh:
                one.rmdir()


def _fetch(
    pooch: Any,
    source: Source,
    hidden: Path,
    missing: list[Path],
    report: Callable[[str], None],
) -> None:
    """Fetch, convert and check in a hidden folder; then give the missing files their names."""
    raw, converted = hidden / "raw", hidden / "converted"
    converted.mkdir()
    downloads = {}
    for file, checksum in source.downloads.items():
        report(source.address + file)
        downloads[file] = _download(pooch, source.address + file, checksum, raw)
    source.convert(downloads, converted)
    # Here and not only when it is loaded: what is wrong with a source should be known at once.
    source.check(*sorted(converted.iterdir()))
    write_all([(path, converted / path.name) for path in missing])


def _download(pooch: Any, address: str, checksum: str | None, folder: Path) -> Path:
    """Return a file that was downloaded, or raise if it could not be or has another checksum."""
    name = address.rsplit("/", 1)[1]
    known = None if checksum is None else f"sha256:{checksum}"
    try:
        return Path(pooch.retrieve(address, known_hash=known, fname=name, path=folder))
    except OSError as error:  # every error of a connection is one
        raise StorageError(
            f"{address} could not be fetched ({type(error).__name__}): nothing was written. Check "
            "the connection, or get the data set elsewhere; docs/data.md says in which form"
        ) from error
    except ValueError as error:  # what pooch raises for another checksum
        raise FileFormatError(
            f"{address} was cut short or is another file: its checksum is not the published one. "
            "Nothing was written; fetch it again later"
        ) from error


def _pooch() -> Any:
    # Late: a machine that only trains needs none.
    pooch: Any = importlib.import_module("pooch")
    # It logs each download at a level that is shown; `report` does that here.
    pooch.get_logger().setLevel("WARNING")
    return pooch


def _say_nothing(_: str) -> None:
    """Report nothing."""
