"""Queries: from records to a matrix, with a proven bound on what one record changes."""

from matrixdp.queries.additive import AdditiveQuery
from matrixdp.queries.attributes import Bins, Categories
from matrixdp.queries.bounds import PublicBounds
from matrixdp.queries.covariances import SampleCovariance
from matrixdp.queries.features import Features
from matrixdp.queries.group_summary import GroupSummary
from matrixdp.queries.groups import GroupMoments
from matrixdp.queries.means import Mean
from matrixdp.queries.moments import CrossMoment, Gram, JointMoments
from matrixdp.queries.preview import Preview
from matrixdp.queries.private_count import MeanRelease
from matrixdp.queries.query import Query
from matrixdp.queries.sources import parquet_blocks
from matrixdp.queries.sums import ClippedRecords, GradientSum, Sum
from matrixdp.queries.tables import ContingencyTable

__all__ = [
    "AdditiveQuery",
    "Bins",
    "Categories",
    "ClippedRecords",
    "ContingencyTable",
    "CrossMoment",
    "Features",
    "GradientSum",
    "Gram",
    "GroupMoments",
    "GroupSummary",
    "JointMoments",
    "Mean",
    "MeanRelease",
    "Preview",
    "PublicBounds",
    "Query",
    "SampleCovariance",
    "Sum",
    "parquet_blocks",
]


def __dir__() -> list[str]:
    return __all__
