"""Clipped sums by brute force: one backward pass for each example."""

import copy
from collections.abc import Callable, Sequence

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Generator, Tensor, nn

from matrixdp.training.layers.tracing import Tracer
from matrixdp.training.layers.use import MeasuredUse
from matrixdp.training.lots.clipping import ClippedSum, clipped_sum

Losses = Callable[[nn.Module, Tensor], Tensor]


def one_loss_per_row(model: nn.Module, inputs: Tensor) -> Tensor:
    """Return a loss whose gradient is different at every output."""
    outputs = model(inputs)
    if isinstance(outputs, tuple):
        states = [state.transpose(0, 1) for state in outputs[1]]
        outputs = torch.cat([part.flatten(1) for part in (outputs[0], *states)], dim=1)
    outputs = outputs.flatten(1)
    weights = torch.linspace(-1.0, 1.5, outputs.shape[1]).to(outputs)
    return (outputs * weights).sum(1) + 0.1 * outputs.square().sum(1)


def traced(
    model: nn.Module, inputs: Tensor, examples: int, losses: Losses = one_loss_per_row
) -> tuple[list[MeasuredUse], bool]:
    """Return the uses of a model's layers, and whether gradients had 16 bits."""
    tracer = Tracer(model, [part for part in model.parameters() if part.requires_grad])
    with tracer.on():
        values = losses(model, inputs)
        uses = tracer.uses(values.reshape(examples, -1).mean(1), examples)
    return uses, tracer.half


def clipped(
    model: nn.Module,
    inputs: Tensor,
    examples: int,
    bounds: Sequence[float] = (1.0,),
    group_of: Callable[[str], int] = lambda _: 0,
    losses: Losses = one_loss_per_row,
) -> ClippedSum:
    groups = {part: group_of(name) for name, part in model.named_parameters()}
    uses, _ = traced(model, inputs, examples, losses)
    assert all(part.grad is None for part in model.parameters())
    return clipped_sum(uses, groups, bounds)


def brute_force(
    model: nn.Module,
    inputs: Tensor,
    examples: int,
    bounds: Sequence[float] = (1.0,),
    group_of: Callable[[str], int] = lambda _: 0,
    losses: Losses = one_loss_per_row,
) -> tuple[dict[str, Tensor], Tensor]:
    names = [name for name, part in model.named_parameters() if part.requires_grad]
    parameters = [part for part in model.parameters() if part.requires_grad]
    sums = {name: torch.zeros_like(part) for name, part in zip(names, parameters, strict=True)}
    norms = torch.zeros(len(bounds), examples, dtype=torch.float64, device=inputs.device)
    for number, rows in enumerate(inputs.chunk(examples)):
        loss = losses(model, rows).mean()
        found: tuple[Tensor | None, ...] = torch.autograd.grad(loss, parameters, allow_unused=True)
        gradients = {
            name: torch.zeros_like(sums[name]) if part is None else part
            for name, part in zip(names, found, strict=True)
        }
        for group, bound in enumerate(bounds):
            mine = [name for name in names if group_of(name) == group]
            norm = (
                torch.stack([gradients[name].double().square().sum() for name in mine]).sum().sqrt()
            )
            norms[group, number] = norm
            for name in mine:
                sums[name] += gradients[name] * min(1.0, bound / max(float(norm), 1e-30))
    return sums, norms


def check_against_brute_force(
    model: nn.Module,
    inputs: Tensor,
    examples: int | None = None,
    norms_rtol: float = 2e-4,
    **options: object,
) -> None:
    number = len(inputs) if examples is None else examples
    found = clipped(model, inputs, number, **options)  # type: ignore[arg-type]
    sums, norms = brute_force(model, inputs, number, **options)  # type: ignore[arg-type]
    assert torch.all(found.norms >= norms * (1 - 1e-5))
    torch.testing.assert_close(found.norms, norms, rtol=norms_rtol, atol=1e-6)
    by_name = {
        name: found.sums[part] for name, part in model.named_parameters() if part in found.sums
    }
    assert set(by_name) == set(sums)
    size = max(float(total.abs().max()) for total in sums.values())
    # On a GPU every factor has a margin of 2**-9, for TF32.
    rtol = 1e-3 if inputs.device.type == "cpu" else 4e-3
    for name, total in sums.items():
        torch.testing.assert_close(by_name[name], total, rtol=rtol, atol=norms_rtol * size / 10)


def check_every_gradient(model: nn.Module, inputs: Tensor, examples: int) -> None:
    """Compare the gradient of every example with that of the same model in float64."""
    uses, _ = traced(model, inputs, examples)
    one_each = torch.eye(examples, device=inputs.device)
    found: dict[nn.Parameter, Tensor] = {}
    for _, use, measured in uses:
        # Of what was measured, sums are left: here those of one example each.
        sums = [] if measured is None else [use.weighted_sum(one) for one in one_each]
        for parameter, part in (use.gradients() if measured is None else sums[0]).items():
            each = torch.stack([one[parameter] for one in sums]) if sums else part
            found[parameter] = found[parameter] + each if parameter in found else each
    trained = [part for part in model.parameters() if part.requires_grad]
    assert set(found) == set(trained)
    wide = copy.deepcopy(model).to(torch.float64)
    parameters = [part for part in wide.parameters() if part.requires_grad]
    for number, rows in enumerate(inputs.to(torch.float64).chunk(examples)):
        loss = one_loss_per_row(wide, rows).mean()
        expected: tuple[Tensor | None, ...] = torch.autograd.grad(
            loss, parameters, allow_unused=True
        )
        size = max(float(part.abs().max()) for part in expected if part is not None)
        for parameter, wanted in zip(trained, expected, strict=True):
            mine = found[parameter][number].double()
            right = torch.zeros_like(mine) if wanted is None else wanted
            torch.testing.assert_close(mine, right, rtol=1e-5, atol=1e-5 * size)


def seeded(seed: int) -> Generator:
    torch.manual_seed(seed)
    return Generator().manual_seed(seed)
