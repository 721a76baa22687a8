"""Small models of transformers with random weights, with made-up records and losses for each."""

import copy
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")
pytest.importorskip("transformers", reason="the models of transformers are not installed")

import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

from matrixdp.training.checks.model import ModelCheck, made_up_batches
from matrixdp.training.checks.taken_apart import Chosen
from matrixdp.training.lots.batch import Losses
from matrixdp.training.lots.records import record_source
from matrixdp.training.model.trainable import Trainable
from training.small_training import sgd, small_plan

RECORDS = 6
WORDS = 41
LENGTH = 8

_TEXT: dict[str, Any] = {
    "vocab_size": WORDS,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}
_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_BLOCKS: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}


def gpt2(**changes: Any) -> nn.Module:
    options = _TEXT | {"n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2}
    options |= {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**options | changes))


def llama(**changes: Any) -> nn.Module:
    options = _TEXT | _BLOCKS | {"num_key_value_heads": 2, "intermediate_size": 24}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**options | changes))


def tied_llama() -> nn.Module:
    return llama(tie_word_embeddings=True)


def gemma() -> nn.Module:
    """Return a model whose normalisations have the weight plus one as their scale."""
    options = _TEXT | _BLOCKS | {"num_key_value_heads": 1, "intermediate_size": 24, "head_dim": 4}
    return transformers.GemmaForCausalLM(transformers.GemmaConfig(**options))


def _bert_config(**changes: Any) -> Any:
    options = _TEXT | _BLOCKS | _NO_DROPOUT | {"intermediate_size": 24, "num_labels": 3}
    return transformers.BertConfig(**options | {"max_position_embeddings": 16} | changes)


def bert(**changes: Any) -> nn.Module:
    return transformers.BertForSequenceClassification(_bert_config(**changes))


def masked_bert() -> nn.Module:
    """Return a model whose head is the table of words, with a bias of its own."""
    return transformers.BertForMaskedLM(_bert_config())


def vit(**changes: Any) -> nn.Module:
    options = _BLOCKS | _NO_DROPOUT | {"intermediate_size": 24, "image_size": 8, "patch_size": 4}
    options |= {"num_labels": 3, "num_channels": 1}
    return transformers.ViTForImageClassification(transformers.ViTConfig(**options | changes))


def t5(**changes: Any) -> nn.Module:
    options = _TEXT | {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2}
    options |= {"dropout_rate": 0.0, "decoder_start_token_id": 0}
    return transformers.T5ForConditionalGeneration(transformers.T5Config(**options | changes))


def word_losses(model: nn.Module) -> Losses:
    """Return the mean losses of words whose next one is no padding."""

    def losses(batch: dict[str, Tensor]) -> Tensor:
        words, mask = batch["input_ids"], batch["attention_mask"]
        logits = model(input_ids=words, attention_mask=mask, use_cache=False).logits
        each = functional.cross_entropy(logits[:, :-1].mT, words[:, 1:], reduction="none")
        counts = mask[:, 1:]
        return (each * counts).sum(1) / counts.sum(1).clamp(min=1)

    return losses


def masked_losses(model: nn.Module) -> Losses:
    def losses(batch: dict[str, Tensor]) -> Tensor:
        words, mask = batch["input_ids"], batch["attention_mask"]
        logits = model(input_ids=words.where(words % 3 > 0, 1), attention_mask=mask).logits
        return functional.cross_entropy(logits.mT, words, reduction="none").mean(1)

    return losses


def class_losses(model: nn.Module) -> Losses:
    def losses(batch: dict[str, Tensor]) -> Tensor:
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        return functional.cross_entropy(logits, batch["label"], reduction="none")

    return losses


def image_losses(model: nn.Module) -> Losses:
    def losses(batch: dict[str, Tensor]) -> Tensor:
        logits = model(pixel_values=batch["image"]).logits
        return functional.cross_entropy(logits, batch["label"], reduction="none")

    return losses


def translation_losses(model: nn.Module) -> Losses:
    def losses(batch: dict[str, Tensor]) -> Tensor:
        logits = model(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            decoder_input_ids=batch["target"].roll(1, 1),
            use_cache=False,
        ).logits
        return functional.cross_entropy(logits.mT, batch["target"], reduction="none").mean(1)

    return losses


class Family(NamedTuple):
    """A kind of model, its losses, and the layers that LoRA adapts."""

    model: Callable[..., nn.Module]
    losses: Callable[[nn.Module], Losses]
    adapted: list[str]


FAMILIES = {
    "GPT-2": Family(gpt2, word_losses, ["c_attn"]),
    "BERT": Family(bert, class_losses, ["query", "value"]),
    "masked BERT": Family(masked_bert, masked_losses, ["query", "value"]),
    "Llama": Family(llama, word_losses, ["q_proj", "v_proj"]),
    "tied Llama": Family(tied_llama, word_losses, ["q_proj", "v_proj"]),
    "Gemma": Family(gemma, word_losses, ["q_proj", "v_proj"]),
    "ViT": Family(vit, image_losses, ["q_proj", "v_proj"]),
    "T5": Family(t5, translation_losses, ["q", "v"]),
}


def made(family: str, **changes: Any) -> nn.Module:
    """Return a model of a family with random weights, none of which is zero."""
    torch.manual_seed(3)
    model = FAMILIES[family].model(**changes)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model.train()


class Rows(Dataset[dict[str, Tensor]]):
    """Records with words, a mask that ends at different lengths, an image, a class and a target."""

    def __init__(self, records: int = RECORDS, seed: int = 0) -> None:
        self._records = records
        self._seed = seed

    def __len__(self) -> int:
        return self._records

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(1000 * self._seed + number)
        mask = (torch.arange(LENGTH) < LENGTH - number % 4).long()
        words = torch.randint(1, WORDS, (LENGTH,), generator=generator)
        return {
            "input_ids": words * mask,
            "attention_mask": mask,
            "image": torch.randn(1, 8, 8, generator=generator),
            "label": torch.tensor(number % 3),
            "target": torch.randint(1, WORDS, (5,), generator=generator),
        }


def batch_of(rows: Rows, numbers: range | list[int] | None = None) -> dict[str, Tensor]:
    chosen = [rows[number] for number in (range(len(rows)) if numbers is None else numbers)]
    return {name: torch.stack([row[name] for row in chosen]) for name in chosen[0]}


def chosen_for(
    model: nn.Module, losses: Losses, bound: float = 0.5, rows: Any = None
) -> tuple[Chosen, Trainable]:
    """Return the way that a training forms gradients in, after its check."""
    plan = small_plan(clip_norm=bound)
    trained = [part for part in model.parameters() if part.requires_grad]
    trainable = Trainable(model, (torch.optim.SGD(trained, lr=0.1),), plan, "fast")
    check = ModelCheck(model, trainable, views=1, debug=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the model is run ")
        draws = made_up_batches(record_source(Rows() if rows is None else rows), 1)
        return check.run(losses, draws), trainable


def one_by_one(
    model: nn.Module,
    losses: Callable[[nn.Module], Losses],
    batch: dict[str, Tensor],
    bound: float,
    wide: torch.dtype = torch.float64,
) -> tuple[dict[str, Tensor], Tensor]:
    """Return clipped sum and norms by plain autograd, one record at a time, in float64."""
    model = copy.deepcopy(model).to(wide)
    of_batch = losses(model)
    names = [name for name, part in model.named_parameters() if part.requires_grad]
    parameters = [part for part in model.parameters() if part.requires_grad]
    sums = {
        name: torch.zeros_like(part).double() for name, part in zip(names, parameters, strict=True)
    }
    norms = []
    for number in range(len(batch["label"])):
        record = {
            name: part[number : number + 1].to(wide)
            if part.is_floating_point()
            else part[number : number + 1]
            for name, part in batch.items()
        }
        found = torch.autograd.grad(
            of_batch(record).sum(), parameters, allow_unused=True, materialize_grads=True
        )
        norm = torch.stack([part.double().square().sum() for part in found]).sum().sqrt()
        norms.append(norm)
        for name, part in zip(names, found, strict=True):
            sums[name] += part.double() * min(1.0, bound / float(norm))
    return sums, torch.stack(norms)


__all__ = ["sgd"]
