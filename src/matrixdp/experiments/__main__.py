"""``python -m matrixdp.experiments``: choose and run, without the packages of the command line.

For machines that only train. Progress is one line for each run; reports are made elsewhere, from
the folder of results.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from matrixdp.errors import MatrixDPError
from matrixdp.experiments import type_one
from matrixdp.experiments.asked import OPTIONS, Asked, run_experiment
from matrixdp.experiments.options import RESULTS, check_experiment, listed
from matrixdp.experiments.outcomes import AnyRun
from matrixdp.experiments.runner import Tell
from matrixdp.experiments.settings import PAPER_DATASETS
from matrixdp.experiments.tally import Tally
from matrixdp.experiments.work import Work

__all__ = ["main"]

_NOT_DONE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return 0, or 2 if a run failed or the input was wrong."""
    # argparse itself exits with 2 on wrong options, which is the code for wrong input here, too.
    given = _parser().parse_args(arguments)
    try:
        tally = _made(given)
    except (MatrixDPError, OSError) as error:
        _say(f"matrixdp.experiments: {error}")
        return _NOT_DONE
    _say(str(tally))
    return _NOT_DONE if tally.failed else 0


def _made(given: argparse.Namespace) -> Tally:
    if given.command == "choose":
        check_experiment(given.experiment, ["type-one"])
        folder = given.results / type_one.FOLDER
        work = Work(folder=folder, parallel=given.parallel, progress=_lines)
        return type_one.choose(listed(given.dataset, "dataset") or list(PAPER_DATASETS), work)
    return run_experiment(
        given.experiment,
        Asked(**{name: getattr(given, name) for name in OPTIONS}),
        given.results,
        parallel=given.parallel,
        progress=_lines,
        warn=lambda sentence: _say(f"warning: {sentence}"),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m matrixdp.experiments")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, options in (("choose", ["dataset"]), ("run", OPTIONS)):
        command = commands.add_parser(name)
        command.add_argument("experiment")
        command.add_argument("--parallel", type=int, default=1)
        command.add_argument("--results", type=Path, default=RESULTS)
        for option in options:
            command.add_argument(f"--{option}", action="append")
    return parser


@contextmanager
def _lines(runs: Sequence[AnyRun]) -> Iterator[Tell]:
    """Print a line for each run that ends."""
    _say(f"{len(runs)} runs to make")
    # By the order in which runs end: several at a time do not end in the order they began.
    ended = count(1)

    def tell(run: AnyRun, failure: str | None) -> None:
        ending = "done" if failure is None else f"failed: {failure}"
        _say(f"{next(ended)}/{len(runs)} {run.dataset} {ending}")

    yield tell


def _say(text: str) -> None:
    # Flushed, so that the log of a killed process says how far it came.
    print(text, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
