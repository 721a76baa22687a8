"""Output of the program: a table for people, JSON for programs, figures for both."""

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from matrixdp.errors import InvalidParameterError
from matrixdp.files.publishing.atomic import check_target
from matrixdp.rounding import shown_up

if TYPE_CHECKING:
    from matrixdp.audit.comparison import Contender
    from matrixdp.queries import Preview

__all__ = [
    "check_file",
    "draw_bars",
    "empty_figure",
    "figure_content",
    "file_format",
    "preview_fields",
    "print_json",
    "print_table",
]

# Wider than any table, so that measuring one never wraps it.
_ANY_WIDTH = 10_000
_WASTE_COLOUR, _LEAST_COLOUR = "#b0b7c3", "#1f77b4"


def print_json(fields: Mapping[str, Any]) -> None:
    """Print one JSON object; floats are written so that reading them back changes nothing."""
    # JSON has neither NaN nor infinity; a result that is one must not be printed as if it were.
    print(json.dumps(fields, indent=2, allow_nan=False))  # noqa: T201


def print_table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None
) -> None:
    """Print rows of text under headings, aligned to the right; a number is never cut."""
    table = Table(title=title, title_justify="left")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    # rich would shorten numbers to the width of the terminal, which changes what they say.
    needed = Console(width=_ANY_WIDTH).measure(table).maximum
    Console(width=max(needed, Console().width)).print(table)


def check_file(path: Path | None, *suffixes: str, force: bool) -> None:
    """Raise if a target is of another kind, or exists already, before any work is done."""
    if path is None:
        return
    if path.suffix.lower() not in suffixes:
        raise InvalidParameterError(
            f"{path} does not end in {' or '.join(suffixes)}: name such a file"
        )
    check_target(path, force=force)


def preview_fields(preview: "Preview") -> dict[str, Any]:
    """Return what a preview says, at full precision."""
    guarantee = preview.guarantee
    return {
        "query": preview.query,
        "epsilon": guarantee.epsilon,
        "delta": guarantee.delta,
        "mu": guarantee.mu,
        "neighbouring": guarantee.neighbouring,
        "shape": list(preview.shape),
        "standard_errors": preview.standard_errors.tolist(),
        "ranges": preview.ranges.lengths.tolist(),
        "count_error": preview.count_error,
        "least_records": preview.least_records,
        "hidden_entries": preview.hidden_entries,
    }


def draw_bars(contenders: Sequence["Contender"], title: str, file_format: str) -> bytes:
    """Draw the noise scale of every contender as a bar, labelled with its true epsilon."""
    shown = [one for one in contenders if one.noise_scale is not None][::-1]
    scales = [one.noise_scale or 0.0 for one in shown]
    canvas, axes = empty_figure(8.0, 1.2 + 0.35 * len(shown))  # inches
    least = min(scales)
    # Equal to four digits counts as least: some scales are found by a search.
    colours = [_LEAST_COLOUR if scale <= least * 1.0001 else _WASTE_COLOUR for scale in scales]
    bars = axes.barh([one.name for one in shown], scales, color=colours)
    axes.bar_label(
        bars, [f" true epsilon {shown_up(one.true_epsilon or 0.0, 3)}" for one in shown], fontsize=8
    )
    axes.set_xscale("log")
    # Room on the right for the labels of the bars.
    axes.set_xlim(least / 2, max(scales) * 30)
    axes.set_xlabel("noise scale of each step")
    axes.set_title(title, fontsize="medium")
    return figure_content(canvas, file_format)


def file_format(path: Path) -> str:
    """Return the format that the name of a figure's file says."""
    return path.suffix.lower().removeprefix(".")


def empty_figure(width: float, height: float) -> Any:
    """Return a figure of so many inches, and its axes."""
    # Late, because matplotlib takes a second to load; not pyplot, which may want a display.
    from matplotlib.figure import Figure  # noqa: PLC0415

    canvas = Figure(figsize=(width, height), layout="constrained")
    return canvas, canvas.subplots()


def figure_content(canvas: Any, file_format: str) -> bytes:
    """Return the figure as a file's content; the same figure gives the same bytes."""
    import matplotlib as mpl  # noqa: PLC0415

    content = io.BytesIO()
    # A fixed salt instead of random ids, and text as text: the file can be compared and searched.
    with mpl.rc_context({"svg.hashsalt": "matrixdp", "svg.fonttype": "none"}):
        metadata = {"Date": None} if file_format == "svg" else {}
        canvas.savefig(content, format=file_format, dpi=120, metadata=metadata)
    return content.getvalue()
