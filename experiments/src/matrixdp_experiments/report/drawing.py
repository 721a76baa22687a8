"""Parts that figures of experiments share: points over seeds, and a file with the same bytes."""

import io
from collections.abc import Sequence
from statistics import fmean
from typing import Any, Protocol

from matrixdp_experiments.report.page_text import Judged, accuracies

__all__ = ["Claimed", "file_content", "points"]


class Claimed(Judged, Protocol):
    """A row with a claimed epsilon."""

    @property
    def epsilon(self) -> str:
        """As text; empty if there is none."""


def points(rows: Sequence[Claimed]) -> list[tuple[float, float, float, float]]:
    """Return epsilon, mean accuracy, and how far the seeds are below and above it."""
    found = []
    for epsilon in sorted({row.epsilon for row in rows if row.epsilon}, key=float):
        some = accuracies(row for row in rows if row.epsilon == epsilon)
        if some:
            mean = fmean(some)
            found.append((float(epsilon), mean, mean - min(some), max(some) - mean))
    return found


def file_content(canvas: Any, file_format: str) -> bytes:
    """Return the figure as a file's content; the same figure gives the same bytes."""
    import matplotlib as mpl  # noqa: PLC0415

    content = io.BytesIO()
    # A fixed salt instead of random ids, and text as text: the file can be compared and searched.
    with mpl.rc_context({"svg.hashsalt": "matrixdp", "svg.fonttype": "none"}):
        metadata = {"Date": None} if file_format == "svg" else {}
        canvas.savefig(content, format=file_format, dpi=120, metadata=metadata)
    return content.getvalue()
