"""What may be done with a release for free."""

from matrixdp.postprocess.counts import nonnegative_estimate, whole_counts

__all__ = ["nonnegative_estimate", "whole_counts"]
