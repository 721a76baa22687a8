"""Sums of 16-bit gradients have 32 bits: 16 would round them by more than a record adds."""

from collections.abc import Callable

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn

from training.brute_force import clipped

DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
    ),
]


class Scaled(nn.Module):
    """A layer of a kind that is not known."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.weight * inputs


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(1, 1, bias=False), (1,)),
    "sequence": (lambda: nn.Linear(8, 8, bias=False), (2, 8)),
    "Gram": (lambda: nn.Conv2d(32, 32, 3, bias=False), (32, 4, 4)),
    "convolution": (lambda: nn.Conv2d(4, 4, 3, bias=False), (4, 8, 8)),
    "groups": (lambda: nn.Conv2d(8, 8, 3, bias=False, groups=2), (8, 4, 4)),
    "own": (Scaled, (4,)),
}


@pytest.mark.parametrize("autocast", [True, False])
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("device", DEVICES)
def test_one_of_many_records_counts_once(name: str, device: str, *, autocast: bool) -> None:
    make, shape = LAYERS[name]
    torch.manual_seed(0)
    model = nn.Sequential(make()).to(device)
    model = model if autocast else model.to(torch.bfloat16)

    def losses(model: nn.Module, rows: Tensor) -> Tensor:
        with torch.autocast(device, torch.bfloat16, enabled=autocast):
            made: Tensor = model(rows if autocast else rows.to(torch.bfloat16))
        return made.float().flatten(1).sum(1)

    def total(records: int) -> Tensor:
        # All alike, so that the sum is as large as it can be.
        rows = torch.ones(records, *shape, device=device)
        sums = clipped(model, rows, records, bounds=(1.0,), losses=losses).sums
        return torch.cat([part.flatten() for part in sums.values()])

    # In bfloat16, numbers between 512 and 1,024 are multiples of 4.
    moved = [float((total(records + 1) - total(records)).norm()) for records in (600, 603)]
    assert max(moved) <= 1.0001
    assert min(moved) > 0.97
