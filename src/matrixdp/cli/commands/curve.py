"""``matrixdp curve``: delta over epsilon, as a table, CSV, JSON or a figure."""

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from matrixdp.cli.shared.options import (
    AsJson,
    Figure,
    Force,
    MuOption,
    OptionalDeltaOption,
    OptionalEpsilonOption,
    count_option,
    number_option,
)
from matrixdp.cli.shared.output import (
    check_file,
    empty_figure,
    figure_content,
    file_format,
    print_json,
    print_table,
)
from matrixdp.errors import InvalidParameterError
from matrixdp.files.publishing.atomic import write_all
from matrixdp.parameters import DELTA, EPSILON, MU, real_number
from matrixdp.privacy.bound import privacy_delta, privacy_epsilon, privacy_mu
from matrixdp.rounding import shown_up

if TYPE_CHECKING:
    from matrixdp.privacy.arithmetic import FloatArray

__all__ = ["curve"]

# More take gigabytes, and are more likely a slip than a wish.
_MOST_POINTS = 1_000_000


def curve(
    mu: MuOption = None,
    epsilon: OptionalEpsilonOption = None,
    delta: OptionalDeltaOption = None,
    start: Annotated[float, number_option("--from", "First epsilon.")] = 0.0,
    stop: Annotated[
        float | None, number_option("--to", "Last epsilon; by default where delta is 1e-12.")
    ] = None,
    points: Annotated[int, count_option("--points", "Number of epsilons.")] = 11,
    csv_file: Annotated[Path | None, typer.Option("--csv", help="Write this CSV file.")] = None,
    figure: Figure = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Show the delta that a mechanism has at each epsilon: its whole privacy curve.

    The mechanism is named by its mu, or by the epsilon and delta of its budget.
    """
    # All files are checked before any is written, and written together.
    check_file(csv_file, ".csv", force=force)
    check_file(figure, ".png", ".svg", force=force)
    mu = _chosen_mu(mu, epsilon, delta)
    epsilons = _epsilons(mu, start, stop, points)
    deltas = np.asarray(privacy_delta(mu, epsilons))
    contents = []
    if csv_file is not None:
        contents.append((csv_file, _csv_bytes(epsilons, deltas)))
    if figure is not None:
        contents.append((figure, _figure_bytes(mu, epsilons, deltas, file_format(figure))))
    write_all(contents, force=force)
    for written in filter(None, (csv_file, figure)):
        typer.echo(f"wrote {written}", err=True)
    if as_json:
        print_json({"mu": mu, "epsilon": epsilons.tolist(), "delta": deltas.tolist()})
    elif csv_file is None and figure is None:
        print_table(
            ["epsilon", "delta"],
            [[shown_up(e), shown_up(d)] for e, d in zip(epsilons, deltas, strict=True)],
            title=f"Privacy curve of mu = {shown_up(mu)}",
        )


def _chosen_mu(mu: float | None, epsilon: float | None, delta: float | None) -> float:
    if mu is not None and epsilon is None and delta is None:
        mu = MU.number(mu)
        if mu > 0.0:
            return mu
        raise InvalidParameterError("mu=0.0 has no curve: its delta is 0 at every epsilon")
    if mu is None and epsilon is not None and delta is not None:
        return privacy_mu(epsilon, delta)
    raise InvalidParameterError("pass either --mu, or --epsilon and --delta together")


def _epsilons(mu: float, start: float, stop: float | None, points: int) -> "FloatArray":
    first = _named_epsilon(start, "from")
    # By default up to where delta is too small to matter.
    if stop is None:
        last = min(privacy_epsilon(mu, 1e-12), EPSILON.largest)
    else:
        last = _named_epsilon(stop, "to")
    if not 2 <= points <= _MOST_POINTS:
        raise InvalidParameterError(f"points={points} must be from 2 to {_MOST_POINTS}")
    if not first < last:
        raise InvalidParameterError(
            f"from={first!r} must be below to={last!r}: pass both --from and --to"
        )
    return np.linspace(first, last, points)


def _named_epsilon(value: float, name: str) -> float:
    number = real_number(value, name)
    if not 0.0 <= number <= EPSILON.largest:
        raise InvalidParameterError(
            f"{name}={number!r} is not an epsilon: it must be from 0 to {EPSILON.largest!r}"
        )
    return number


def _csv_bytes(epsilons: "FloatArray", deltas: "FloatArray") -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["epsilon", "delta"])
    writer.writerows(zip(epsilons.tolist(), deltas.tolist(), strict=True))
    return text.getvalue().encode()


def _figure_bytes(
    mu: float, epsilons: "FloatArray", deltas: "FloatArray", file_format: str
) -> bytes:
    canvas, axes = empty_figure(6.4, 4.0)
    # Where delta underflows, the curve would end in a flat line that is not there.
    shown = deltas >= DELTA.smallest
    axes.semilogy(epsilons[shown], deltas[shown])
    axes.set_xlabel("epsilon")
    axes.set_ylabel("delta")
    axes.set_title(f"Privacy curve of mu = {shown_up(mu)}")
    axes.grid(visible=True, alpha=0.3)
    return figure_content(canvas, file_format)
