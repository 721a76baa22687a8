"""What ``matrixdp release`` says about a release: to people and to programs."""

from dataclasses import dataclass

import typer

from matrixdp.cli.labels import warn_of_lost_labels
from matrixdp.cli.output import print_json
from matrixdp.cli.release_places import Places
from matrixdp.cli.streams import reporting_release
from matrixdp.covariance import Covariance, SymmetricIsotropic
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.rounding import shown_up

__all__ = ["Outcome", "report_release"]


@dataclass(frozen=True)
class Outcome:
    """What a release promises, and what of it is public."""

    guarantee: Guarantee
    covariance: Covariance
    shape: tuple[int, int]
    column_labels: int = 0
    row_labels: int = 0
    labelled: bool = False


def report_release(done: Outcome, places: Places, *, as_json: bool) -> None:
    """Say what was released."""
    with reporting_release(places.statement):
        if done.labelled:
            warn_of_lost_labels(places.suffix)
        if as_json:
            print_json(_record(done, places))
            return
        for line in _lines(done, places):
            typer.echo(line, err=True)


def _record(done: Outcome, places: Places) -> dict[str, object]:
    smallest, largest = _extreme_scales(done.covariance)
    return {
        "output": places.target,
        "statement": str(places.statement),
        "epsilon": done.guarantee.epsilon,
        "delta": done.guarantee.delta,
        "mu": done.guarantee.mu,
        "neighbouring": done.guarantee.neighbouring,
        "smallest_noise_scale": smallest,
        "largest_noise_scale": largest,
        "shape": list(done.shape),
        "column_labels": done.column_labels,
        "row_labels": done.row_labels,
    }


def _lines(done: Outcome, places: Places) -> list[str]:
    smallest, largest = _extreme_scales(done.covariance)
    scales = shown_up(smallest)
    if largest > smallest:
        scales += f" to {shown_up(largest)}"
    labels = "no labels"
    if done.column_labels or done.row_labels:
        labels = (
            f"labels published as they are: {done.column_labels} of columns, {done.row_labels} of "
            "rows"
        )
    return [
        str(done.guarantee),
        f"a {done.shape[0]} by {done.shape[1]} matrix with noise; {labels}",
        f"noise scale {scales}; wrote {places.target} and {places.statement}",
    ]


def _extreme_scales(covariance: Covariance) -> tuple[float, float]:
    """Return the smallest and the largest standard deviation of an entry."""
    if isinstance(covariance, SymmetricIsotropic):
        # A pair of mirrored entries counts as one there, so singular values are not entry scales.
        scales = covariance.entry_scales((2, 2))
        return float(scales.min()), float(scales.max())
    return covariance.smallest_singular_value, covariance.largest_singular_value
