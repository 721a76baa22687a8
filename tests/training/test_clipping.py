"""Clipped sums against brute force: one backward pass for each example."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="private training needs the extra `train`")

from torch import Tensor, nn  # noqa: E402

from matrixdp.training.layers.use import without  # noqa: E402
from training.brute_force import (  # noqa: E402
    check_against_brute_force,
    check_every_gradient,
    clipped,
    seeded,
)


class SharedTwice(nn.Module):
    """One layer used twice, and one weight used by two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.twice = nn.Linear(5, 5)
        self.first = nn.Linear(5, 5)
        self.second = nn.Linear(5, 5, bias=False)
        self.second.weight = self.first.weight

    def forward(self, inputs: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(self.twice(torch.tanh(self.twice(inputs))))))


class Scale(nn.Module):
    """A layer of a kind that is not known."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.randn(width))
        self.inner = nn.Linear(width, width)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.inner(inputs * self.factor) * self.factor


def lenet() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh()),
        nn.Linear(84, 10),
    )


def normed() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(4, 8), nn.ReLU(inplace=True)),
        *(nn.Conv2d(8, 8, 3, stride=2), nn.InstanceNorm2d(8, affine=True), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(8 * 9, 12), nn.LayerNorm(12), nn.Linear(12, 3)),
    )


@pytest.mark.parametrize("views", [1, 3])
@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lenet, (1, 28, 28)),
        (normed, (3, 8, 8)),
        (lambda: nn.Linear(7, 4), (7,)),
        (lambda: nn.Linear(30, 20), (3, 30)),
        (lambda: nn.Linear(3, 2), (9, 3)),
        (lambda: nn.LayerNorm((4, 5)), (3, 4, 5)),
        (lambda: nn.GroupNorm(2, 6), (6, 5)),
        (lambda: nn.InstanceNorm1d(6, affine=True), (6, 5)),
        (SharedTwice, (5,)),
        (lambda: nn.LSTM(4, 3, batch_first=True), (6, 4)),
        (lambda: nn.LSTM(4, 3, num_layers=2, bidirectional=True, batch_first=True), (6, 4)),
        (lambda: nn.LSTM(4, 3, bias=False, bidirectional=True, batch_first=True), (6, 4)),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_models(make: Callable[[], nn.Module], shape: tuple[int, ...], views: int) -> None:
    generator = seeded(1)
    model = make()
    inputs = torch.randn(4 * views, *shape, generator=generator)
    check_against_brute_force(model, inputs, 4, bounds=(0.7,))


def test_tokens() -> None:
    generator = seeded(2)
    model = nn.Sequential(nn.Embedding(11, 4, padding_idx=0), nn.Flatten(), nn.Linear(24, 2))
    check_against_brute_force(
        model, torch.randint(0, 11, (8, 6), generator=generator), 4, bounds=(0.5,)
    )


@pytest.mark.parametrize("padding", [None, -1])
def test_tokens_of_a_table_that_was_put_in_place(padding: int | None) -> None:
    # torch goes by the table, and the layer's own numbers stay what they were.
    generator = seeded(2)
    layer = nn.Embedding(5, 3)
    layer.weight, layer.padding_idx = nn.Parameter(torch.randn(11, 4)), padding
    model = nn.Sequential(layer, nn.Flatten(), nn.Linear(24, 2))
    check_against_brute_force(
        model, torch.randint(0, 11, (8, 6), generator=generator), 8, bounds=(0.5,)
    )


def test_the_second_run_of_an_lstm_leaves_cudnn_out(monkeypatch: pytest.MonkeyPatch) -> None:
    # It would warn of weights that are not in one piece, about which nobody can do anything.
    plain, seen = torch._VF.lstm, []

    def lstm(*arguments: Any) -> Any:
        seen.append(torch.backends.cudnn.enabled)
        return plain(*arguments)

    monkeypatch.setattr(torch._VF, "lstm", lstm)
    clipped(nn.LSTM(3, 4, num_layers=2, batch_first=True), torch.randn(2, 5, 3), 2)
    assert seen == [True, False, False]
    assert torch.backends.cudnn.enabled


def test_layers_without_a_rule() -> None:
    generator = seeded(3)
    model = nn.Sequential(nn.Linear(4, 5), Scale(5), nn.Linear(5, 2))
    check_against_brute_force(model, torch.randn(6, 4, generator=generator), 3, bounds=(0.3,))


def test_frozen_parameters_and_groups() -> None:
    generator = seeded(4)
    model = lenet()
    parameters = dict(model.named_parameters())
    for name in ("0.weight", "7.bias"):
        parameters[name].requires_grad_(False)
    inputs = torch.randn(5, 1, 28, 28, generator=generator)
    check_against_brute_force(
        model, inputs, bounds=(0.2, 0.9), group_of=lambda name: int(name.startswith("11"))
    )


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 4, "padding": "same", "dilation": (2, 3)},
        {"kernel_size": (2, 3), "padding": "same"},
        {"kernel_size": 3, "padding": (2, 1), "stride": (3, 2), "dilation": (1, 2)},
        {"kernel_size": 7, "padding": 3},  # larger than the image
        {"kernel_size": 2, "padding": "same", "padding_mode": "circular"},
        {"kernel_size": 1},
    ],
    ids=str,
)
def test_convolutions_by_gram_matrices(options: dict[str, Any]) -> None:
    # So many channels, and so few positions, that Gram matrices are cheaper; views are not.
    seeded(5)
    layer = nn.Conv2d(48, 48, **options)
    for examples in (4, 2):
        check_against_brute_force(
            layer, torch.randn(4, 48, 5, 6), examples, norms_rtol=1e-3, bounds=(0.7,)
        )


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("kind", [nn.Conv1d, nn.Conv2d])
@pytest.mark.parametrize(
    ("made", "changed"),
    [
        ({}, {"padding": (1,)}),
        ({}, {"padding": 1}),
        ({}, {"padding": [1]}),
        ({"padding": 1}, {"padding": (0,)}),
        ({"padding": 1}, {"padding": "valid"}),
        ({"padding": 1}, {"padding": (2,), "dilation": (2,)}),
        ({"padding": 1, "stride": 2}, {"padding": 2, "dilation": 2, "stride": 1}),
        ({}, {"stride": 2}),
        ({"stride": 2}, {"padding": (1,)}),
        ({}, {"padding": "same"}),
        ({"kernel_size": 4}, {"padding": "same", "dilation": 3}),
        ({"padding": "same"}, {"padding": 0}),
        ({"padding": "same"}, {"dilation": (2,)}),
        ({"padding": 1, "padding_mode": "circular"}, {"padding": (0,)}),
        ({"padding": 1}, {"padding_mode": "reflect", "padding": 0}),
        ({"padding": 1, "padding_mode": "circular"}, {"padding_mode": "zeros", "padding": 2}),
        ({}, {"kernel_size": (5,)}),
    ],
    ids=str,
)
def test_convolutions_that_were_changed(
    kind: type[nn.Module], made: dict[str, Any], changed: dict[str, Any]
) -> None:
    seeded(6)
    axes = 1 if kind is nn.Conv1d else 2
    # With many channels and few positions the norms come from Gram matrices.
    for channels, length in ((3, 9), (48, 5)):
        layer = kind(channels, channels, **({"kernel_size": 3} | made))
        for name, value in changed.items():
            setattr(layer, name, value * axes if isinstance(value, tuple) else value)
        inputs = torch.randn(4, channels, *[length] * (axes - 1), length + 1)
        check_every_gradient(layer, inputs, 4)
        check_against_brute_force(layer, inputs, norms_rtol=1e-3, bounds=(0.7,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_left_out_keeps_its_order_in_memory(dtype: Any) -> None:
    images = torch.ones(2, 3, 4, 4, dtype=dtype).to(memory_format=torch.channels_last)
    images[0] = torch.inf
    found = without(images, torch.tensor([True, False]))
    assert found.stride() == images.stride()
    assert found.dtype == dtype
    assert found[0].abs().max() == 0
    assert torch.equal(found[1], images[1])
