"""Arguments that no training is made with: optimisers, models, groups, data and others."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn, optim
from torch.utils.data import DataLoader, TensorDataset

from matrixdp.covariance import Isotropic
from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.training import PrivateTraining
from training.small_training import (
    cross_entropy,
    private,
    sgd,
    small_data,
    small_model,
    small_plan,
)


def test_optimisers_that_do_not_fit() -> None:
    model = small_model()
    other = nn.Parameter(torch.zeros(2))
    some = list(model.parameters())
    optimizer: Any
    for optimizer, message in (
        (optim.LBFGS(some), "LBFGS"),
        (optim.SparseAdam(some), "SparseAdam"),
        (optim.SGD([*some, other], lr=0.1), "not one of the model's"),
        (optim.SGD(some[1:], lr=0.1), r"parameter '0\.weight' requires a gradient"),
        ([optim.SGD(some[:2], lr=0.1)], r"parameter '2\.weight' requires a gradient"),
        ([optim.SGD(some, lr=0.1), optim.SparseAdam(some)], "SparseAdam"),
        ([optim.SGD(some, lr=0.1), None], "optimizer is a NoneType"),
        ([], "optimizer is empty"),
        # Clipping is in float32, and no step is skipped by what its gradients are.
        (torch.amp.GradScaler("cpu"), "GradScaler, which scales losses"),
        ([sgd(model), torch.amp.GradScaler("cpu")], "GradScaler, which scales losses"),
    ):
        with pytest.raises(InvalidParameterError, match=message):
            PrivateTraining(model, model, optimizer, small_plan())


@pytest.mark.parametrize(
    ("clip_norm", "message"),
    [
        ({"0": 1.0}, r"no bound for parameter '2\.weight'"),
        ({"": 1.0, "3": 1.0}, "clip_norm names '3'"),
        ({"0": 1.0, "0.bias": 1.0, "0.weight": 1.0, "2": 1.0}, "clip_norm names '0'"),
    ],
    ids=str,
)
def test_groups_that_do_not_fit(clip_norm: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        private(small_model(), small_plan(clip_norm=clip_norm))


def test_models_that_cannot_be_trained() -> None:
    frozen = small_model()
    frozen.requires_grad_(False)
    mixing = nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3))
    empty = nn.ParameterDict({"weight": torch.empty(0)})
    with pytest.raises(InvalidParameterError, match="'weight' holds complex numbers"):
        private(nn.Linear(6, 3, dtype=torch.complex64))
    with pytest.raises(InvalidParameterError, match="nothing to train"):
        private(frozen)
    with pytest.raises(InvalidParameterError, match="'weight' is empty, and so are all"):
        private(empty)
    with pytest.raises(InvalidParameterError, match=r"BatchNorm1d.*nn\.GroupNorm"):
        private(mixing)
    with pytest.raises(InvalidParameterError, match=r"'1\.weight' has no shape.*run the model"):
        private(nn.Sequential(nn.Linear(6, 6), nn.LazyLinear(3)))


def test_a_loader_is_not_poisson() -> None:
    loader = DataLoader(TensorDataset(*small_data()), batch_size=10, shuffle=True)
    with pytest.raises(InvalidParameterError, match=r"DataLoader.*lots\(loader\.dataset\)"):
        private(small_model()).lots(loader)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "m"}, "model is a str"),
        ({"optimizer": None}, "optimizer is a NoneType"),
        ({"losses": None}, "losses is a NoneType: pass a function"),
        ({"losses": sgd(small_model())}, "losses is a SGD: pass a function"),
        ({"losses": nn.CrossEntropyLoss()}, "losses is a CrossEntropyLoss: pass a function"),
        ({"plan": {}}, "plan is a dict"),
        ({"seed": -1}, "seed=-1"),
        ({"seed": True}, "seed=True"),
        ({"layer_covariances": Isotropic(5.0)}, "layer_covariances=.*must map names of layers"),
        ({"layer_covariances": [1]}, r"layer_covariances=\[1\] must map names of layers"),
        ({"layer_covariances": {1: Isotropic(5.0)}}, "must map names of layers"),
        ({"spending": 5}, "spending=5 is no path"),
        ({"spending": b"x"}, "spending=b'x' is no path"),
        ({"spending": "x\0y"}, "is no path"),
    ],
    ids=str,
)
def test_wrong_arguments(change: dict[str, Any], message: str) -> None:
    model = small_model()
    right: dict[str, Any] = {
        "model": model,
        "losses": model,
        "optimizer": sgd(model),
        "plan": small_plan(),
    }
    with pytest.raises(InvalidParameterError, match=message):
        PrivateTraining(**(right | change))


def test_data_that_is_not_dense() -> None:
    inputs, targets = small_data()
    training = private(small_model())
    for data in (inputs.to_sparse(), (inputs, targets.to_sparse())):
        with pytest.raises(InvalidParameterError, match=r"torch\.sparse_coo.*pass dense tensors"):
            training.lots(data)
    assert training.progress.steps_spent == 0


@pytest.mark.parametrize("size", [0, -1, 1.5, True, None])
def test_sizes_of_batches(size: Any) -> None:
    training = private(small_model(), seed=1)
    lot = next(training.lots(small_data()))
    with pytest.raises(InvalidParameterError, match="batch_size="):
        training.step(lot, batch_size=size)
    training.step(lot, batch_size=1)


def test_a_list_of_tensors_is_no_tuple() -> None:
    with pytest.raises(InvalidParameterError, match=r"has 2 records.*several tensors as a tuple"):
        private(small_model()).lots([*small_data()])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (Tensor.mean, ShapeError, 'one number, but the gradient .*reduction="none"'),
        (
            lambda each: float(each.sum()),
            InvalidParameterError,
            "losses returns a float: return a tensor",
        ),
        (lambda each: each[:, None], ShapeError, r"returns shape \(4, 1\) for a batch of 4"),
        (lambda each: each[1:], ShapeError, r"returns shape \(3,\) for a batch of 4"),
        (lambda each: each.sum().expand(len(each)), InvalidParameterError, "that was expanded"),
        (lambda each: each.to(torch.complex64), InvalidParameterError, "type torch.complex64"),
    ],
)
def test_losses_of_another_shape(
    change: Callable[[Tensor], Any], error: type[Exception], message: str
) -> None:
    model = small_model()
    training = private(model, losses=lambda *batch: change(cross_entropy(model, *batch)))
    with pytest.raises(error, match=message):
        training.lots(small_data())
    assert training.progress.steps_spent == 0
