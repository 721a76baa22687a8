"""The way of a matrix in a folder of chunks through ``matrixdp release``, on a cluster."""

from dataclasses import dataclass
from pathlib import Path

from matrixdp.cli.commands.release.output import Outcome, Paths
from matrixdp.cli.shared.progress import progress_bar
from matrixdp.errors import InvalidParameterError
from matrixdp.files.formats.suffixes import CHUNKED
from matrixdp.mechanisms.imgm import IMGM
from matrixdp.queries.record_files import is_pattern

__all__ = ["Cluster", "released_in_chunks"]


@dataclass(frozen=True)
class Cluster:
    """Where chunks are computed, and how.

    Attributes
    ----------
    scheduler : str or None
        The address of a running cluster.
    keys : Path or None
        What opens sealed keys on its workers.
    check : bool
        Whether all values are computed once before anything is paid.
    """

    scheduler: str | None
    keys: Path | None
    check: bool

    def is_used(self, source: str, suffixes: tuple[str, str], threads: int | None) -> bool:
        """Return whether IN and OUT are folders of chunks, which a cluster computes.

        Raises
        ------
        InvalidParameterError
            If one of them is none, or an option does not belong to what they are.
        """
        in_parts = Path(source).is_dir() or is_pattern(source)
        if ".zarr" not in suffixes and not in_parts:
            if self.scheduler is not None or self.keys is not None or not self.check:
                raise InvalidParameterError(
                    "--scheduler, --worker-keys and --no-check are for folders of chunks, and IN "
                    "is a file"
                )
            return False
        if suffixes[0] != ".zarr" and not in_parts:
            raise InvalidParameterError(
                f"IN is a file and OUT is {suffixes[1]}: only a folder of chunks is released into "
                "another one"
            )
        if not set(suffixes) <= set(CHUNKED):
            raise InvalidParameterError(
                f"IN is {suffixes[0]} and OUT is {suffixes[1]}: a folder of chunks is released "
                f"into another one, which ends in {', '.join(CHUNKED)}"
            )
        if threads is not None:
            raise InvalidParameterError(
                "--threads is not for folders of chunks: workers have their own"
            )
        return True


def released_in_chunks(mechanism: IMGM, paths: Paths, cluster: Cluster) -> Outcome:
    """Release a folder of chunks into another one."""
    # Late: Dask is an extra, and slow to import.
    from matrixdp.distributed.clusters import connected  # noqa: PLC0415
    from matrixdp.distributed.folders import read_folder  # noqa: PLC0415
    from matrixdp.distributed.release import release_to  # noqa: PLC0415

    if paths.force:
        raise InvalidParameterError("--force does not replace a folder of chunks: remove it first")
    array = read_folder(paths.source)
    passes = 2 if cluster.check or paths.paying.account is not None else 1
    with (
        connected(cluster.scheduler),
        progress_bar(passes * array.npartitions, "Adding noise") as advance,
    ):
        release = release_to(
            mechanism,
            paths.target,
            array,
            privacy_filter=paths.paying.account,
            request=paths.paying.request,
            about=paths.about,
            check=cluster.check,
            keys=cluster.keys,
            advance=advance,
        )
    return Outcome(release.guarantee, release.covariance, release.shape)
