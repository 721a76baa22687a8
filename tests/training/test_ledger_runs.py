"""Training that a ledger pays for: counted before it is drawn, resumed, refused without a seed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn
from torch.nn import functional

from matrixdp import Budget, PrivacyFilter
from matrixdp.errors import InvalidParameterError
from matrixdp.ledger import Ledger, LedgerRun
from matrixdp.training import PrivateTraining, TrainingPlan

PLAN = TrainingPlan(
    records=60, lot_size=20, steps=4, clip_norm=1.0, noise_multiplier=4.0, delta=1e-6
)


@pytest.fixture(name="ledger")
def _ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.create(f"sqlite:///{tmp_path}/a.ledger", keys=tmp_path / "a.keys") as ledger:
        ledger.open_account(
            "clinic", Budget(4.0, 1e-5), neighbouring="add-remove", plans=[PLAN.sampled]
        )
        yield ledger


def made(spending: LedgerRun | PrivacyFilter | None, **settings: object) -> PrivateTraining:
    torch.manual_seed(0)
    model = nn.Linear(5, 2)

    def losses(inputs: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(model(inputs), labels, reduction="none")

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return PrivateTraining(model, losses, optimizer, PLAN, spending=spending, **settings)  # type: ignore[arg-type]


def records() -> torch.utils.data.TensorDataset:
    generator = torch.Generator().manual_seed(0)
    return torch.utils.data.TensorDataset(
        torch.randn(60, 5, generator=generator), torch.arange(60) % 2
    )


def test_steps_are_counted_in_the_ledger_before_their_lots_are_drawn(ledger: Ledger) -> None:
    training = made(ledger.account("clinic").run("may"))
    counted: list[int] = []
    for lot in training.lots(records()):
        counted.append(sum(entry.kind == "step" for entry in ledger.history()))
        training.step(lot, batch_size=20)
    assert counted == [1, 2, 3, 4]
    assert training.progress.steps_spent == 4


def test_a_run_goes_on_where_its_checkpoint_was(ledger: Ledger) -> None:
    run = ledger.account("clinic").run("may")
    training = made(run)
    for number, lot in enumerate(training.lots(records()), 1):
        training.step(lot, batch_size=20)
        if number == 2:
            break
    state = training.state_dict()
    with pytest.raises(InvalidParameterError, match="whose checkpoint was not loaded"):
        next(iter(made(run).lots(records())))
    resumed = made(run)
    resumed.load_state_dict(state)
    for lot in resumed.lots(records()):
        resumed.step(lot, batch_size=20)
    assert resumed.progress.steps_spent == 4
    other = made(ledger.account("clinic").run("may"))
    with pytest.raises(InvalidParameterError, match="belongs to another"):
        other.load_state_dict(made(None).state_dict() | {"mode": "exact"})


def test_an_experiment_is_not_paid_by_a_ledger(ledger: Ledger) -> None:
    with pytest.raises(InvalidParameterError, match="a ledger does not pay for it"):
        made(ledger.account("clinic").run("may"), seed=1)
    assert [entry.kind for entry in ledger.history()] == ["open"]


def test_a_filter_cannot_pay_for_training() -> None:
    with pytest.raises(InvalidParameterError, match=r"account\.run\(name\) of a ledger"):
        made(PrivacyFilter(Budget(1.0, 1e-5), neighbouring="add-remove"))
