"""Post-processing of releases, which costs no budget."""

from matrixdp.postprocess.counts import nonnegative_estimate, whole_counts

__all__ = ["nonnegative_estimate", "whole_counts"]
