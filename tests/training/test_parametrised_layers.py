"""Parametrised layers: gradients of what their weights are computed from, against brute force."""

from collections.abc import Callable
from typing import cast

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

from matrixdp.errors import InvalidParameterError
from matrixdp.training.layers.table import check_layer
from matrixdp.training.recording import Recording
from training.brute_force import check_against_brute_force, check_every_gradient, clipped
from training.test_odd_calls import Calls

pytestmark = pytest.mark.filterwarnings("ignore:.* has no shortcut")


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
    return made.sum(1)


def test_cached_weights() -> None:
    inputs = torch.randn(6, 4)
    with pytest.raises(InvalidParameterError, match=r"'layer' is parametrised.*leave that block"):
        clipped(Twice(), inputs, 6, losses=twice_outside)
    # Not in the first run, but where the layer is run again.
    model = Twice()
    recording = Recording(model)
    with recording.on():
        losses = model(inputs).sum(1)
        with parametrize.cached(), pytest.raises(InvalidParameterError, match="leave that block"):
            recording.backward(losses, 6, 6)
    # Without gradients nothing is lost.
    with parametrize.cached(), recording.on(), torch.no_grad():
        model(inputs)


@pytest.mark.parametrize(("part", "name"), [("", "in_proj_weight"), ("out_proj", "weight")])
def test_cached_weights_of_attention(part: str, name: str) -> None:
    layer = nn.MultiheadAttention(4, 2, batch_first=True)
    parametrizations.weight_norm(layer.get_submodule(part), name)
    model = Calls(layer, lambda layer, rows: layer(rows, rows, rows)[0])
    with parametrize.cached(), pytest.raises(InvalidParameterError, match="leave that block"):
        clipped(model, torch.randn(6, 3, 4), 6)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (parametrizations.spectral_norm(nn.Linear(4, 3)), "changes with every call"),
        (parametrizations.weight_norm(nn.GRU(4, 3, batch_first=True), "weight_hh_l0"), "GRU"),
    ],
)
def test_what_is_refused(layer: nn.Module, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=f"'name'.*{message}"):
        check_layer(layer, "name")


def test_a_layer_that_calls_itself_is_refused() -> None:
    layer = Again(4, 4)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    with pytest.raises(InvalidParameterError, match="calls itself"):
        clipped(layer, torch.randn(6, 4), 6)


def test_a_random_parametrisation_is_refused() -> None:
    layer = nn.Linear(4, 4)
    parametrize.register_parametrization(layer, "weight", Dropping())
    with pytest.raises(InvalidParameterError, match="draws random numbers"):
        clipped(layer, torch.randn(6, 4), 6)
