"""Previews of queries as fields of JSON."""

from typing import Any

from matrixdp.queries import Preview

__all__ = ["preview_fields"]


def preview_fields(preview: Preview) -> dict[str, Any]:
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
