"""Post-processing of releases, which costs no budget."""

from matrixdp.postprocess.counts import integer_counts, nonnegative_estimate
from matrixdp.postprocess.james_stein import EfronMorris, JamesStein
from matrixdp.postprocess.marginals import ConsistentMarginals, Marginal
from matrixdp.postprocess.processed import ProcessedRelease, process
from matrixdp.postprocess.projections import (
    Clamp,
    CorrelationMatrix,
    PositiveSemidefinite,
    Simplex,
)
from matrixdp.postprocess.shrinkage import SingularValueShrinkage
from matrixdp.postprocess.step import Step
from matrixdp.postprocess.thresholds import EntryThreshold, SingularValueThreshold

__all__ = [
    "Clamp",
    "ConsistentMarginals",
    "CorrelationMatrix",
    "EfronMorris",
    "EntryThreshold",
    "JamesStein",
    "Marginal",
    "PositiveSemidefinite",
    "ProcessedRelease",
    "Simplex",
    "SingularValueShrinkage",
    "SingularValueThreshold",
    "Step",
    "integer_counts",
    "nonnegative_estimate",
    "process",
]


def __dir__() -> list[str]:
    return __all__
