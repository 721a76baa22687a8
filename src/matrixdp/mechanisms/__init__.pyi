from .about import About
from .imgm import IMGM
from .matrix_mechanism import MatrixMechanism, WorkloadRelease
from .mechanism import Mechanism
from .release import Release

__all__ = ["IMGM", "About", "MatrixMechanism", "Mechanism", "Release", "WorkloadRelease"]
