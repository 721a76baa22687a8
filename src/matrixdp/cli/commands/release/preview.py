"""The preview of ``matrixdp release``: the noise, which does not depend on the matrix."""

import typer

from matrixdp.cli.shared.output import print_json
from matrixdp.files.formats.suffixes import TEXT
from matrixdp.mechanisms.imgm import IMGM
from matrixdp.rounding import shown_up
from matrixdp.sensitivity.sets import RowBounds, RowBox

__all__ = ["show_preview"]


def show_preview(mechanism: IMGM, suffix: str, largest: float | None, *, as_json: bool) -> None:
    """Show the noise that a matrix of any shape would get; IN is not read."""
    bounds = mechanism.sensitivity
    # Of sets of rows, one error for each row or each column; otherwise one for all entries.
    match bounds:
        case RowBox():
            errors, of = mechanism.covariance.entry_scales((1, len(bounds.bounds))), "column"
        case RowBounds():
            errors, of = mechanism.covariance.entry_scales((len(bounds.bounds), 1)), "row"
        case _:
            errors, of = mechanism.covariance.entry_scales((2, 2))[0], "entry"
    flat = errors.ravel().tolist()
    hidden = 0 if largest is None else sum(error > 2.0 * largest for error in flat)
    guarantee = mechanism.guarantee
    if as_json:
        print_json(
            {
                "epsilon": guarantee.epsilon,
                "delta": guarantee.delta,
                "mu": guarantee.mu,
                "neighbouring": guarantee.neighbouring,
                "standard_errors": flat,
                "of_each": of,
                "hidden": hidden,
            }
        )
        return
    least, most = shown_up(min(flat)), shown_up(max(flat))
    typer.echo(f"{guarantee}\na matrix of the shape of IN, which is not read")
    typer.echo(
        f"standard error of each {of}: " + (least if least == most else f"{least} to {most}")
    )
    if suffix in TEXT:
        typer.echo("decimals in text take a little more noise, by the table of --range")
    if hidden:
        typer.echo(
            f"THE NOISE IS LARGER THAN THE RANGE that --range states: such a {of} says nothing"
        )
