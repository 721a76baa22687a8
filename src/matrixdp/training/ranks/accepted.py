"""Groups, models and optimisers that can take part in a training on several ranks."""

import os
from collections.abc import Sequence

import torch.distributed as dist
from torch import nn, optim

from matrixdp.errors import InvalidParameterError
from matrixdp.training.ranks.group import ALONE, RankGroup, Ranks

__all__ = ["check_unwrapped", "check_zero_optimizers", "checked_ranks"]


def checked_ranks(ranks: object) -> Ranks:
    """Return the ranks of a process group, or one process alone.

    Raises
    ------
    InvalidParameterError
        If it is no group of torch with this process in it, or if there are others and none is
        passed: each would release a model of its own, trained on the same records.
    """
    if ranks is None:
        others = _other_processes()
        if others:
            raise InvalidParameterError(
                f"ranks is None, but this process is one of {others}, each of which would spend "
                "the whole budget on a model of its own: call "
                "torch.distributed.init_process_group and pass "
                "ranks=torch.distributed.group.WORLD. For a training of this process alone, pass a "
                "group that has it alone, torch.distributed.new_group([rank], "
                "use_local_synchronization=True)"
            )
        return ALONE
    if not isinstance(ranks, dist.ProcessGroup):
        raise InvalidParameterError(
            f"ranks is a {type(ranks).__name__}: pass a process group that this process belongs "
            "to, such as torch.distributed.group.WORLD after init_process_group"
        )
    return RankGroup(ranks)


def _other_processes() -> int:
    """Return how many processes there are that train together, or 0 if this is the only one."""
    if dist.is_available() and dist.is_initialized():
        number = dist.get_world_size()
    elif "RANK" in os.environ:  # as torchrun and other launchers tell each process
        number = int(os.environ.get("WORLD_SIZE", "1"))
    else:
        return 0
    return number if number > 1 else 0


def check_unwrapped(model: nn.Module) -> None:
    """Raise for a model that would exchange gradients, or that has a part of its parameters only.

    Raises
    ------
    InvalidParameterError
        Which says what to pass.
    """
    for name, module in model.named_modules():
        where = f"layer {name!r}" if name else "the model"
        if _is_a(module, "DistributedDataParallel"):
            raise InvalidParameterError(
                f"{where} is wrapped by DistributedDataParallel, whose hooks average gradients "
                "that are neither clipped nor noisy: train its attribute module instead, and pass "
                "ranks=torch.distributed.group.WORLD"
            )
        if _is_a(module, "FullyShardedDataParallel") or _is_a(module, "FSDPModule"):
            raise InvalidParameterError(
                f"{where} is sharded by FSDP, which reduces gradients in hooks that never see a "
                "clipped sum: train the plain model, and pass ranks=torch.distributed.group.WORLD. "
                "To divide the state of the optimiser among ranks, use "
                "torch.distributed.optim.ZeroRedundancyOptimizer"
            )
    for name, parameter in model.named_parameters():
        if _is_a(parameter, "DTensor"):
            raise InvalidParameterError(
                f"parameter {name!r} is a DTensor, of which this process has a part: train a plain "
                "model that is whole on every rank"
            )


def check_zero_optimizers(optimizers: Sequence[optim.Optimizer], ranks: object) -> None:
    """Raise for a `ZeroRedundancyOptimizer` that cannot follow noisy gradients on these ranks.

    Raises
    ------
    InvalidParameterError
        Which says how to make it.
    """
    for one in optimizers:
        if not _is_a(one, "ZeroRedundancyOptimizer"):
            continue
        if getattr(one, "process_group", None) is not ranks:
            raise InvalidParameterError(
                "optimizer is a ZeroRedundancyOptimizer of another group than ranks: make it with "
                "process_group=group, and pass ranks=group"
            )
        if getattr(one, "_overlap_with_ddp", False):
            raise InvalidParameterError(
                "optimizer has overlap_with_ddp=True, and would follow gradients of "
                "DistributedDataParallel: leave it out"
            )
        if _is_a(one.optim, "LBFGS") or _is_a(one.optim, "SparseAdam"):  # type: ignore[attr-defined]
            raise InvalidParameterError(
                "optimizer_class is LBFGS or SparseAdam, which cannot follow noisy gradients: use "
                "another one, such as torch.optim.Adam"
            )


def _is_a(value: object, name: str) -> bool:
    """Return whether an object is of a class of torch; importing these takes a second."""
    return any(
        base.__name__ == name and base.__module__.startswith("torch.")
        for base in type(value).__mro__
    )
