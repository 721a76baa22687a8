"""Parametrised layers: gradients of what their weights are computed from, against brute force."""

from collections.abc import Callable
from typing import cast

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

from matrixdp.errors import InvalidParameterError
from training.brute_force import check_against_brute_force, check_every_gradient
from training.chosen_way import BY_LAYER, Calls, check_training
from training.small_training import private, small_data


class Symmetric(nn.Module):
    """A matrix from its upper triangle, with a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, weight: Tensor) -> Tensor:
        return self.scale * (weight.triu() + weight.triu(1).T)


class Dropping(nn.Module):
    """A parametrisation that is random."""

    def forward(self, weight: Tensor) -> Tensor:
        return nn.functional.dropout(weight)


def symmetric() -> nn.Linear:
    layer = nn.Linear(4, 4)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    return layer


def normed_attention() -> nn.Module:
    layer = nn.MultiheadAttention(4, 2, batch_first=True)
    parametrizations.weight_norm(layer, "in_proj_weight")
    parametrizations.weight_norm(layer.out_proj)
    return Calls(layer, lambda layer, rows: layer(rows, rows, rows)[0])


class Mixed(nn.Module):
    """A parametrised weight of its own, beside a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))
        self.inner = nn.Linear(4, 4)
        parametrize.register_parametrization(self, "weight", Symmetric())

    def forward(self, inputs: Tensor) -> Tensor:
        made: Tensor = self.inner(torch.tanh(inputs @ self.weight))
        return made


class Again(nn.Linear):
    """A layer that calls itself."""

    def forward(self, inputs: Tensor, depth: int = 1) -> Tensor:
        made: Tensor = self(inputs, depth - 1) if depth else super().forward(inputs)
        return made


class Twice(nn.Module):
    """One parametrised layer that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = symmetric()

    def forward(self, inputs: Tensor) -> Tensor:
        made: Tensor = self.layer(torch.tanh(self.layer(inputs)))
        return made


@pytest.mark.parametrize("examples", [6, 2])
@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: parametrizations.weight_norm(nn.Linear(4, 3)), (4,)),
        (lambda: parametrizations.weight_norm(nn.Conv2d(2, 3, 2)), (2, 4, 4)),
        (lambda: parametrizations.orthogonal(nn.Linear(4, 3)), (5, 4)),
        (symmetric, (4,)),
        (Twice, (4,)),
        (Mixed, (4,)),
        (normed_attention, (3, 4)),
    ],
)
def test_models(make: Callable[[], nn.Module], shape: tuple[int, ...], examples: int) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(make(), nn.Flatten())
    inputs = torch.randn(6, *shape)
    check_every_gradient(model, inputs, examples)
    check_against_brute_force(model, inputs, examples, bounds=(0.6,))


def test_parts_that_are_frozen() -> None:
    torch.manual_seed(2)
    layer = symmetric()
    layer.get_parameter("parametrizations.weight.original").requires_grad_(False)
    check_against_brute_force(layer, torch.randn(6, 4), 3, bounds=(0.6,))


def twice_outside(model: nn.Module, inputs: Tensor) -> Tensor:
    """Use a weight in its layer, and once more without it, from the cache."""
    layer: nn.Module = model.get_submodule("layer")
    with parametrize.cached():
        made: Tensor = layer(inputs) @ cast("Tensor", layer.weight)
    return made.square().sum(1)


def test_cached_weights_that_are_used_outside_of_their_layer() -> None:
    torch.manual_seed(3)
    assert check_training(Twice(), torch.randn(6, 4), losses=twice_outside) != BY_LAYER


def cached(model: nn.Module, inputs: Tensor) -> Tensor:
    with parametrize.cached():
        made: Tensor = model(inputs).flatten(1)
    return made.square().sum(1)


@pytest.mark.parametrize(
    ("make", "shape"), [(Twice, (4,)), (Mixed, (4,)), (normed_attention, (3, 4))]
)
def test_cached_weights(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    torch.manual_seed(4)
    check_training(make(), torch.randn(6, *shape), losses=cached)


def test_a_recurrent_layer() -> None:
    torch.manual_seed(5)
    layer = nn.GRU(4, 3, batch_first=True)
    parametrizations.weight_norm(layer, "weight_hh_l0")
    check_training(Calls(layer, lambda layer, rows: layer(rows)[0]), torch.randn(6, 2, 4))


def test_a_layer_that_calls_itself() -> None:
    torch.manual_seed(6)
    layer = Again(4, 4)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    check_training(layer, torch.randn(6, 4))


def test_a_spectral_norm_is_trained_in_eval() -> None:
    torch.manual_seed(7)
    layer = parametrizations.spectral_norm(nn.Linear(4, 3)).eval()
    assert check_training(layer, torch.randn(6, 4)) == BY_LAYER
    # In train() each call changes its buffers.
    with pytest.raises(InvalidParameterError, match="was changed by the forward"):
        check_training(layer.train(), torch.randn(6, 4))


def test_a_random_parametrisation_is_drawn_for_each_record() -> None:
    # Run again, a layer would draw other numbers than in its forward pass.
    layer = nn.Linear(6, 3)
    parametrize.register_parametrization(layer, "weight", Dropping())
    with pytest.warns(UserWarning, match="for one record after another"):
        private(layer, seed=1).check(small_data())
