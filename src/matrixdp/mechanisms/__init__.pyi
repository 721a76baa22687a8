from .imgm import IMGM
from .matrix_mechanism import MatrixMechanism, WorkloadRelease
from .mechanism import Mechanism
from .release import Release

__all__ = ["IMGM", "MatrixMechanism", "Mechanism", "Release", "WorkloadRelease"]
