"""The noise of steps where the sums are: the same bits, and no wait.

On a machine without a GPU the processor plays one.
"""

from itertools import count
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn
from torch.nn import functional

from matrixdp.covariance import Diagonal, Kronecker
from matrixdp.errors import InvalidParameterError, MatrixDPError
from matrixdp.noise import ReleaseKey
from matrixdp.noise.application.tensors import NoiseOnTheWay, TensorNoise, cuda_kernel
from matrixdp.noise.kernels.cuda.kernel import TensorKernel, UndecidedList
from matrixdp.training import PrivateTraining, TrainingPlan
from matrixdp.training.noise import block_noise
from reference.gpu_kernels import has_gpu, host_kernel

DEVICE = torch.device("cuda" if has_gpu() else "cpu")
PLAN = TrainingPlan(
    records=64, lot_size=16, steps=3, clip_norm=1.0, noise_multiplier=1.0, delta=1e-5
)
LAYER = np.random.default_rng(1).uniform(1.2, 2.0, (6, 9)) * PLAN.noise_scale


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the processor play the GPU if there is none."""
    if has_gpu():
        cuda_kernel(0)  # which is tried when it is made, and that draws noise as well
        return
    noise_on = block_noise._noise_on

    def on_gpu(device: torch.device, mechanism: Any, shape: tuple[int, int]) -> Any:
        assert device.type == "cpu"
        return noise_on(torch.device("cuda"), mechanism, shape)

    monkeypatch.setattr(block_noise, "_noise_on", on_gpu)
    monkeypatch.setattr(block_noise, "_kernel_of", lambda _device: host_kernel())


def restart_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = count(1)

    def generate(_kind: type[ReleaseKey]) -> ReleaseKey:
        return ReleaseKey.from_bytes(next(numbers).to_bytes(32, "big"))

    monkeypatch.setattr(ReleaseKey, "generate", classmethod(generate))


def trained(**options: Any) -> list[Tensor]:
    """Return the weights after some steps on lots that hold everybody."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3)).to(DEVICE)
    inputs = torch.randn(64, 8, generator=torch.Generator().manual_seed(2)).to(DEVICE)
    targets = (torch.arange(64) % 3).to(DEVICE)

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(model(rows), labels, reduction="none")

    plan = TrainingPlan(
        records=64, lot_size=64, steps=3, clip_norm=1.0, noise_multiplier=1.0, delta=1e-5
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    training = PrivateTraining(model, losses, optimizer, plan, **options)
    for lot in training.lots((inputs, targets)):
        training.step(lot, batch_size=64)
    return [part.detach().cpu() for part in model.parameters()]


@pytest.mark.parametrize(
    "shapes",
    [{}, {"0": Diagonal(LAYER)}, {"0": Kronecker(rows=np.eye(6) * 4 * PLAN.noise_scale**2)}],
    ids=["none", "diagonal", "directional"],
)
@pytest.mark.usefixtures("played")
def test_weights_are_those_with_noise_of_the_processor(
    monkeypatch: pytest.MonkeyPatch, shapes: dict[str, Any]
) -> None:
    restart_keys(monkeypatch)
    begun = []
    begin = TensorNoise.begin

    def counted(self: TensorNoise, *arguments: Any, **options: Any) -> NoiseOnTheWay:
        begun.append(self)
        return begin(self, *arguments, **options)

    monkeypatch.setattr(TensorNoise, "begin", counted)
    found = trained(layer_covariances=shapes)
    blocks = 1 + ("0" in shapes and isinstance(shapes["0"], Diagonal))
    assert len(begun) == 3 * blocks
    monkeypatch.setattr(block_noise, "_noise_on", lambda *_: None)
    restart_keys(monkeypatch)
    expected = trained(layer_covariances=shapes)
    assert len(begun) == 3 * blocks
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


@pytest.mark.usefixtures("played")
def test_nothing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def waited(_self: UndecidedList) -> None:
        pytest.fail("a step waits for its noise")

    drawn = []
    begin = TensorNoise.begin

    def counted(self: TensorNoise, *arguments: Any, **options: Any) -> NoiseOnTheWay:
        drawn.append(self)
        return begin(self, *arguments, **options)

    monkeypatch.setattr(UndecidedList, "check", waited)
    monkeypatch.setattr(TensorNoise, "begin", counted)
    trained(layer_covariances={"0": Diagonal(LAYER)})
    assert len(drawn) == 3 * 2  # or nothing would have been there to wait for


@pytest.mark.usefixtures("played")
def test_noise_that_fails_leaves_nothing_to_train_on(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = TensorKernel.__call__

    def failing(self: TensorKernel, *arguments: Any) -> None:
        kernel(self, *arguments)
        arguments[4].tensor[0] = 1 << 40

    monkeypatch.setattr(TensorKernel, "__call__", failing)
    with pytest.raises(InvalidParameterError, match="holds NaN"):
        trained()


@pytest.mark.usefixtures("played")
def test_without_kernels_the_processor_draws_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_device: torch.device) -> None:
        raise MatrixDPError("NVRTC cannot be loaded")

    monkeypatch.setattr(block_noise, "_kernel_of", fail)
    restart_keys(monkeypatch)
    with pytest.warns(RuntimeWarning, match=r"NVRTC .* on the processor, which takes long"):
        found = trained()
    monkeypatch.setattr(block_noise, "_noise_on", lambda *_: None)
    restart_keys(monkeypatch)
    for one, other in zip(found, trained(), strict=True):
        assert torch.equal(one, other)
