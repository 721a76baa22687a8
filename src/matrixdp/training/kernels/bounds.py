"""Upper bounds of norms, as the rules of layers and their kernels give them."""

from typing import NamedTuple

from torch import Tensor

__all__ = ["NormBounds"]


class NormBounds(NamedTuple):
    """Upper bounds of a norm for every example: each value times one plus the share.

    Keeping the share apart saves a pass over the values for every parameter.
    """

    values: Tensor
    share: float
