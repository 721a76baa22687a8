"""Data that is trained on: lots, augmented images, nodes of a graph, and the noise of layers."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor, nn

from matrixdp.errors import InvalidParameterError
from matrixdp.training import GraphConvolution
from matrixdp_experiments.gradients.training import (
    _private_training,
    train_and_test,
    train_plainly,
    train_privately,
)
from matrixdp_experiments.grid import tasks
from matrixdp_experiments.grid.runs import Run, run_key
from matrixdp_experiments.grid.shuffled_training import (
    _flipped_and_shifted,
    _share_of_rate,
    _shuffled_lots,
    train_shuffled,
)
from matrixdp_experiments.grid.tasks import (
    RecordsTask,
    Task,
    load_task,
)

CPU = torch.device("cpu")


def run(**changed: Any) -> Run:
    facts: dict[str, Any] = {
        "dataset": "digits",
        "split": "test",
        "seed": 0,
        "records": 10,
        "lot_size": 4,
        "steps": 5,
        "learning_rate": 0.5,
        "momentum": 0.9,
    }
    return Run(**(facts | changed))


class ToyGCN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(6, 4)
        self.convolution = GraphConvolution(4, 2)

    def forward(self, rows: Tensor, weights: Tensor) -> Tensor:
        answers: Tensor = self.convolution(torch.tanh(self.dense(rows)), weights)
        return answers


@pytest.fixture
def graph(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Return a ring of twelve nodes, whose label is a feature of their own."""
    matrix = np.eye(12) / 2 + (np.roll(np.eye(12), 1, 0) + np.roll(np.eye(12), -1, 0)) / 4
    targets = (np.arange(12) // 6).astype(np.int64)
    features = np.random.default_rng(0).normal(size=(12, 6)).astype(np.float32)
    features[:, 0] = 4 * targets - 2
    found = SimpleNamespace(
        adjacency=sparse.csr_array(matrix),
        features=features,
        targets=targets,
        train=np.array([0, 2, 4, 6, 8, 10, 1, 7]),
        choosing=np.array([3]),
        test=np.array([3, 5, 9, 11]),
    )
    monkeypatch.setattr(tasks, "_loaded", lambda _: found)
    monkeypatch.setattr(tasks, "_model_for", lambda _: ToyGCN())
    return found


@pytest.mark.usefixtures("graph")
@pytest.mark.parametrize("train", [train_plainly, train_privately])
def test_nodes_of_a_graph_are_learned(train: Callable[[Task, Run], None]) -> None:
    torch.manual_seed(0)
    task = load_task("cora", "test", CPU)
    assert [part.tolist() for part in task.data] == [
        [0, 2, 4, 6, 8, 10, 1, 7],
        [0, 0, 0, 1, 1, 1, 0, 1],
    ]
    facts = run(dataset="cora", records=8, steps=30, clip_norm=1.0, noise_multiplier=0.1)
    train(task, facts)
    assert task.accuracy() == 1.0


@pytest.mark.usefixtures("graph")
def test_the_split_decides_what_is_judged() -> None:
    assert len(load_task("cora", "test", CPU)._judged_targets) == 4
    assert len(load_task("cora", "choosing", CPU)._judged_targets) == 1


def test_every_record_once_before_any_comes_again() -> None:
    lots = list(_shuffled_lots(10, 4, 5, torch.Generator().manual_seed(1), CPU))
    assert [len(lot) for lot in lots] == [4] * 5
    numbers = torch.cat(lots).tolist()
    assert sorted(numbers[:10]) == sorted(numbers[10:]) == list(range(10))
    assert numbers[:10] != numbers[10:]


def test_images_are_flipped_and_shifted_whole() -> None:
    images = torch.rand(40, 2, 9, 9)
    moved = _flipped_and_shifted(images, torch.Generator().manual_seed(3))
    flips, shifts = 0, set()
    for image, result in zip(images, moved, strict=True):
        found = [
            (flip, down, right)
            for flip in (False, True)
            for down in range(9)
            for right in range(9)
            if torch.equal(
                nn.functional.pad(image.flip(2) if flip else image, [4] * 4)[
                    :, down : down + 9, right : right + 9
                ],
                result,
            )
        ]
        assert len(found) == 1
        flips += found[0][0]
        shifts.add(found[0][1:])
    assert 10 < flips < 30
    assert len(shifts) > 20


def test_the_plain_rate_rises_and_falls() -> None:
    shares = [_share_of_rate(step, 100) for step in range(100)]
    assert shares[0] < 0.3
    assert max(shares) > 0.98
    assert shares[-1] < 0.01


def test_layers_have_noise_of_their_own() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    facts = run(clip_norm=0.5, noise_multiplier=3.0, layers={"0": 3.0, "1": 1e4}, sum_norm=2.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.rand(10, 3), torch.arange(10) % 2
    task = RecordsTask(model, data, data)
    training = _private_training(task, optimizer, facts)
    assert training.guarantee.shaped_layers == ("0", "1")
    assert training.plan.sum_norm == 2.0
    before = [part.detach().clone() for part in model.parameters()]
    for lot in training.lots(data):
        training.step(lot, batch_size=10)
        break
    small, _, large, _ = (
        float((part.detach() - old).std())
        for part, old in zip(model.parameters(), before, strict=True)
    )
    # Over the lot size of 4 and times the learning rate: 0.0375 against 125.
    assert 0.01 < small < 0.1
    assert 40 < large < 400


def test_independent_noise_needs_no_bound_of_the_sum() -> None:
    model = nn.Linear(3, 2)
    facts = run(clip_norm=0.5, noise_multiplier=3.0)
    data = torch.rand(10, 3), torch.arange(10) % 2
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training = _private_training(RecordsTask(model, data, data), optimizer, facts)
    assert training.plan.sum_norm is None


def test_the_data_must_be_what_was_accounted_for() -> None:
    with pytest.raises(InvalidParameterError, match="1497 records"):
        train_and_test(run(records=1500))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_repeated_step_trains_like_a_written_out_one() -> None:
    weights = []
    for device in (CPU, torch.device("cuda")):
        torch.manual_seed(0)
        inputs = torch.rand(90, 6)
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).to(device)
        data = (inputs.to(device), (3 * inputs[:, 0]).long().to(device))
        task = RecordsTask(model, data, data)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        train_shuffled(task, optimizer, seed=1, lot_size=30, steps=40)
        weights.append(next(model.parameters()).detach().cpu())
    torch.testing.assert_close(*weights, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("train", [train_plainly, train_privately])
def test_half_the_bits_learn_as_well(train: Callable[[Task, Run], None]) -> None:
    torch.manual_seed(0)
    targets = torch.arange(60) % 2
    images = torch.randn(60, 2, 8, 8) + 2.0 * targets[:, None, None, None]
    kinds: list[Any] = []
    body = (nn.Conv2d(2, 4, 3), nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model = nn.Sequential(*body, nn.Linear(4, 2))
    body[0].register_forward_hook(lambda _, __, made: kinds.append(made.dtype))
    task = RecordsTask(model, (images, targets), (images, targets), half=True)
    facts = {"records": 60, "lot_size": 20, "steps": 30, "learning_rate": 0.5}
    train(task, run(**facts, clip_norm=1.0, noise_multiplier=0.1))
    assert task.accuracy() > 0.9
    assert set(kinds) == {torch.bfloat16}
    assert task.logits(images).dtype == torch.float32
    assert body[0].weight.is_contiguous(memory_format=torch.channels_last)


def test_runs_of_sixteen_bits_have_names_of_their_own() -> None:
    # A run without the mark has the name that it had before there was one.
    assert run_key(run()) != run_key(run(half=True))
    assert b"half" not in msgspec.json.encode(run())
