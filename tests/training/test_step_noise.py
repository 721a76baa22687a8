"""The noise of a step: its scale and shape, exact and simulated, flat and by layer."""

import math

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn, optim

from matrixdp import FrobeniusBall, baselines
from matrixdp.covariance import (
    Covariance,
    Diagonal,
    Isotropic,
    Kronecker,
    SymmetricIsotropic,
)
from matrixdp.errors import BudgetExceededError, InvalidParameterError, ShapeError
from matrixdp.training.noise.blocks import FlatBlock, LayerBlock
from training.small_training import private, small_data, small_model, small_plan

RARE = 1e-9


def noise_of_steps(
    model: nn.Module, seed: int | None, shapes: dict[str, Covariance], steps: int
) -> dict[str, Tensor]:
    """Return the noise of steps whose gradients are zero, by parameter."""
    plan = small_plan(steps=steps, lot_size=4)
    optimizer = optim.SGD(model.parameters(), lr=plan.lot_size)  # undoes the division
    training = private(
        *(model, plan),
        losses=lambda inputs, _: 0.0 * model(inputs).sum(1),
        make=lambda _: optimizer,
        seed=seed,
        # Losses that depend on no parameter are refused in the mode fast.
        mode="exact",
        layer_covariances=shapes,
    )
    drawn: dict[str, list[Tensor]] = {name: [] for name, _ in model.named_parameters()}
    for lot in training.lots(small_data()):
        before = {name: part.detach().clone() for name, part in model.named_parameters()}
        training.step(lot, batch_size=50)
        for name, part in model.named_parameters():
            drawn[name].append(before[name] - part.detach())
    return {name: torch.stack(parts).double() for name, parts in drawn.items()}


@pytest.mark.parametrize("seed", [3, None], ids=["simulated", "exact"])
def test_flat_noise_has_one_scale(seed: int | None) -> None:
    model = nn.Linear(6, 40)
    nn.init.zeros_(model.weight)  # so that float32 subtraction loses nothing
    nn.init.zeros_(model.bias)
    drawn = noise_of_steps(model, seed, {}, steps=12)
    scale = small_plan().noise_scale
    assert scale == 1.0
    for part in drawn.values():
        assert stats.kstest(part.flatten().numpy() / scale, "norm").pvalue > RARE
    together = torch.cat([part.flatten(1) for part in drawn.values()], dim=1)
    # Steps, and parameters within a step, are independent.
    assert len(torch.unique(together, dim=0)) == len(together)
    assert abs(float((together[1:] * together[:-1]).mean())) < 6.5 / math.sqrt(together.numel())


def rotation(size: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    generator = np.random.default_rng(4)
    return np.asarray(np.linalg.qr(generator.standard_normal((size, size)))[0])


SHAPES: dict[str, Covariance] = {
    "isotropic": Isotropic(1.5),
    "diagonal": Diagonal(np.linspace(1.1, 3.0, 5)[:, None]),
    "rows": Kronecker.from_directions(rows=(rotation(5), np.linspace(1.1, 3.0, 5))),
    "columns": Kronecker.from_directions(columns=(rotation(7), np.linspace(1.1, 3.0, 7))),
    "kronecker": Kronecker.from_directions(
        (rotation(5), np.linspace(1.1, 2.0, 5)), (rotation(7), np.linspace(1.0, 2.0, 7))
    ),
}


@pytest.mark.parametrize("seed", [3, None], ids=["simulated", "exact"])
@pytest.mark.parametrize("name", SHAPES)
def test_shaped_noise_has_its_covariance(name: str, seed: int | None) -> None:
    """Whitened by its covariance, the noise of weight and bias is standard normal."""
    model = small_model()
    drawn = noise_of_steps(model, seed, {"0": SHAPES[name]}, steps=40)
    matrices = torch.cat([drawn["0.weight"], drawn["0.bias"][:, :, None]], dim=2)
    white = np.stack([SHAPES[name].whiten(matrix) for matrix in matrices.numpy()])
    assert stats.kstest(white.ravel(), "norm").pvalue > RARE
    moments = white.reshape(40, -1)
    correlation = moments.T @ moments / 40 - np.eye(35)
    assert np.abs(correlation).max() < 8 / math.sqrt(40)
    # The rest has the plan's own noise.
    assert stats.kstest(drawn["2.weight"].flatten().numpy(), "norm").pvalue > RARE


def test_noise_of_another_shape_is_found_out() -> None:
    model = small_model()
    drawn = noise_of_steps(model, 3, {"0": SHAPES["diagonal"]}, steps=120)
    matrices = torch.cat([drawn["0.weight"], drawn["0.bias"][:, :, None]], dim=2)
    white = np.stack([Isotropic(1.5).whiten(matrix) for matrix in matrices.numpy()])
    assert stats.kstest(white.ravel(), "norm").pvalue < RARE


@pytest.mark.parametrize("seed", [3, None], ids=["simulated", "exact"])
def test_blocks_have_noise_of_their_own(seed: int | None) -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6))
    shapes: dict[str, Covariance] = {"0": Isotropic(1.0), "1": Isotropic(1.0)}
    drawn = noise_of_steps(model, seed, shapes, steps=1)
    together = torch.stack([drawn[f"{number}.weight"].flatten() for number in range(3)])
    # Of 36 independent pairs the correlation is beyond 0.9 with probability 1e-13.
    assert float(np.corrcoef(together.numpy())[np.triu_indices(3, 1)].max()) < 0.9


def test_a_baseline_lends_its_covariance() -> None:
    plan, model = small_plan(), small_model()
    ball = FrobeniusBall(plan.sensitivity, neighbouring="add-remove")
    mvg = baselines.MVG(ball, plan.step_budget, shape=(5, 7), norm_bound=20.0)
    training = private(model, plan, layer_covariances={"0": mvg.covariance})
    assert training.guarantee.shaped_layers == ("0",)
    assert "noise multiplier 2, shaped in 0, accounted" in str(training.guarantee)


def test_a_tight_covariance_is_accepted() -> None:
    plan, model = small_plan(noise_multiplier=1.7, clip_norm=0.3), small_model()
    ball = FrobeniusBall(plan.sensitivity, neighbouring="add-remove")
    tight = SHAPES["rows"].rescaled_for(ball, plan.step_budget)
    training = private(model, plan, layer_covariances={"0": tight})
    assert training.guarantee.shaped_layers == ("0",)


@pytest.mark.parametrize(
    ("shapes", "error", "message"),
    [
        ({"0": Isotropic(0.999)}, BudgetExceededError, r"too small.*rescaled_for"),
        ({"1": Isotropic(2.0)}, InvalidParameterError, r"layer_covariances\['1'\] has no matrix"),
        ({"9": Isotropic(2.0)}, InvalidParameterError, "no such layer"),
        ({"0": 2.0}, InvalidParameterError, r"layer_covariances\['0'\] is a float"),
        ({"0": SymmetricIsotropic(2.0)}, InvalidParameterError, "SymmetricIsotropic"),
        ({"0": Diagonal(np.full((4, 1), 2.0))}, ShapeError, r"\(5, 7\)"),
    ],
    ids=str,
)
def test_bad_noise(shapes: dict[str, Covariance], error: type[Exception], message: str) -> None:
    model = small_model()
    with pytest.raises(error, match=message):
        private(model, layer_covariances=shapes)


def test_shaped_noise_of_frozen_and_shared_layers() -> None:
    model = small_model()
    model[0].requires_grad_(False)
    with pytest.raises(InvalidParameterError, match="frozen"):
        private(model, layer_covariances={"0": Isotropic(2.0)})
    tied = nn.Sequential(nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False))
    tied[1].weight = tied[0].weight
    both: dict[str, Covariance] = {"0": Isotropic(2.0), "1": Isotropic(2.0)}
    with pytest.raises(InvalidParameterError, match="shares its parameters"):
        private(tied, layer_covariances=both)


@pytest.mark.parametrize("layer", [nn.ConvTranspose1d(6, 3, 1), nn.LayerNorm((3, 6))], ids=str)
def test_shaped_noise_of_a_layer_whose_bias_is_no_column(layer: nn.Module) -> None:
    model = nn.Sequential(layer)
    with pytest.raises(
        InvalidParameterError, match=r"layer_covariances\['0'\] is for a layer whose bias"
    ):
        private(model, layer_covariances={"0": Isotropic(2.0)})


def test_blocks_give_back_what_they_gather() -> None:
    layer = nn.Conv2d(3, 4, (2, 5))
    layer.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    sums = {part: torch.randn(part.shape) for part in layer.parameters()}
    for block in (FlatBlock(list(layer.parameters())), LayerBlock(layer, "layer")):
        matrix = block.gathered(sums)
        assert matrix.numel() == 4 * 31
        back = dict(block.scattered(matrix))
        assert all(torch.equal(back[part], total) for part, total in sums.items())
        assert not block.gathered({}).any()
    assert LayerBlock(layer, "layer").shape == (4, 31)
    kernel = LayerBlock(layer, "layer").gathered(sums)
    weight, bias = sums.values()
    assert torch.equal(kernel[:, :30].reshape(4, 3, 2, 5), weight)
    assert torch.equal(kernel[:, 30], bias)
