"""Queries: from records to a matrix, with a proven bound on what one record changes."""

from matrixdp.queries.attributes import Bins, Categories
from matrixdp.queries.bounds import PublicBounds
from matrixdp.queries.covariances import Covariance
from matrixdp.queries.features import Features
from matrixdp.queries.histogram import histogram
from matrixdp.queries.means import Mean
from matrixdp.queries.moments import CrossMoment, Gram, JointMoments
from matrixdp.queries.private_count import PrivateCountMean, PrivateCountMeanRelease
from matrixdp.queries.query import Query
from matrixdp.queries.sources import parquet_blocks
from matrixdp.queries.sums import GradientSum, Sum
from matrixdp.queries.tables import ContingencyTable
from matrixdp.queries.touched import TouchedRecords

__all__ = [
    "Bins",
    "Categories",
    "ContingencyTable",
    "Covariance",
    "CrossMoment",
    "Features",
    "GradientSum",
    "Gram",
    "JointMoments",
    "Mean",
    "PrivateCountMean",
    "PrivateCountMeanRelease",
    "PublicBounds",
    "Query",
    "Sum",
    "TouchedRecords",
    "histogram",
    "parquet_blocks",
]
