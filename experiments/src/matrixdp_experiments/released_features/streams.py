"""Seeds of a run: random numbers of every kind come from a stream of their own.

Were two kinds drawn from one stream, the noise could be a function of the weights that learn from
it.
"""

from typing import Literal, get_args

from matrixdp.errors import InvalidParameterError

__all__ = ["Stream", "stream_seed"]

Stream = Literal["network", "noise", "head", "public lots", "lots"]
"""First weights of a network, noise of a release, first weights of a head, and the order of records
in the training of a network and of a head."""

_SEEDS = 1_000_000


def stream_seed(stream: Stream, seed: int) -> int:
    """Return the seed of one kind of random numbers in the runs of a seed.

    Raises
    ------
    InvalidParameterError
        If the seed is negative or above 999,999, where streams would meet.

    Examples
    --------
    >>> stream_seed("network", 2), stream_seed("noise", 2), stream_seed("lots", 2)
    (2, 1000002, 4000002)
    """
    if not 0 <= seed < _SEEDS:
        raise InvalidParameterError(f"seed={seed} is not between 0 and {_SEEDS - 1:,}")
    return get_args(Stream).index(stream) * _SEEDS + seed
