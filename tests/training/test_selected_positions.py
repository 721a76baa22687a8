"""Layers that get some positions of some records: by chance as many as the batch has records."""

from functools import partial

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.test_attacks import RECORDS, training_of
from training.test_unlike_made_up import sum_of_first_step

SPECIAL = 8  # a token that no made-up record has


class Scale(nn.Module):
    """A layer whose own weights are expanded."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1.0, 2.0, 4))

    def forward(self, rows: Tensor) -> Tensor:
        return rows * self.weight


class Selects(nn.Module):
    """Runs a layer on all positions, or on none, and again on those of one token."""

    def __init__(self, layer: nn.Module, *, twice: bool) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.table, self.head = nn.Embedding(9, 4), nn.Linear(4, 3)
        self.layer, self.twice = layer, twice

    def forward(self, tokens: Tensor) -> Tensor:
        rows = self.table(tokens)
        if self.twice:
            rows = self.layer(rows)
        selected = tokens == SPECIAL
        if bool(selected.any()):
            rows = rows.clone()
            rows[selected] = self.layer(torch.tanh(rows[selected]))
        made: Tensor = self.head(rows.mean(1))
        return made


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("kind", [Scale, partial(nn.Linear, 4, 4), partial(nn.LayerNorm, 4)])
def test_positions_of_one_record_that_are_as_many_as_the_records(
    kind: type[nn.Module], *, twice: bool
) -> None:
    tokens = torch.arange(RECORDS * RECORDS).reshape(RECORDS, RECORDS) % SPECIAL
    tokens[0] = SPECIAL
    # One record with a large gradient, which would be clipped as if parts of it were of others.
    data = tokens, torch.arange(RECORDS) % 3, torch.where(tokens[:, 0] == SPECIAL, 100.0, 0.01)
    sums = []
    for mode in ("fast", "exact"):
        torch.manual_seed(4)
        model = Selects(kind(), twice=twice)

        def losses(
            tokens: Tensor, labels: Tensor, factors: Tensor, model: nn.Module = model
        ) -> Tensor:
            return functional.cross_entropy(model(tokens), labels, reduction="none") * factors

        sums.append(sum_of_first_step(training_of(model, losses, mode=mode), data))
    fast, exact = sums
    for name, total in exact.items():
        torch.testing.assert_close(fast[name], total, rtol=1e-3, atol=1e-4)
