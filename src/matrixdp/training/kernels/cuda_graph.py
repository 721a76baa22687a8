"""Capturing a piece of work as a CUDA graph, so that it can be repeated in a single launch."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from matrixdp.errors import InvalidParameterError

__all__ = ["repeatable"]

# Libraries choose algorithms and kernels are compiled during the first runs, which may not be
# captured.
_WARM_UPS = 3


def repeatable(
    work: Mapping[int, Callable[[], None]], device: torch.device
) -> Mapping[int, Callable[[], None]]:
    """Run some works once or more, and return ways to repeat them: CUDA graphs on a GPU.

    On any other device these are the works themselves. What they compute during these first runs
    is for the caller to throw away.

    Parameters
    ----------
    work : mapping of int to callable
        By size. Each reads and writes tensors that stay where they are, and keeps no others. On a
        GPU it may not wait for results.
    device : torch.device
        Where these tensors are.

    Raises
    ------
    InvalidParameterError
        If a work cannot be captured.
    """
    if device.type != "cuda":
        for each in work.values():
            each()  # a mistake in it should show before a step is spent, as it does on a GPU
        return work
    with torch.cuda.device(device):
        # Memory is shared: graphs run one after another, and leave nothing in it for each other.
        # The largest comes first, so that the others fit into what it took.
        pool = torch.cuda.graph_pool_handle()
        return {size: _graph(work[size], pool) for size in sorted(work, reverse=True)}


def _graph(work: Callable[[], None], pool: Any) -> Callable[[], None]:
    # On a stream of its own, as capturing demands: the default one is not to be captured.
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(_WARM_UPS):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, pool=pool):
            work()
    except RuntimeError as error:
        raise InvalidParameterError(
            f"the step cannot be captured as a CUDA graph ({error}): leave out of losses and model "
            "whatever waits for the GPU, such as .item(), print or boolean masks, or use the loop "
            "over training.lots(...). This process may need a restart, since torch does not always "
            "recover from a failed capture"
        ) from error
    return graph.replay
