"""Layers that are traced as a whole: attention and recurrent layers, against brute force."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.backends import cudnn, mha

from matrixdp.training.layers import per_record
from matrixdp.training.layers.tracing import Tracer
from training.brute_force import (
    brute_force,
    check_against_brute_force,
    check_every_gradient,
    clipped,
    one_loss_per_row,
)
from training.chosen_way import BY_LAYER, Calls, check_training
from training.small_training import private

pytestmark = [
    # Of torch itself.
    pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN"),
    pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask"),
]

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


class Attends(nn.Module):
    """Attention between layers, from rows to rows; masks and other widths as a test wants them."""

    def __init__(self, layer: nn.MultiheadAttention, width: int, **options: Any) -> None:
        super().__init__()
        self.first = nn.Linear(width, layer.embed_dim)
        self.keys = nn.Linear(width, layer.kdim)
        self.values = nn.Linear(width, layer.vdim)
        self.layer = layer
        self.options = options
        self.three = False  # a mask for each row and head
        self.padded = False
        self.itself = False  # whether query, key and value are the same tensor
        self.called = 1

    def forward(self, inputs: Tensor) -> Tensor:
        query, key, value = self.first(inputs), self.keys(inputs), self.values(inputs)
        if self.itself:
            key = value = query
        options = {
            name: part.to(inputs) if isinstance(part, Tensor) and part.is_floating_point() else part
            for name, part in self.options.items()
        }
        if self.padded:
            # By the row alone, and never all of it.
            options["key_padding_mask"] = inputs[..., 0] > 0.5
            options["key_padding_mask"][:, 0] = False
        if self.three:
            scores = inputs[..., :1] - inputs[..., 0].unsqueeze(1)
            options["attn_mask"] = scores.repeat_interleave(self.layer.num_heads, 0).detach()
        for _ in range(self.called - 1):
            query = query + self.layer(query, key, value, **options)[0]
        made, scores = self.layer(query, key, value, **options)
        if scores is None:
            return made
        return torch.cat([made.flatten(1), scores.flatten(1)], dim=1)


class Remembers(nn.Module):
    """A recurrent layer after another one, whose states come from the rows as well."""

    def __init__(self, layer: nn.RNNBase, *, started: bool, parts: tuple[int, ...]) -> None:
        super().__init__()
        self.first = nn.Linear(3, layer.input_size)
        self.layer = layer
        self.started = started
        self.parts = parts  # the outputs that the losses depend on

    def forward(self, inputs: Tensor) -> Tensor:
        states: Any = None
        if self.started:
            number = self.layer.num_layers * (2 if self.layer.bidirectional else 1)
            start = torch.tanh(inputs.sum((1, 2)))[None, :, None]
            sizes = [self.layer.proj_size or self.layer.hidden_size, self.layer.hidden_size]
            hidden, cell = (start.expand(number, -1, size).contiguous() for size in sizes)
            states = (hidden, 2.0 * cell) if isinstance(self.layer, nn.LSTM) else hidden
        output, last = self.layer(self.first(inputs), states)
        last = last if isinstance(last, tuple) else (last,)
        all_parts = (output, *(part.transpose(0, 1) for part in last))
        return torch.cat([all_parts[part].flatten(1) for part in self.parts], dim=1)


@st.composite
def attentions(draw: st.DrawFn) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(draw(st.integers(0, 1000)))
    heads, width = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    itself = draw(st.booleans())
    layer = nn.MultiheadAttention(
        heads * draw(st.integers(1, 3)),
        heads,
        bias=draw(st.booleans()),
        add_bias_kv=draw(st.booleans()),
        add_zero_attn=draw(st.booleans()),
        kdim=None if itself else draw(st.sampled_from([None, 2, 5])),
        vdim=None if itself else draw(st.sampled_from([None, 3])),
        batch_first=True,
    )
    length = draw(st.integers(1, 6))  # also as long as the batch
    options: dict[str, Any] = {"need_weights": draw(st.booleans())}
    mask = draw(st.sampled_from(["none", "shared", "causal", "three"]))
    if mask == "shared":
        options["attn_mask"] = torch.randn(length, length)
    if mask == "causal":
        options["attn_mask"] = torch.ones(length, length, dtype=torch.bool).triu(1)
        options["is_causal"] = draw(st.booleans())
    if options["need_weights"]:
        options["average_attn_weights"] = draw(st.booleans())
    model = Attends(layer, width, **options)
    model.three, model.padded, model.itself = mask == "three", draw(st.booleans()), itself
    for unused in (model.keys, model.values) if itself else ():
        unused.requires_grad_(False)
    model.called = draw(st.integers(1, 2))
    model.train(draw(st.booleans()))
    return model, torch.randn(6, length, width)


@settings(max_examples=50)
@given(attentions(), st.sampled_from([2, 3, 6]))
def test_attention(drawn: tuple[nn.Module, Tensor], examples: int) -> None:
    model, inputs = drawn
    check_every_gradient(model, inputs, examples)
    check_against_brute_force(model, inputs, examples, bounds=(0.8,))


@st.composite
def memories(draw: st.DrawFn) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(draw(st.integers(0, 1000)))
    kind: Any = draw(st.sampled_from([nn.GRU, nn.RNN, nn.LSTM]))
    options: dict[str, Any] = {
        "num_layers": draw(st.integers(1, 2)),
        "bias": draw(st.booleans()),
        "bidirectional": draw(st.booleans()),
    }
    if kind is nn.LSTM:
        options["proj_size"] = draw(st.integers(1, 2))
    if kind is nn.RNN:
        options["nonlinearity"] = draw(st.sampled_from(["tanh", "relu"]))
    layer = kind(draw(st.integers(1, 3)), 3, batch_first=True, **options)
    indices = range(3 if kind is nn.LSTM else 2)
    parts = draw(st.lists(st.sampled_from(indices), min_size=1, unique=True))
    model = Remembers(layer, started=draw(st.booleans()), parts=tuple(parts))
    return model, torch.randn(6, draw(st.integers(1, 6)), 3)


@settings(max_examples=50)
@given(memories(), st.sampled_from([2, 3, 6]))
def test_recurrent_layers(drawn: tuple[nn.Module, Tensor], examples: int) -> None:
    model, inputs = drawn
    check_every_gradient(model, inputs, examples)
    check_against_brute_force(model, inputs, examples, bounds=(0.8,))


def test_recurrent_layers_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    # As where the layer runs in fused kernels.
    monkeypatch.delattr(per_record, "_at_once")
    torch.manual_seed(1)
    layer = nn.GRU(2, 3, num_layers=2, bidirectional=True, batch_first=True)
    model = Remembers(layer, started=True, parts=(0, 1))
    check_against_brute_force(model, torch.randn(6, 4, 3), 3, bounds=(0.8,))


def encoder(**options: Any) -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, batch_first=True, **options)


def hooked() -> nn.LSTM:
    """Return a layer whose input is changed on the way."""
    layer = nn.LSTM(2, 3, batch_first=True)
    layer.register_forward_pre_hook(lambda _, given: (2.0 * given[0], *given[1:]))
    return layer


class Decodes(nn.Module):
    """A decoder that looks at its own input as memory, with a causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerDecoderLayer(4, 2, 6, dropout=0.0, batch_first=True)

    def forward(self, inputs: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(inputs.shape[1]).to(inputs)
        made: Tensor = self.layer(inputs, inputs.square(), tgt_mask=mask, tgt_is_causal=True)
        return made


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("examples", [6, 2])
@pytest.mark.parametrize(
    "make",
    [
        encoder,
        lambda: encoder(norm_first=True, activation="gelu"),
        lambda: nn.TransformerEncoder(encoder(), 2, enable_nested_tensor=False),
        Decodes,
        lambda: Remembers(nn.GRU(2, 3, 2, batch_first=True), started=True, parts=(0, 1)),
        lambda: Remembers(hooked(), started=True, parts=(0, 2)),
        lambda: Remembers(nn.RNN(2, 3, batch_first=True), started=False, parts=(1,)),
        lambda: Remembers(nn.LSTM(2, 3, batch_first=True, proj_size=2), started=False, parts=(0,)),
    ],
)
def test_models(make: Callable[[], nn.Module], examples: int, device: str) -> None:
    torch.manual_seed(2)
    model = make()
    width = 3 if isinstance(model, Remembers) else 4
    inputs = torch.randn(6, 5, width).to(device)
    # In float32 throughout, also where a GPU would run recurrent layers in TF32.
    with cudnn.flags(enabled=True, allow_tf32=False):
        check_every_gradient(model.to(device), inputs, examples)
        check_against_brute_force(model, inputs, examples, bounds=(0.7,))


def test_a_mask_as_long_as_the_batch_is_shared() -> None:
    torch.manual_seed(3)
    layer = nn.MultiheadAttention(4, 2, batch_first=True)
    model = Attends(layer, 4, attn_mask=torch.randn(6, 6), need_weights=False)
    check_against_brute_force(model, torch.randn(6, 6, 4), bounds=(0.5,))


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("trained", ["in_proj", "out_proj", "bias"])
def test_frozen_parameters_inside(trained: str, *, train: bool) -> None:
    torch.manual_seed(4)
    # As the first layer: nothing before it needs a gradient. In eval() torch has a faster kernel.
    model = nn.Sequential(encoder().train(train), nn.Flatten(), nn.Linear(12, 2))
    for name, part in model.named_parameters():
        part.requires_grad_("self_attn" not in name or trained in name)
    check_against_brute_force(model, torch.randn(6, 3, 4), 3, bounds=(0.5,))


def masked(layer: nn.Module, rows: Tensor) -> Tensor:
    # The last record of two has nothing to attend to.
    mask = (rows[:, :, 0] > 0.5) | (torch.arange(len(rows), device=rows.device) % 2 == 1)[:, None]
    mask[::2, 0] = False
    made: Tensor = layer(rows, rows, rows, key_padding_mask=mask, need_weights=False)[0]
    return made


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("first", [True, False])
def test_attention_to_nothing(device: str, *, first: bool) -> None:
    torch.manual_seed(9)
    attends = Calls(nn.MultiheadAttention(4, 2, batch_first=True), masked)
    before: list[nn.Module] = [nn.Linear(4, 4)] if first else []
    model = nn.Sequential(*before, attends, nn.Tanh()).eval().to(device)
    inputs = torch.randn(6, 3, 4, device=device)
    with Tracer(model, list(model.parameters())).on():
        traced = model(inputs)
    torch.testing.assert_close(traced, model(inputs), rtol=1e-5, atol=1e-6)
    assert mha.get_fastpath_enabled()
    # Two rows for each record, as the mask depends on where a row is.
    check_every_gradient(model, inputs, 3)
    check_against_brute_force(model, inputs, 3, bounds=(0.7,))
    assert mha.get_fastpath_enabled()


def doubled(layer: nn.Module, number: int) -> nn.Module:
    """Double the first of the inputs by position, and leave out others that the call had not."""
    layer.register_forward_pre_hook(lambda _, given: (2.0 * given[0], *given[1:number]))
    return layer


@pytest.mark.parametrize(
    "model",
    [
        Calls(doubled(nn.GRU(4, 4, batch_first=True), 1), lambda layer, x: layer(x)[0]),
        Calls(
            doubled(nn.RNN(4, 4, batch_first=True), 1),
            lambda layer, x: layer(x, hx=torch.tanh(x[:, 0])[None])[0],
        ),
        Calls(
            doubled(nn.MultiheadAttention(4, 2, batch_first=True), 3),
            lambda layer, x: layer(x, x, x, key_padding_mask=x[..., 0] > 1.5, need_weights=False)[
                0
            ],
        ),
    ],
    ids=lambda model: type(model.layer).__name__,
)
def test_hooks_that_change_inputs_by_position(model: nn.Module) -> None:
    torch.manual_seed(8)
    check_every_gradient(model, torch.randn(6, 5, 4), 3)


def test_a_weight_that_is_shared_with_the_inside() -> None:
    torch.manual_seed(5)
    attends = encoder()
    tied = nn.Linear(4, 4, bias=False)
    tied.weight = attends.get_parameter("self_attn.out_proj.weight")
    inputs = torch.randn(6, 3, 4)
    check_against_brute_force(nn.Sequential(tied, attends), inputs, 3, bounds=(0.5,))
    # That a layer inside of another one is also called by itself is not seen layer by layer.
    model = nn.Sequential(tied, attends, attends.get_submodule("self_attn.out_proj"))
    assert check_training(model, inputs, 3) != BY_LAYER


def test_no_example_counts_for_more_than_its_bound() -> None:
    torch.manual_seed(6)
    models = [
        encoder(),
        Remembers(nn.GRU(2, 3, batch_first=True), started=True, parts=(0, 1)),
    ]
    for model in models:
        inputs = 5.0 * torch.randn(1, 5, 3 if isinstance(model, Remembers) else 4)
        for bound in (1e-6, 1e-3, 0.5):
            sums = clipped(model, inputs, 1, bounds=(bound,)).sums
            norm = torch.cat([part.double().flatten() for part in sums.values()]).norm()
            assert 0.9 * bound <= float(norm) <= bound


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "make",
    [encoder, lambda: Remembers(nn.GRU(4, 3, batch_first=True), started=False, parts=(0, 1))],
)
def test_autocast(make: Callable[[], nn.Module], device: str) -> None:
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(3, 4), make(), nn.Flatten())
    if isinstance(model[1], Remembers):
        model = nn.Sequential(model[1], nn.Flatten())
    model = model.to(device)

    def losses(model: nn.Module, inputs: Tensor) -> Tensor:
        with torch.autocast(device, torch.bfloat16):
            outputs = model(inputs)
        return outputs.float().square().flatten(1).sum(1)

    inputs = torch.randn(6, 5, 3, device=device)
    found = clipped(model, inputs, 3, losses=losses)
    _, norms = brute_force(model, inputs, 3, losses=losses)
    torch.testing.assert_close(found.norms, norms, rtol=4e-2, atol=0.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.TransformerEncoderLayer(4, 2, 6, dropout=0.3, batch_first=True),
        lambda: Remembers(
            nn.GRU(2, 3, 2, batch_first=True, dropout=0.3), started=True, parts=(0, 1)
        ),
    ],
)
def test_dropout_of_its_own(make: Callable[[], nn.Module]) -> None:
    # Run again, the layer would draw other numbers than in its forward pass.
    torch.manual_seed(10)
    model = make()
    rows = torch.randn(8, 5, 3 if isinstance(model, Remembers) else 4)
    training = private(model, losses=partial(one_loss_per_row, model), seed=1)
    with pytest.warns(UserWarning, match="the model is run for "):
        training.check(rows)
    assert check_training(model.eval(), rows) == BY_LAYER


@pytest.mark.parametrize(
    "make",
    [
        lambda: Calls(nn.GRU(4, 3), lambda layer, x: layer(x.transpose(0, 1))[1][0]),
        lambda: Calls(nn.LSTM(4, 3), lambda layer, x: layer(x.transpose(0, 1))[0][-1]),
        lambda: Calls(
            nn.MultiheadAttention(4, 2),
            lambda layer, x: layer(*[x.transpose(0, 1)] * 3)[0].transpose(0, 1),
        ),
    ],
)
def test_time_may_come_first(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(11)
    for steps in (1, 5, 6):  # also as many as records
        assert check_training(make(), torch.randn(6, steps, 4)) != BY_LAYER
