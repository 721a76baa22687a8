"""The models: their layers, their sizes, that they learn, and that private training takes them."""

import pytest
import torch
from torch import Tensor, nn, optim
from torch.nn import functional

from matrixdp.errors import InvalidParameterError
from matrixdp.training import Neighbourhoods, PrivateTraining, TrainingPlan
from matrixdp_experiments.models import FeatureNetwork, MixedGCN, model_for
from matrixdp_experiments.models.networks import MeanStates

INPUTS = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32), "svhn": (3, 32, 32), "adult": (105,)}
LARGE = ("cifar10", "svhn")
CLASSES = {"mnist": 10, "cifar10": 10, "svhn": 10, "adult": 2}
# What one record of each layer is, as the network runs.
SHAPES = {
    "mnist": [(6, 28, 28), (16, 10, 10), (120,), (84,), (10,)],
    "cifar10": [
        *[(64, 32, 32)] * 2, *[(128, 16, 16)] * 2, *[(256, 8, 8)] * 3, *[(512, 4, 4)] * 3,
        *[(512, 2, 2)] * 3, (512,), (10,),
    ],
    "svhn": [
        (64, 16, 16), (192, 8, 8), (384, 4, 4), (256, 4, 4), (256, 4, 4), (4096,), (512,), (10,),
    ],
    "adult": [(12,), (2,)],
}  # fmt: skip
FEATURES = {"mnist": 400, "cifar10": 512, "svhn": 1_024}


def some_records(dataset: str, count: int) -> tuple[Tensor, Tensor]:
    """Return images of a few large patches (noise would all look the same), or rows of numbers."""
    generator = torch.Generator().manual_seed(7)
    targets = torch.randint(0, CLASSES[dataset], (count,), generator=generator)
    if dataset == "adult":
        return torch.rand(count, *INPUTS[dataset], generator=generator), targets
    channels, height, _ = INPUTS[dataset]
    patches = 2 * torch.rand(count, channels, 4, 4, generator=generator) - 1
    return functional.interpolate(patches, size=height), targets


def new_model(dataset: str) -> nn.Module:
    torch.manual_seed(1)
    return model_for(dataset)


@pytest.mark.parametrize("dataset", INPUTS)
def test_layers(dataset: str) -> None:
    model = new_model(dataset)
    found: list[tuple[int, ...]] = []
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.register_forward_hook(lambda *parts: found.append(tuple(parts[2].shape[1:])))
    assert model(some_records(dataset, 2)[0]).shape == (2, CLASSES[dataset])
    assert found == SHAPES[dataset]


@pytest.mark.parametrize("dataset", FEATURES)
def test_released_features(dataset: str) -> None:
    model = new_model(dataset)
    assert isinstance(model, FeatureNetwork)
    inputs = 50 * some_records(dataset, 3)[0]
    with torch.no_grad():
        features = model.features(inputs)
        torch.testing.assert_close(model.head(features), model(inputs))
    assert features.shape == (3, FEATURES[dataset])
    assert float(features.abs().max()) <= 1.0
    # Both signs, so that it is a tanh and not a ReLU that bounds them.
    assert float(features.min()) < 0.0 < float(features.max())


@pytest.mark.parametrize(
    ("dataset", "count"),
    [
        ("mnist", 61_706),
        ("cifar10", 14_990_922),
        ("svhn", 8_552_778),
        ("adult", 1_298),
        ("cora", 23_063),
    ],
)
def test_parameters(dataset: str, count: int) -> None:
    # By hand, from the layers: weights, biases, and two numbers for each channel of a GroupNorm.
    assert sum(part.numel() for part in model_for(dataset).parameters()) == count


@pytest.mark.parametrize(
    ("dataset", "count", "rate", "steps"),
    [
        ("mnist", 16, 1e-2, 40),
        pytest.param("cifar10", 3, 3e-4, 12, marks=pytest.mark.thorough),
        ("svhn", 8, 3e-4, 12),
        ("adult", 16, 3e-2, 100),
    ],
)
def test_one_batch_can_be_learnt(dataset: str, count: int, rate: float, steps: int) -> None:
    model = new_model(dataset)
    inputs, targets = some_records(dataset, count)
    optimizer = optim.Adam(model.parameters(), lr=rate)
    for _ in range(steps):
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    with torch.no_grad():
        assert float(functional.cross_entropy(model(inputs), targets)) < 0.3


@pytest.mark.parametrize(
    "dataset",
    [pytest.param(name, marks=[pytest.mark.thorough] * (name in LARGE)) for name in INPUTS],
)
def test_private_training(dataset: str) -> None:
    model = new_model(dataset)
    before = [part.detach().clone() for part in model.parameters()]
    data = some_records(dataset, 6)
    plan = TrainingPlan(
        records=6, lot_size=3, steps=1, clip_norm=1.0, noise_multiplier=1.0, delta=1e-3
    )

    def losses(inputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(model(inputs), targets, reduction="none")

    training = PrivateTraining(model, losses, optim.SGD(model.parameters(), lr=0.1), plan, seed=3)
    for lot in training.lots(data):
        training.step(lot, batch_size=3)
    after = list(model.parameters())
    # Noise alone moves every parameter, so each of them is part of the sum.
    assert all(not torch.equal(*pair) for pair in zip(before, after, strict=True))


def ring(nodes: int) -> Tensor:
    """Return the normalised adjacency of a ring."""
    itself = torch.eye(nodes)
    near: Tensor = (itself + itself.roll(1, 0) + itself.roll(-1, 0)) / 3
    return near


def test_graph_model_of_cora() -> None:
    model = new_model("cora")
    assert isinstance(model, MixedGCN)
    adjacency, features = ring(8), torch.rand(8, 1_433)
    nodes = torch.tensor([5, 0, 3])
    logits = model(*Neighbourhoods(adjacency).rows(features, nodes))
    assert logits.shape == (3, 7)
    for given in (adjacency, adjacency.to_sparse_coo()):
        torch.testing.assert_close(model.on_whole_graph(features, given)[nodes], logits)


def test_graph_model_learns_and_trains_privately() -> None:
    model = new_model("cora")
    near, features = Neighbourhoods(ring(8)), torch.eye(8, 1_433)
    nodes, targets = torch.arange(8), torch.arange(8) % 7
    optimizer = optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
    for _ in range(100):
        optimizer.zero_grad()
        functional.cross_entropy(model(*near.rows(features, nodes)), targets).backward()
        optimizer.step()
    loss = functional.cross_entropy(model(*near.rows(features, nodes)), targets)
    assert float(loss.detach()) < 0.1
    optimizer.zero_grad()
    plan = TrainingPlan(
        records=8, lot_size=4, steps=2, clip_norm=1.0, noise_multiplier=1.0, delta=1e-3
    )

    def losses(some: Tensor, classes: Tensor) -> Tensor:
        logits = model(*near.rows(features, some))
        return functional.cross_entropy(logits, classes, reduction="none")

    training = PrivateTraining(model, losses, optimizer, plan, seed=3)
    for lot in training.lots((nodes, targets)):
        training.step(lot, batch_size=3)
    assert training.progress.steps_left == 0


def test_unknown_data_sets() -> None:
    with pytest.raises(InvalidParameterError, match="no model for the data set 'letters'"):
        model_for("letters")


def test_features_of_texts() -> None:
    torch.manual_seed(0)
    model = model_for("imdb")
    assert isinstance(model, FeatureNetwork)
    words = torch.randint(1, 20_000, (3, 12))
    words[1, 5:] = 0
    words[2] = 0
    with torch.no_grad():
        features = model.features(words)
        assert features.shape == (3, 150)
        assert float(features.abs().max()) < 1.0
        assert float(features[2].abs().max()) == 0.0  # no word, no features
        # Every record by itself, and 75 units that have read what comes before.
        torch.testing.assert_close(model.features(words[1:2])[0], features[1])
        other = words[:1].clone()
        other[0, -1] = 1 + other[0, -1] % 100
        body = model.body
        assert isinstance(body, MeanStates)
        states, _ = body.lstm(body.embedding(torch.cat([words[:1], other])))
        torch.testing.assert_close(states[0, :-1, :75], states[1, :-1, :75])
        assert not torch.allclose(states[0, :-1, 75:], states[1, :-1, 75:])
        assert model(words).shape == (3, 2)
    assert sum(part.numel() for part in model.parameters()) == 2_106_502
