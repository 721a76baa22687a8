"""Capturing a piece of work as a CUDA graph, so that it can be repeated in a single launch."""

from collections.abc import Callable
from typing import Any

import torch

from matrixdp.errors import InvalidParameterError

__all__ = ["repeatable"]

# Libraries choose algorithms and kernels are compiled during the first runs, which may not be
# captured.
_WARM_UPS = 3


def repeatable(
    work: Callable[[], None], device: torch.device, *, pool: Any = None
) -> Callable[[], None]:
    """Run some work once or more, and return a way to repeat it: a CUDA graph on a GPU.

    On any other device that is the work itself. What it computes during these first runs is for
    the caller to throw away.

    Parameters
    ----------
    work : callable
        Reads and writes tensors that stay where they are. On a GPU it may not wait for results.
    device : torch.device
        Where these tensors are.
    pool : any, optional
        Memory that several graphs share, by ``torch.cuda.graph_pool_handle``. They run one after
        another, and no work leaves anything in it for another. The first should be the largest.

    Raises
    ------
    InvalidParameterError
        If the work cannot be captured.
    """
    if device.type != "cuda":
        work()  # a mistake in it should show before a step is spent, as it does on a GPU
        return work
    with torch.cuda.device(device):
        # On a stream of its own, as capturing demands: the default one is not to be captured.
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UPS):
                work()
        torch.cuda.current_stream().wait_stream(side)
        return _captured(work, pool)


def _captured(work: Callable[[], None], pool: Any) -> Callable[[], None]:
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
