"""Attacks on models of transformers: neighbours through the program, and mistakes that mix."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")
pytest.importorskip("transformers", reason="the models of transformers are not installed")

import torch
from torch import Tensor
from torch.nn import functional

from matrixdp.errors import InvalidParameterError
from matrixdp.training.lots.clipping import ClippedSum
from training.chosen_way import BY_LAYER
from training.small_transformers import (
    FAMILIES,
    LENGTH,
    Rows,
    batch_of,
    chosen_for,
    class_losses,
    image_losses,
    made,
)

BOUND = 0.05


def crafted(kind: str) -> dict[str, Tensor]:
    """Return a record that makes some of its gradients as large, or as much alike, as can be."""
    record = batch_of(Rows(1, seed=9))
    if kind == "one word":
        record["input_ids"] = torch.full((1, LENGTH), 7)
        record["target"] = torch.full((1, 5), 7)
        record["attention_mask"] = torch.ones(1, LENGTH, dtype=torch.long)
    elif kind == "nearly all padding":
        record["attention_mask"] = torch.zeros(1, LENGTH, dtype=torch.long)
        record["attention_mask"][:, :2] = 1
        record["input_ids"] = record["input_ids"] * record["attention_mask"]
    else:
        record["image"] = 1e3 * record["image"]
        record["input_ids"] = torch.arange(LENGTH)[None] * 4 + 1
    return record


def distance(one: ClippedSum, other: ClippedSum) -> float:
    squares = [
        (part.double() - other.sums[parameter].double()).square().sum()
        for parameter, part in one.sums.items()
    ]
    return float(torch.stack(squares).sum().sqrt())


THOROUGH = [pytest.param(one, marks=pytest.mark.thorough) for one in ("BERT", "tied Llama", "ViT")]


@pytest.mark.parametrize("half", [False, pytest.param(True, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("family", ["GPT-2", "T5", *THOROUGH])
def test_a_record_moves_the_sum_by_the_clip_norm_at_most(family: str, *, half: bool) -> None:
    model = made(family)
    plain = FAMILIES[family].losses(model)

    def losses(batch: dict[str, Tensor]) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            return plain(batch).float()

    chosen, _ = chosen_for(model, losses, BOUND)
    assert chosen.name == BY_LAYER, chosen.refused
    # Among others, and as many as a record has words: lengths alone tell nothing.
    for count in (3, LENGTH - 1):
        others = batch_of(Rows(count))
        without = chosen.gradients(others, count)
        for kind in ("one word", "nearly all padding", "large numbers"):
            mine = crafted(kind)
            both = {name: torch.cat((part, mine[name])) for name, part in others.items()}
            found = chosen.gradients(both, count + 1)
            assert float(found.norms[0, -1]) > BOUND
            moved = distance(found, without)
            assert 0.9 * BOUND < moved <= BOUND * (1 + 1e-5), (count, kind)


@pytest.mark.parametrize(
    "family", ["GPT-2", pytest.param("tied Llama", marks=pytest.mark.thorough)]
)
def test_a_record_that_is_not_finite_adds_nothing(family: str) -> None:
    model = made(family)
    plain = FAMILIES[family].losses(model)

    def losses(batch: dict[str, Tensor]) -> Tensor:
        return plain(batch) * (1.0 + 0.1 * batch["image"].mean((1, 2, 3)))

    chosen, _ = chosen_for(model, losses, BOUND)
    assert chosen.name == BY_LAYER
    others, mine = batch_of(Rows(3)), crafted("one word")
    without = chosen.gradients(others, 3)
    for value in (torch.inf, torch.nan, 1e38):
        mine["image"] = torch.full((1, 1, 8, 8), value)
        both = {name: torch.cat((part, mine[name])) for name, part in others.items()}
        found = chosen.gradients(both, 4)
        assert all(bool(part.isfinite().all()) for part in found.sums.values())
        assert distance(found, without) < 1e-5


def rows_for_positions(model: Any) -> None:
    table = model.bert.embeddings.position_embeddings
    words = model.bert.embeddings.word_embeddings

    def forward(tokens: Tensor) -> Tensor:
        rows = table(torch.arange(len(tokens)))[:, None]
        return functional.embedding(tokens, words.weight) + rows

    words.forward = forward


def first_record_as_positions(model: Any) -> None:
    """Look up at once, for all records, what the first one has: it has no axis of rows."""
    embeddings = model.bert.embeddings
    plain = embeddings.forward

    def forward(input_ids: Tensor | None = None, **named: Any) -> Tensor:
        assert input_ids is not None
        return plain(input_ids=input_ids, **named | {"position_ids": input_ids[:1] % 16})

    embeddings.forward = forward


def mean_of_all(model: Any) -> None:
    """Centre what a block returns over the first axis."""
    norm = model.bert.encoder.layer[0].output.LayerNorm
    plain = norm.forward
    norm.forward = lambda rows: plain(rows) - plain(rows).mean(0, keepdim=True)


@pytest.mark.parametrize("mistake", [rows_for_positions, first_record_as_positions, mean_of_all])
def test_mistakes_in_a_model_are_found(mistake: Callable[[Any], None]) -> None:
    model = made("BERT")
    mistake(model)
    with pytest.raises(InvalidParameterError, match="the loss of a record"):
        chosen_for(model, class_losses(model))


def test_patches_over_the_batch_are_found() -> None:
    model: Any = made("ViT")
    norm = model.vit.layernorm
    plain = norm.forward
    # The patches of a record, as if time came first.
    norm.forward = lambda rows: plain(functional.softmax(rows, 0) * rows)
    with pytest.raises(InvalidParameterError, match="the loss of a record"):
        chosen_for(model, image_losses(model))


def test_padding_to_the_longest_record_without_a_mask_is_found() -> None:
    model: Any = made("BERT")

    def losses(batch: dict[str, Tensor]) -> Tensor:
        longest = max(1, int(batch["attention_mask"].sum(1).max()))
        words = batch["input_ids"][:, :longest]
        hidden = model.bert(input_ids=words).last_hidden_state  # without the mask
        logits = model.get_submodule("classifier")(hidden.mean(1))
        return functional.cross_entropy(logits, batch["label"], reduction="none")

    with pytest.raises(InvalidParameterError, match="the loss of a record"):
        chosen_for(model, losses)
