"""Each image by itself: what is measured on one cannot depend on the others.

A batch of images is not a function of each of them in floating point: kernels choose their order of
addition by how many there are, and some by the index of each. On the GPU that this was made on, a
few rows of a batch changed in their last digits when the first image was taken out. Here the same
program, with the same shapes and the same addresses, runs once for each image and sees that image
only.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from matrixdp_experiments.procedural.views import VIEW_SIDE

__all__ = ["measured_alone"]

Measure = Callable[[Tensor], Tensor]
_LANES = 12  # images at a time, each in a stream of its own; it changes nothing


def measured_alone(measure: Measure, images: Tensor, device: torch.device) -> Tensor:
    """Return what is measured on each image, one row for each, on the device.

    Parameters
    ----------
    measure : callable
        From one image of uint8 to one row; deterministic, and without random numbers.
    images : Tensor of uint8, shape (images, 3, 32, 32)
        Some, at least one.
    device : torch.device
        Where it is measured.
    """
    there = images.to(device)
    if device.type != "cuda":
        return torch.stack([measure(image) for image in there])
    with torch.backends.cudnn.flags(benchmark=False, deterministic=True, allow_tf32=True):
        lanes = [_Lane.of(measure, device) for _ in range(min(_LANES, len(there)))]
    rows = torch.empty(len(there), *lanes[0].row.shape, dtype=lanes[0].row.dtype, device=device)
    torch.cuda.synchronize(device)
    for number, image in enumerate(there):
        lanes[number % len(lanes)].write(image, rows[number])
    torch.cuda.synchronize(device)
    return rows


@dataclass(frozen=True, eq=False)
class _Lane:
    """The program as recorded once, with the memory that it reads and writes."""

    stream: torch.cuda.Stream
    graph: torch.cuda.CUDAGraph
    image: Tensor
    row: Tensor

    @classmethod
    def of(cls, measure: Measure, device: torch.device) -> "_Lane":
        """Return a lane after two runs that let libraries set themselves up."""
        stream = torch.cuda.Stream(device)
        image = torch.zeros(3, VIEW_SIDE, VIEW_SIDE, dtype=torch.uint8, device=device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            for _ in range(2):
                measure(image)
        torch.cuda.synchronize(device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            row = measure(image)
        return cls(stream, graph, image, row)

    def write(self, image: Tensor, target: Tensor) -> None:
        """Measure an image and write its row, after what the lane did before."""
        with torch.cuda.stream(self.stream):
            self.image.copy_(image)
            self.graph.replay()
            target.copy_(self.row)
