"""Bounds of norms are never below the norm, computed in float64, of what was recorded."""

import pytest

torch = pytest.importorskip("torch", reason="private training needs the extra `train`")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from matrixdp.training.kernels.bounds import NormBounds  # noqa: E402
from matrixdp.training.layers.convolution import ConvolutionUse  # noqa: E402
from matrixdp.training.layers.embedding import EmbeddingUse  # noqa: E402
from matrixdp.training.layers.gram import gram_bounds  # noqa: E402
from matrixdp.training.layers.linear import LinearUse  # noqa: E402
from matrixdp.training.layers.use import norm_bounds_of  # noqa: E402
from matrixdp.training.lots.clipping import _LOST_TO_UNDERFLOW  # noqa: E402

# Far apart enough for squares to underflow and overflow in float32.
scales = st.integers(-90, 60).map(lambda power: 2.0**power)


def random(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def cancelling(seed: int, examples: int, positions: int, width: int) -> Tensor:
    """Return rows that nearly add up to nothing."""
    rows = random(seed, examples, positions, width)
    rows[:, 1::2] = -rows[:, 0::2][:, : rows[:, 1::2].shape[1]]
    return rows * (1.0 + 1e-6 * random(seed + 1, examples, positions, 1))


def check_bounds(bounds: NormBounds, truth: Tensor) -> None:
    # As `clipped_sum` reads them: what underflow can take from a norm is added for all at once.
    found = bounds.values.double() * (1.0 + bounds.share) + _LOST_TO_UNDERFLOW
    finite = found.isfinite()  # what overflows adds nothing
    assert bool((found[finite] >= truth[finite]).all())


def linear_truth(inputs: Tensor, outputs: Tensor) -> Tensor:
    wide = torch.bmm(outputs.double().transpose(1, 2), inputs.double())
    return wide.flatten(1).norm(dim=1)


@given(st.integers(1, 9000), scales, st.integers(0, 1000))
def test_norms_of_gradients(width: int, scale: float, seed: int) -> None:
    rows = random(seed, 2, width) * scale
    check_bounds(norm_bounds_of(rows), rows.double().norm(dim=1))
    for kind in (torch.bfloat16, torch.float16):
        narrow = rows.to(kind)
        check_bounds(norm_bounds_of(narrow), narrow.double().norm(dim=1))


@given(st.sampled_from([1, 2, 5, 40]), scales, scales, st.integers(0, 1000), st.booleans())
def test_linear(positions: int, first: float, second: float, seed: int, cancel: bool) -> None:  # noqa: FBT001
    make = cancelling if cancel else random
    inputs = random(seed, 2, positions, 30) * first + first
    outputs = make(seed + 2, 2, positions, 20) * second
    layer = nn.Linear(30, 20, bias=False)
    use = LinearUse(nn.Parameter(layer.weight), None, inputs, outputs)
    check_bounds(use.norm_bounds()[use.parameters[0]], linear_truth(inputs, outputs))


@pytest.mark.parametrize("positions", [2, 4, 8])
def test_rows_that_cancel_to_the_last_bits(positions: int) -> None:
    # One direction, so that all but the last bits of the Gram form cancel: what is left of it is
    # rounding, which the bound has to add.
    signs = torch.tensor([1.0, -1.0]).repeat(positions // 2)[:, None]
    generator = torch.Generator().manual_seed(positions)
    inputs, outputs = (
        torch.randn(300, 1, 64, generator=generator)
        * (1.0 + size * torch.randn(300, positions, 1, generator=generator))
        for size in (1e-7, 3e-7)
    )
    outputs = signs * outputs
    use = LinearUse(nn.Parameter(torch.zeros(64, 64)), None, inputs, outputs)
    check_bounds(use.norm_bounds()[use.parameters[0]], linear_truth(inputs, outputs))


@pytest.mark.parametrize("width", [1, 32, 500])
def test_the_worst_rounding_of_gram_matrices(width: int) -> None:
    # A sum of k products may be off by a share of (k + 1) u: here every entry is, and in the
    # direction that makes the norm vanish. The rows are x and x, and their gradients g and
    # -(1 + change) g, all of length one: the norm is the change.
    share = (width + 1) * 2.0**-24
    change = 0.9 * (8.0 * share) ** 0.5
    off = 1.0 + share * torch.tensor([[-1.0, 1.0], [1.0, -1.0]], dtype=torch.float64)
    gradients = torch.tensor([1.0, -1.0 - change], dtype=torch.float64)
    inputs, outputs = off[None], (off * torch.outer(gradients, gradients))[None]
    assert float((inputs * outputs).sum()) < 0.0
    bounds = gram_bounds(inputs.float(), outputs.float(), 2 * width, 0.0)
    check_bounds(bounds, torch.tensor([change], dtype=torch.float64))


@given(scales, scales, st.integers(0, 1000), st.integers(1, 3), st.booleans())
def test_convolutions(first: float, second: float, seed: int, kernel: int, cancel: bool) -> None:  # noqa: FBT001
    layer = nn.Conv2d(16, 12, kernel, padding=kernel // 2, bias=False)
    inputs = (random(seed, 2, 16, 4, 4) + 1.0) * first
    with torch.no_grad():
        shape = layer(inputs).shape
    outputs = random(seed + 1, *shape)
    if cancel:
        outputs = outputs - outputs.mean((2, 3), keepdim=True)
    outputs = outputs * second
    use = ConvolutionUse(layer, inputs, outputs, 2)
    truth = []
    wide = nn.Conv2d(16, 12, kernel, padding=kernel // 2, bias=False, dtype=torch.float64)
    for rows, gradient in zip(inputs.double(), outputs.double(), strict=True):
        value = (wide(rows[None]) * gradient[None]).sum()
        truth.append(torch.autograd.grad(value, wide.weight)[0].norm())
    check_bounds(use.norm_bounds()[use.parameters[0]], torch.stack(truth))


@given(scales, st.integers(0, 1000))
def test_embeddings(scale: float, seed: int) -> None:
    tokens = torch.randint(0, 4, (2, 9), generator=torch.Generator().manual_seed(seed))
    outputs = cancelling(seed, 2, 9, 5) * scale
    table = nn.Embedding(4, 5)
    use = EmbeddingUse(table, tokens, outputs)
    truth = torch.zeros(2, 4, 5, dtype=torch.float64)
    for example in range(2):
        truth[example].index_add_(0, tokens[example], outputs[example].double())
    # Rows are kept as they were added up in float32: the bound is about those.
    kept = use.gradients()[use.parameters[0]].double().flatten(1).norm(dim=1)
    check_bounds(use.norm_bounds()[use.parameters[0]], kept)
    torch.testing.assert_close(kept, truth.flatten(1).norm(dim=1), rtol=1e-3, atol=1e-5 * scale)
