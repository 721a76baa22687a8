"""The parts of a training, made of its arguments once these are checked."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from torch import nn, optim

from matrixdp.covariance import Covariance
from matrixdp.privacy.payment import RunPayer
from matrixdp.training.checks.arguments import (
    check_kinds,
    check_mode,
    checked_covariances,
    checked_optimizers,
    checked_spending,
)
from matrixdp.training.guarantee import Mode
from matrixdp.training.lots.batch import Losses
from matrixdp.training.lots.sampling import Coins, SeededCoins, secure_coins
from matrixdp.training.model.trainable import Trainable
from matrixdp.training.noise.shards import NoiseInShards
from matrixdp.training.noise.step_noise import StepNoise
from matrixdp.training.plan import TrainingPlan
from matrixdp.training.ranks.accepted import check_unwrapped, check_zero_optimizers
from matrixdp.training.ranks.fixed_point import grid_step, shortened
from matrixdp.training.ranks.group import Alone, RankGroup, Ranks
from matrixdp.training.ranks.own_records import OwnCoins, own_records

__all__ = ["Arguments", "Parts", "made_parts"]


class Arguments(NamedTuple):
    """What a user passes to a training, not yet checked."""

    model: nn.Module
    losses: Losses
    optimizer: optim.Optimizer | Sequence[optim.Optimizer]
    plan: TrainingPlan
    seed: int | None
    spending: str | Path | RunPayer | None
    mode: Mode
    layer_covariances: Mapping[str, Covariance] | None
    ranks: object


class Parts(NamedTuple):
    """What steps are taken with."""

    optimizers: Sequence[optim.Optimizer]
    trainable: Trainable
    noise: StepNoise
    coins: Coins
    spending: Path | RunPayer | None


def made_parts(given: Arguments, ranks: Ranks) -> Parts:
    """Check the arguments of a training, and make its parts; no file is made.

    Raises
    ------
    InvalidParameterError
        If a layer mixes records or an argument is wrong; the message names it.
    BudgetExceededError
        If a covariance is too small.
    """
    model, plan, seed, mode = given.model, given.plan, given.seed, given.mode
    check_kinds(model, given.losses, plan, seed)
    check_mode(mode, plan, alone=isinstance(ranks, Alone))
    check_unwrapped(model)
    optimizers = checked_optimizers(given.optimizer)
    check_zero_optimizers(optimizers, given.ranks)
    covariances = checked_covariances(given.layer_covariances)
    trainable = Trainable(model, optimizers, plan, mode)
    coins: Coins = (
        secure_coins(trainable.device, plan.population) if seed is None else SeededCoins(seed)
    )
    shards = None
    if isinstance(ranks, RankGroup):
        grid = {one: grid_step(trainable.bounds[group]) for one, group in trainable.groups.items()}
        shards = partial(NoiseInShards, grid=grid, ranks=ranks)
        coins = OwnCoins(coins, own_records(ranks, plan.population))
        if mode == "fast":  # in the mode exact nothing is rounded any more
            trainable.bounds = _shortened(trainable)
    noise = StepNoise(model, trainable, plan, covariances, seed, shards=shards)
    return Parts(optimizers, trainable, noise, coins, checked_spending(given.spending))


def _shortened(trainable: Trainable) -> tuple[float, ...]:
    """Return clip norms that leave room for the rounding of ranks' sums."""
    sizes = [0] * len(trainable.bounds)
    for parameter, group in trainable.groups.items():
        sizes[group] += parameter.numel()
    return tuple(
        shortened(bound, size) for bound, size in zip(trainable.bounds, sizes, strict=True)
    )
