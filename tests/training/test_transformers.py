"""Models of transformers as they are, against plain autograd on one record at a time."""

from collections.abc import Callable, Collection, Iterable
from itertools import product
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")
pytest.importorskip("transformers", reason="the models of transformers are not installed")

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from matrixdp.errors import InvalidParameterError
from matrixdp.training.checks.taken_apart import Chosen
from matrixdp.training.layers.own_weights import uses_own_weights
from matrixdp.training.lots.batch import Losses
from matrixdp.training.lots.by_layer import ByLayer
from matrixdp.training.lots.exact_sum import ExactSum
from training.chosen_way import BY_LAYER, check_training
from training.small_transformers import (
    FAMILIES,
    LENGTH,
    WORDS,
    Rows,
    batch_of,
    chosen_for,
    made,
    one_by_one,
)


def check_family(
    model: nn.Module,
    losses: Callable[[nn.Module], Losses],
    *,
    rounding: float = 1e-5,
    slack: float = 1e-3,
) -> Chosen:
    """Compare norms and clipped sums, where some records are clipped and some are not."""
    batch = batch_of(Rows())
    _, norms = one_by_one(model, losses, batch, 1.0)
    bound = float(norms.median())
    chosen, trainable = chosen_for(model, losses(model), bound)
    assert chosen.name == BY_LAYER, chosen.refused
    found = chosen.gradients(batch, len(norms))
    assert all(part.grad is None for part in model.parameters())
    expected, norms = one_by_one(model, losses, batch, bound)
    assert torch.all(found.norms[0] >= norms * (1 - rounding))
    torch.testing.assert_close(found.norms[0], norms, rtol=slack, atol=1e-6)
    size = max(float(total.abs().max()) for total in expected.values())
    for parameter, name in trainable.names.items():
        total = found.sums.get(parameter, torch.zeros(())).double()
        torch.testing.assert_close(
            total.expand_as(parameter), expected[name], rtol=slack, atol=slack * size / 10
        )
    return chosen


def expanded(chosen: Chosen) -> set[str]:
    """Return the layers whose weights were expanded to all records."""
    assert isinstance(chosen.gradients, ByLayer)
    return chosen.gradients.tracer.known.expanded


def lora(model: nn.Module, family: str, **options: Any) -> nn.Module:
    peft = pytest.importorskip("peft", reason="the adapters of peft are not installed")
    options = {"fan_in_fan_out": family == "GPT-2", "init_lora_weights": False} | options
    adapted: nn.Module = peft.get_peft_model(
        model, peft.LoraConfig(r=3, target_modules=FAMILIES[family].adapted, **options)
    )
    return adapted.train()


def frozen(model: nn.Module, _family: str) -> nn.Module:
    """Freeze tables and the first block, as in fine-tuning."""
    for name, parameter in model.named_parameters():
        if "emb" in name or ".wte" in name or ".wpe" in name or "shared" in name or ".0." in name:
            parameter.requires_grad_(False)
    return model


def checkpointed(model: Any, _family: str) -> Any:
    model.activation_checkpointing_enable({"use_reentrant": False})
    return model


def eager(model: Any, _family: str) -> Any:
    model.set_attn_implementation("eager")
    return model


OPTIONS: dict[str, Callable[..., Any]] = {
    "LoRA": lora,
    "frozen parts": frozen,
    "checkpoints": checkpointed,
    "eager": eager,
}


def some(quick: Collection[Any], every: Iterable[Any]) -> list[Any]:
    """Return all cases: those that are not quick are for the thorough tests."""
    return [
        case
        if case in quick
        else pytest.param(*([case] if isinstance(case, str) else case), marks=pytest.mark.thorough)
        for case in every
    ]


@pytest.mark.parametrize("family", some({"GPT-2", "BERT", "ViT", "T5"}, FAMILIES))
def test_clipped_sums_are_those_of_single_records(family: str) -> None:
    model = made(family)
    chosen = check_family(model, FAMILIES[family].losses)
    # Otherwise the check has found their gradients wrong, and another way right.
    own = {
        name
        for name, one in model.named_modules()
        if uses_own_weights(one) and type(one).__name__ != "Conv1D"
    }
    assert expanded(chosen) == own


@pytest.mark.parametrize(
    ("option", "family"),
    some({("LoRA", "GPT-2"), ("checkpoints", "Llama")}, product(OPTIONS, FAMILIES)),
)
def test_options(option: str, family: str) -> None:
    model = OPTIONS[option](made(family), family)
    check_family(model, FAMILIES[family].losses)


def test_mode_exact() -> None:
    model = made("GPT-2")
    losses, batch = FAMILIES["GPT-2"].losses, batch_of(Rows())
    _, norms = one_by_one(model, losses, batch, 1.0)
    bound = float(norms.median())
    _, trainable = chosen_for(model, losses(model), bound)
    exact = ExactSum(model, losses(model), trainable, views=1, debug=False)
    found = exact([batch_of(Rows(), [number]) for number in range(len(norms))])
    expected, _ = one_by_one(model, losses, batch, bound)
    for parameter, name in trainable.names.items():
        torch.testing.assert_close(found[parameter], expected[name], rtol=1e-3, atol=1e-5)


@pytest.mark.thorough
def test_autocast() -> None:
    def losses(model: nn.Module) -> Losses:
        plain = FAMILIES["Llama"].losses(model)
        half = next(model.parameters()).dtype == torch.float32  # not in the comparison

        def rounded(batch: dict[str, Tensor]) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16, enabled=half):
                return plain(batch)

        return rounded

    check_family(made("Llama"), losses, rounding=0.03, slack=0.1)


def test_a_batch_as_long_as_its_records() -> None:
    model = made("GPT-2")
    losses, batch = FAMILIES["GPT-2"].losses, batch_of(Rows(LENGTH))
    chosen, trainable = chosen_for(model, losses(model), 0.5)
    found = chosen.gradients(batch, LENGTH)
    expected, _ = one_by_one(model, losses, batch, 0.5)
    for parameter, name in trainable.names.items():
        total = found.sums[parameter].double()
        torch.testing.assert_close(total, expected[name], rtol=1e-3, atol=1e-4)


def test_dropout() -> None:
    model = made("GPT-2", resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1)
    chosen, _ = chosen_for(model, FAMILIES["GPT-2"].losses(model))
    assert chosen.name == BY_LAYER, chosen.refused


def test_checkpoints_of_the_older_kind_are_refused() -> None:
    model: Any = made("Llama")
    model.activation_checkpointing_enable({"use_reentrant": True})
    with pytest.raises(InvalidParameterError, match="use_reentrant=False"):
        chosen_for(model, FAMILIES["Llama"].losses(model))


class LargestTensor(TorchDispatchMode):
    """Finds the largest number of elements that a tensor has."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.elements = 0

    def __torch_dispatch__(
        self, function: Any, _types: Any, arguments: Any = (), named: Any = None
    ) -> Any:
        made = function(*arguments, **(named or {}))
        own = [part for part in tree_leaves(made) if isinstance(part, Tensor)]
        # What is expanded takes no memory.
        sizes = [part.untyped_storage().nbytes() // part.element_size() for part in own]
        self.elements = max([self.elements, *sizes])
        return made


@pytest.mark.parametrize("tied", [False, True])
def test_no_table_is_written_out_for_each_record(*, tied: bool) -> None:
    words, width, records = 600, 64, 7
    model = made(
        "Llama",
        vocab_size=words,
        hidden_size=width,
        num_hidden_layers=1,
        tie_word_embeddings=tied,
    )
    chosen, _ = chosen_for(model, FAMILIES["Llama"].losses(model))
    batch = batch_of(Rows(records))
    with LargestTensor() as largest:
        chosen.gradients(batch, records)
    # The table itself is the largest, in float64 where it is added up.
    assert largest.elements <= words * width
    assert words * width < records * words * width / 2


class Positions(nn.Module):
    """A layer that is called on positions and on records, which have no axis in common."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.kind = kind
        self.table = nn.Embedding(WORDS, 6)
        self.positions = nn.Embedding(16, 6)
        self.both = nn.Linear(6, 6)
        self.scale = nn.Parameter(torch.randn(6))
        self.shift = nn.Parameter(torch.randn(()))
        self.token = nn.Parameter(torch.randn(1, 1, 6))

    def forward(self, words: Tensor) -> Tensor:
        rows = self.table(words)
        numbers = torch.arange(words.shape[1])
        if self.kind == "without an axis":
            rows = self.positions(numbers) + rows
        elif self.kind == "an axis of length one":
            rows = rows + self.positions(numbers[None])
        elif self.kind == "turned":
            rows = rows.mT + self.positions(numbers).T
            rows = rows.mT
        elif self.kind == "by a layer for records":
            fixed = torch.linspace(-1.0, 1.0, 6).to(rows).expand(len(numbers), 6)
            rows = rows * self.both(fixed)
        elif self.kind == "joined":
            rows = torch.cat((self.token.expand(len(rows), -1, -1), rows), 1)
        elif self.kind == "repeated":
            rows = torch.cat((rows, (2.0 * self.token).repeat(len(rows), 1, 1)), 1)
        made: Tensor = self.both(rows) * (1.0 + self.scale.exp()) + self.shift.sigmoid()
        return made.square().mean((1, 2))


@pytest.mark.parametrize(
    "kind",
    [
        *("without an axis", "an axis of length one", "turned", "by a layer for records"),
        *("joined", "repeated"),
    ],
)
def test_what_has_no_axis_of_rows(kind: str) -> None:
    def losses(model: nn.Module) -> Losses:
        return lambda batch: model(batch["input_ids"])

    assert expanded(check_family(Positions(kind), losses)) == {""}


def test_views_have_one_gradient() -> None:
    model = Positions("an axis of length one")
    model.token.requires_grad = False
    words = torch.randint(WORDS, (8, 5), generator=torch.Generator().manual_seed(2))

    def losses(module: nn.Module, rows: Tensor) -> Tensor:
        made: Tensor = module(rows)
        return made

    assert check_training(model, words, 4, losses=losses) == BY_LAYER
