"""``matrixdp demo``: a release from beginning to end, on data that comes with matplotlib."""

import csv
import io
import math
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from matrixdp.baselines.gaussian import AnalyticGaussian, ClassicGaussian
from matrixdp.baselines.mvg import MVG
from matrixdp.cli.shared.options import AsJson
from matrixdp.cli.shared.output import print_json, print_table
from matrixdp.cli.shared.streams import reporting_release
from matrixdp.files.publishing.atomic import check_target, write_all
from matrixdp.files.publishing.statement import statement_path
from matrixdp.mechanisms.imgm import IMGM
from matrixdp.mechanisms.labelled import MatrixFile
from matrixdp.mechanisms.mechanism import Mechanism
from matrixdp.mechanisms.release import Release
from matrixdp.privacy.budget import Budget
from matrixdp.rounding import shown_up
from matrixdp.sensitivity.sets import SymmetricBall

__all__ = ["demo"]

FloatArray = NDArray[np.float64]

_NAMES = ("IBM", "AAPL", "MSFT", "XRX", "ADBE", "^GSPC", "^IXIC")
# The largest norm of a month's returns; larger ones are scaled down to it.
_CLIP = 0.25
# Forty years: an upper bound that is known without looking at the data, as MVG needs it.
_MOST_MONTHS = 480
# Rounding may let the float sum of a few hundred outer products change by slightly more than the
# square of the clip norm. This allowance is far above that, and too small to notice.
_ROUNDING_ALLOWANCE = 1.0 + 1e-9
_SENSITIVITY = SymmetricBall(_CLIP**2 * _ROUNDING_ALLOWANCE, neighbouring="add-remove")
_BUDGET = Budget(epsilon=1.0, delta=1e-5)


def demo(
    folder: Annotated[
        Path, typer.Option("--folder", help="Where the results go; made, or its results replaced.")
    ] = Path("demo-output"),
    as_json: AsJson = False,
) -> None:
    """Release a real matrix with exact noise, and show what exact calibration saves."""
    folder.mkdir(parents=True, exist_ok=True)
    target, figure = folder / "second_moments.csv", folder / "second_moments.png"
    # Results of an earlier demo are replaced; anything else in their place is an error, now.
    for made in (target, statement_path(target), figure):
        check_target(made, force=True)
    truth = _second_moments(_monthly_returns())
    matrix = MatrixFile(truth, columns=_NAMES, index=_NAMES, corner="stock")
    release = IMGM(_SENSITIVITY, _BUDGET).release(matrix)
    release.save(target, force=True)
    actual = float(np.linalg.norm(np.asarray(release.value) - truth))
    with reporting_release(statement_path(target)):
        write_all([(figure, _figure_bytes(truth, release))], force=True)
        if as_json:
            _print_outcome(release, actual, target, figure)
        else:
            _print_report(truth, release, actual, target, figure)


def _monthly_returns() -> FloatArray:
    """Return the log returns of seven stocks and indices, one row a month, clipped to a norm."""
    # Late, because matplotlib takes a second to load.
    from matplotlib import cbook  # noqa: PLC0415

    text = Path(str(cbook.get_sample_data("Stocks.csv", asfileobj=False))).read_text("utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    table = csv.DictReader(lines)
    prices = [[row[name] for name in _NAMES] for row in table if all(row[name] for name in _NAMES)]
    returns = np.diff(np.log(np.array(prices, dtype=np.float64)), axis=0)
    norms = np.linalg.norm(returns, axis=1, keepdims=True)
    # The factor is 1 for rows within the clip norm.
    return np.asarray(returns * (_CLIP / np.maximum(norms, _CLIP)))


def _second_moments(rows: FloatArray) -> FloatArray:
    """Return the sum of outer products: one month more or less moves it by at most clip squared."""
    total = rows.T @ rows
    # BLAS may sum the two triangles in different orders, but symmetric noise needs exact symmetry.
    return np.asarray((total + total.T) / 2)


class _Noise(NamedTuple):
    """The noise that a mechanism would add to the matrix."""

    scale: float
    error: float


def _noise_of(mechanism: Mechanism[Release], shape: tuple[int, int]) -> _Noise:
    """Return the largest scale and the expected Frobenius error of a mechanism's noise."""
    noise = mechanism.covariance
    return _Noise(float(noise.entry_scales(shape).max()), math.sqrt(noise.total_variance(shape)))


def _compared(shape: tuple[int, int]) -> dict[str, _Noise]:
    """Return the noise of each mechanism, by its name."""
    most = _MOST_MONTHS * _CLIP**2
    return {
        "MVG": _noise_of(MVG(_SENSITIVITY, _BUDGET, shape=shape, norm_bound=most), shape),
        "classic formula": _noise_of(ClassicGaussian(_SENSITIVITY, _BUDGET), shape),
        "analytic Gaussian": _noise_of(AnalyticGaussian(_SENSITIVITY, _BUDGET), shape),
        "IMGM, symmetric": _noise_of(IMGM(_SENSITIVITY, _BUDGET), shape),
    }


def _print_outcome(release: Release, actual: float, target: Path, figure: Path) -> None:
    compared = _compared(release.shape)
    print_json(
        {
            "epsilon": _BUDGET.epsilon,
            "delta": _BUDGET.delta,
            "guarantee": str(release.guarantee),
            "largest_noise_scale": {name: noise.scale for name, noise in compared.items()},
            "expected_error": {name: noise.error for name, noise in compared.items()},
            "actual_error": actual,
            "release": str(target),
            "statement": str(statement_path(target)),
            "figure": str(figure),
        }
    )


def _print_report(
    truth: FloatArray, release: Release, actual: float, target: Path, figure: Path
) -> None:
    size, norm = len(truth), float(np.linalg.norm(truth))
    print_table(
        ["mechanism", "noise scale", "Frobenius error", "relative"],
        [
            [
                name,
                shown_up(noise.scale, 4),
                shown_up(noise.error, 4),
                f"{100 * noise.error / norm:.1f} %",
            ]
            for name, noise in _compared(release.shape).items()
        ],
        title=f"{size} x {size} second moments of monthly returns, epsilon {_BUDGET.epsilon:g}, "
        f"delta {_BUDGET.delta:g}",
    )
    typer.echo(
        f"Released with the noise of the last row; this time its error was {actual:.4g}.\n"
        f"Guarantee: {release.guarantee}\n"
        "In plain words: someone who sees the released matrix, and knows every month but one,\n"
        "learns almost nothing about that month, not even whether it is in the data. The noise is\n"
        "drawn exactly, so floating-point rounding reveals nothing either.\n"
        f"Files: {target} (the release), {statement_path(target)} (what it guarantees), {figure}."
    )


def _figure_bytes(truth: FloatArray, release: Release) -> bytes:
    # The exact matrix is drawn too: these data are public, which the title says.
    from matplotlib.figure import Figure  # noqa: PLC0415

    canvas = Figure(figsize=(9.0, 3.6), layout="constrained")
    released = np.asarray(release.value)
    largest = float(np.max(np.abs(truth)))
    panels = {"exact (public data)": truth, "released": released, "noise": released - truth}
    for axes, (title, matrix) in zip(canvas.subplots(1, 3), panels.items(), strict=True):
        image = axes.imshow(matrix, cmap="RdBu_r", vmin=-largest, vmax=largest)
        axes.set_title(title)
        axes.set_xticks(range(len(_NAMES)), _NAMES, rotation=90)
        axes.set_yticks(range(len(_NAMES)), _NAMES)
    canvas.colorbar(image, ax=canvas.axes, shrink=0.8)
    canvas.suptitle(str(release.guarantee), fontsize="medium")
    content = io.BytesIO()
    canvas.savefig(content, format="png", dpi=150)
    return content.getvalue()
