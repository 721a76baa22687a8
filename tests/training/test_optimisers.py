"""Optimisers, one or several: they follow the private gradient and nothing else."""

from collections.abc import Callable

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import optim

from matrixdp.errors import InvalidParameterError
from training.small_training import (
    cross_entropy,
    private,
    sgd,
    small_data,
    small_model,
    train,
    weights,
)

SEED = 11


@pytest.mark.parametrize(
    "make",
    [
        lambda parts: optim.SGD(parts, lr=0.1, momentum=0.9, nesterov=True),
        *(optim.Adam, optim.AdamW, optim.RMSprop, optim.Adagrad, optim.NAdam),
    ],
)
def test_any_optimiser(make: Callable[..., optim.Optimizer]) -> None:
    probe = small_model()
    start = weights(probe)
    by_one = optim.SGD(probe.parameters(), lr=1.0)
    train(private(probe, make=lambda _: by_one, seed=SEED), steps=1)
    gradient = start - weights(probe)
    by_hand, model = small_model(), small_model()
    reference = make(by_hand.parameters())
    train(private(model, make=lambda model: make(model.parameters()), seed=SEED), steps=1)
    pieces = gradient.split_with_sizes([part.numel() for part in by_hand.parameters()])
    for part, piece in zip(by_hand.parameters(), pieces, strict=True):
        part.grad = piece.reshape(part.shape)
    reference.step()
    torch.testing.assert_close(weights(model), weights(by_hand), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", [list, tuple])
def test_several_optimisers(kind: Callable[[list[optim.Optimizer]], optim.Optimizer]) -> None:
    """Each follows the gradients of its own parameters, from one noisy sum."""
    models = [small_model() for _ in range(2)]
    rates = (0.1, 0.01)
    several: list[optim.Optimizer] = [
        optim.SGD(models[0][index].parameters(), lr=rate)
        for index, rate in zip((0, 2), rates, strict=True)
    ]
    train(private(models[0], make=lambda _: kind(several), seed=SEED))
    groups = [
        {"params": models[1][index].parameters(), "lr": rate}
        for index, rate in zip((0, 2), rates, strict=True)
    ]
    one = optim.SGD(groups)
    train(private(models[1], make=lambda _: one, seed=SEED))
    assert torch.equal(weights(models[0]), weights(models[1]))
    assert not torch.equal(weights(models[0]), weights(small_model()))


@pytest.mark.parametrize("way", ["loop", "captured"])
def test_gradients_of_ones_own_between_steps(way: str) -> None:
    models = [small_model() for _ in range(2)]
    first, second = (private(model, seed=SEED) for model in models)
    step = first.captured_step(small_data(), batch_size=8) if way == "captured" else None
    while first.progress.steps_left:
        models[0](torch.ones(1, 6)).sum().backward()  # such as a picture of what matters
        if step is None:
            train(first, steps=1)
        else:
            step()
    train(second)
    torch.testing.assert_close(weights(models[0]), weights(models[1]), rtol=1e-6, atol=1e-7)
    assert all(part.grad is None for part in models[0].parameters())


def test_gradients_left_in_frozen_parameters() -> None:
    model = small_model()
    cross_entropy(model, *small_data()).sum().backward()
    weight = next(model.parameters()).requires_grad_(False)
    model[0].requires_grad_(False)
    before = weight.clone()
    with pytest.raises(InvalidParameterError, match="frozen parameter that has a gradient"):
        private(model, seed=3)
    sgd(model).zero_grad()
    training = private(model, seed=3)
    lot = next(training.lots(small_data()))
    weight.grad = torch.ones_like(weight)
    with pytest.raises(InvalidParameterError, match="frozen parameter that has a gradient"):
        training.step(lot, batch_size=8)
    assert training.progress.steps_spent == 1  # since its lot was drawn
    weight.grad = None
    training.step(lot, batch_size=8)
    assert torch.equal(weight, before)
