"""A group of one process: what is refused, who pays, and that keys are fresh."""

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
import torch.distributed as dist
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel

from matrixdp import Budget
from matrixdp.errors import InvalidParameterError, RankError, StorageError
from matrixdp.ledger import Ledger
from matrixdp.training.ranks.group import RankGroup
from matrixdp.training.ranks.spending import shared_counter
from training.small_training import private, small_data, small_model, small_plan, train, weights


def begin_group() -> None:
    store = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)


@pytest.fixture
def group() -> Iterator[Any]:
    begin_group()
    yield dist.group.WORLD
    dist.destroy_process_group()


def test_a_training_does_not_keep_a_destroyed_group_alive() -> None:
    """Threads of a group that lives on until Python ends can make the process abort."""
    begin_group()
    gc.disable()  # which would only find it in time now and then
    try:
        living = weakref.ref(dist.group.WORLD)
        training = private(small_model(), ranks=dist.group.WORLD)
        train(training, steps=2)
        dist.destroy_process_group()
        assert living() is None
        with pytest.raises(RankError, match="the process group was destroyed"):
            training.lots(small_data())
    finally:
        gc.enable()


@pytest.mark.parametrize("mode", ["fast", "exact"])
def test_a_group_of_one_process_trains_as_a_process_alone(group: Any, mode: Any) -> None:
    alone, grouped = small_model(), small_model()
    train(private(alone, seed=1, mode=mode))
    train(private(grouped, seed=1, mode=mode, ranks=group))
    assert (weights(alone) - weights(grouped)).abs().max() <= (0.0 if mode == "exact" else 1e-6)


def test_a_wrapped_model_is_refused(group: Any) -> None:
    wrapped = DistributedDataParallel(small_model())
    for ranks in (group, None):
        with pytest.raises(InvalidParameterError, match="train its attribute module instead"):
            private(wrapped, ranks=ranks)
    with pytest.raises(InvalidParameterError, match="layer '0' is wrapped"):
        private(nn.Sequential(wrapped), ranks=group)
    train(private(wrapped.module, ranks=group))


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")  # of torch, when these are imported
def test_sharded_models_are_refused(group: Any) -> None:
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415
    from torch.distributed.tensor import distribute_module  # noqa: PLC0415

    mesh = init_device_mesh("cpu", (1,))
    sharded = small_model()
    fully_shard(sharded, mesh=mesh)
    with pytest.raises(InvalidParameterError, match="the model is sharded by FSDP"):
        private(sharded, ranks=group)
    distributed = distribute_module(small_model(), mesh)
    with pytest.raises(InvalidParameterError, match=r"parameter '0.weight' is a DTensor"):
        private(distributed, ranks=group)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")  # of torch, when this is imported
def test_zero_optimizers_of_other_ranks_are_refused(group: Any) -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer  # noqa: PLC0415

    def made(kind: Any, **options: Any) -> Any:
        return lambda model: ZeroRedundancyOptimizer(
            model.parameters(), optimizer_class=kind, lr=0.1, **options
        )

    train(private(small_model(), make=made(optim.Adam, process_group=group), ranks=group))
    other = dist.new_group([0])
    with pytest.raises(InvalidParameterError, match="of another group than ranks"):
        private(small_model(), make=made(optim.Adam, process_group=other), ranks=group)
    with pytest.raises(InvalidParameterError, match="LBFGS or SparseAdam"):
        private(small_model(), make=made(optim.SparseAdam), ranks=group)


def test_what_is_no_group_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match="ranks is a int: pass a process group"):
        private(small_model(), ranks=2)


def test_a_bound_of_the_sum_is_refused(group: Any) -> None:
    with pytest.raises(InvalidParameterError, match=r"sum_norm=3\.0 needs the norm of the whole"):
        private(small_model(), small_plan(sum_norm=3.0), ranks=group)


@pytest.mark.usefixtures("group")
def test_several_processes_do_not_each_train_alone_by_oversight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dist, "get_world_size", lambda *_: 2)
    with pytest.raises(InvalidParameterError, match="ranks is None, but this process is one of 2"):
        private(small_model())


def test_nor_do_those_of_a_launcher_that_have_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(InvalidParameterError, match="ranks is None, but this process is one of 4"):
        private(small_model())
    monkeypatch.setenv("WORLD_SIZE", "1")
    private(small_model())


def test_too_many_ranks_are_refused(group: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "get_world_size", lambda *_: 513)
    with pytest.raises(InvalidParameterError, match="ranks has 513 processes"):
        private(small_model(), ranks=group)


def test_a_step_that_cannot_be_written_is_not_counted(group: Any) -> None:
    class Full:
        run, spent = "run", 2

        def spend(self) -> None:
            raise StorageError("the disk is full")

    counter = shared_counter(RankGroup(group), Full)
    assert counter is not None
    assert (counter.run, counter.spent) == ("run", 2)
    with pytest.raises(StorageError, match="the disk is full"):
        counter.spend()
    assert counter.spent == 2


def test_a_ledger_pays_once_for_a_group(group: Any, tmp_path: Path) -> None:
    plan = small_plan()
    with Ledger.create(f"sqlite:///{tmp_path}/a.ledger", keys=tmp_path / "a.keys") as ledger:
        ledger.open_account(
            "all", Budget(9.0, 1e-3), neighbouring="add-remove", plans=[plan.sampled]
        )
        run = ledger.account("all").run("together")
        train(private(small_model(), plan, spending=run, ranks=group), steps=3)
        assert sum(entry.kind == "step" for entry in ledger.history()) == 3
        resumed = private(small_model(), plan, spending=run, ranks=group)
        with pytest.raises(InvalidParameterError, match="whose checkpoint was not loaded"):
            resumed.lots(small_data())
        assert resumed.progress.steps_left == 1


def test_every_step_and_block_has_a_key_of_its_own(
    group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: list[bytes] = []
    secret = RankGroup.secret

    def watched(self: RankGroup) -> bytes:
        keys.append(secret(self))
        return keys[-1]

    monkeypatch.setattr(RankGroup, "secret", watched)
    model = small_model()
    model.to(torch.float64)[2].to(torch.float32)  # two blocks, as they have two types
    train(private(model, losses=lambda rows, _: mixed(model, rows), ranks=group))
    # One more at the beginning, for a digest of the first record.
    assert len(keys) == len(set(keys)) == 1 + 2 * 4
    assert bytes(32) not in keys


def mixed(model: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    first, middle, last = model.children()
    losses: torch.Tensor = last(middle(first(rows.double())).float()).square().sum(1)
    return losses
