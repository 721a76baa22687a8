"""Tensors that the forward pass changes would carry something from one record to others."""

from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from matrixdp.errors import InvalidParameterError
from training.small_training import cross_entropy, private, small_data, small_plan, train


class Remembers(nn.Module):
    """Keeps a mean of what it has seen, in place or as another tensor."""

    mean: Tensor

    def __init__(self, *, in_place: bool) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))
        self._in_place = in_place

    def forward(self, inputs: Tensor) -> Tensor:
        seen = inputs.detach().mean(0)
        if self.training:
            if self._in_place:
                self.mean.mul_(0.9).add_(seen)
            else:
                self.mean = 0.9 * self.mean + seen
        return inputs - self.mean


def remembering(*, in_place: bool) -> nn.Module:
    return nn.Sequential(Remembers(in_place=in_place), nn.Linear(6, 3))


@pytest.mark.parametrize("mode", ["fast", "exact"])
@pytest.mark.parametrize("in_place", [True, False])
def test_a_buffer_that_remembers_records(mode: Any, *, in_place: bool) -> None:
    model = remembering(in_place=in_place)
    training = private(model, small_plan(lot_size=40), mode=mode)
    with pytest.raises(InvalidParameterError, match=r"buffer '0\.mean' was changed"):
        train(training)


class Averages(nn.Module):
    """Keeps a mean of what it has seen in a parameter, frozen or trained."""

    def __init__(self, *, frozen: bool) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(6), requires_grad=not frozen)
        self.layer = nn.Linear(6, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            self.mean.mul_(0.9).add_(inputs.mean(0))
        made: Tensor = self.layer(inputs - self.mean)
        return made


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("mode", ["fast", "exact"])
def test_a_parameter_that_remembers_records(mode: Any, *, frozen: bool) -> None:
    model = Averages(frozen=frozen)
    training = private(model, small_plan(lot_size=40), mode=mode)
    with pytest.raises(InvalidParameterError, match="parameter 'mean' was changed by the forward"):
        train(training)


@pytest.mark.parametrize("frozen", [True, False])
def test_a_parameter_in_a_captured_step(*, frozen: bool) -> None:
    model = Averages(frozen=frozen)
    training = private(model)
    with pytest.raises(InvalidParameterError, match="parameter 'mean' was changed by the forward"):
        training.captured_step(small_data(), batch_size=8)
    assert training.progress.steps_spent == 0


@pytest.mark.parametrize("in_place", [True, False])
def test_in_a_captured_step(*, in_place: bool) -> None:
    model = remembering(in_place=in_place)
    training = private(model)
    with pytest.raises(InvalidParameterError, match=r"buffer '0\.mean' was changed"):
        training.captured_step(small_data(), batch_size=8)
    assert training.progress.steps_spent == 0


def test_a_spectral_norm_counts_the_records() -> None:
    model = nn.Sequential(spectral_norm(nn.Linear(6, 3)))
    training = private(model, small_plan(lot_size=40), mode="exact")
    with pytest.raises(InvalidParameterError, match=r"_u' was changed"):
        train(training)


@pytest.mark.parametrize("mode", ["fast", "exact"])
def test_buffers_that_are_only_read(mode: Any) -> None:
    model = remembering(in_place=True).eval()
    training = private(model, seed=1, mode=mode)
    for lot in training.lots(small_data()):
        training.step(lot, batch_size=8)
        model[0].mean += 1.0  # type: ignore[index]  # between steps it is the user's own
    assert training.progress.steps_left == 0


class Watches(nn.Module):
    """Keeps the size of the gradients that come back, in a buffer."""

    size: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("size", torch.zeros(()))
        self.layer = nn.Linear(6, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.layer(inputs)
        outputs.register_hook(self._watch)
        return outputs

    def _watch(self, gradient: Tensor) -> None:
        self.size.add_(gradient.norm())


@pytest.mark.parametrize("mode", ["fast", "exact"])
def test_a_buffer_that_remembers_gradients(mode: Any) -> None:
    model = Watches()
    training = private(model, small_plan(lot_size=40), mode=mode)
    with pytest.raises(InvalidParameterError, match=r"buffer 'size' was changed"):
        train(training)


def test_a_captured_step_that_remembers_gradients() -> None:
    model = Watches()
    training = private(model)
    with pytest.raises(InvalidParameterError, match=r"buffer 'size' was changed"):
        training.captured_step(small_data(), batch_size=8)


class Looks(nn.Module):
    """Multiplies by a matrix that is no parameter."""

    def __init__(self, matrix: Tensor, *, changes: bool = False) -> None:
        super().__init__()
        self.register_buffer("matrix", matrix)
        self.layer = nn.Linear(6, 3)
        self._changes = changes

    def forward(self, inputs: Tensor) -> Tensor:
        matrix = self.get_buffer("matrix")
        if self._changes:
            matrix.mul_(1.5)
        return self.layer(torch.sparse.mm(matrix, inputs.T).T)


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.filterwarnings("ignore:Sparse invariant")
@pytest.mark.parametrize("mode", ["fast", "exact"])
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_sparse_buffers(mode: Any, layout: torch.layout) -> None:
    for changes in (False, True):
        model = Looks(torch.eye(6).to_sparse(layout=layout), changes=changes)
        training = private(model, small_plan(lot_size=40, steps=1), seed=1, mode=mode)
        if not changes:
            train(training)
            continue
        with pytest.raises(InvalidParameterError, match="buffer 'matrix' was changed"):
            train(training)


def test_a_sparse_buffer_in_a_captured_step() -> None:
    model = Looks(torch.eye(6).to_sparse())
    training = private(model, seed=1)
    step = training.captured_step(small_data(), batch_size=16)
    step()
    with torch.inference_mode(), pytest.raises(InvalidParameterError, match="inference_mode"):
        step()
    model.get_buffer("matrix").mul_(2.0)
    with pytest.raises(InvalidParameterError, match="'matrix' was added, removed, moved"):
        step()
    assert training.progress.steps_spent == 1


def test_a_buffer_that_cannot_tell_when_it_is_changed() -> None:
    with torch.inference_mode():
        matrix = torch.eye(6)
    model = Looks(matrix)
    with pytest.raises(InvalidParameterError, match=r"'matrix' was made within torch\.inference"):
        private(model)


@pytest.mark.parametrize("mode", ["fast", "exact"])
def test_a_buffer_that_the_losses_add(mode: Any) -> None:
    model = nn.Sequential(nn.Linear(6, 3))

    def losses(inputs: Tensor, targets: Tensor) -> Tensor:
        found = cross_entropy(model, inputs, targets)
        model.register_buffer("late", found.detach().sum())
        return found

    training = private(model, small_plan(lot_size=40), losses=losses, mode=mode)
    with pytest.raises(InvalidParameterError, match="buffer 'late' was added while the losses"):
        train(training)


class WritesData(nn.Module):
    """Keeps a mean in a buffer whose version does not tell."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))
        self.layer = nn.Linear(6, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        self.mean.data.mul_(0.9).add_(inputs.detach().mean(0))
        made: Tensor = self.layer(inputs)
        return made


def test_a_buffer_that_is_written_to_through_its_data() -> None:
    model = WritesData()
    training = private(model, seed=1)
    with pytest.raises(InvalidParameterError, match=r"buffer 'mean' was changed .* attribute data"):
        training.lots(small_data())
    assert not model.mean.any()  # no trace of made-up records
