"""The processes of a training: they meet before every exchange, so that none goes on alone."""

import os
import secrets
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor

from matrixdp.errors import InvalidParameterError, MatrixDPError, RankError
from matrixdp.noise.keys.stream import KEY_BYTES

__all__ = ["ALONE", "Alone", "Point", "RankGroup", "Ranks", "agree"]

_Result = TypeVar("_Result")
_POINTS = ("make", "agree", "begin", "ready", "spend", "sum")
_MOST_RANKS = 512


class Point(NamedTuple):
    """A point of a training at which all ranks meet.

    Attributes
    ----------
    name : str
        One of those that are known.
    step : int
        How many steps are spent.
    """

    name: str
    step: int


class Alone:
    """One process, which meets nobody.

    Attributes
    ----------
    number, size : int
        Which of the ranks this one is, and how many they are.
    """

    number, size = 0, 1

    def together(self, point: Point, work: Callable[[], _Result]) -> _Result:  # noqa: ARG002
        """Return what the work returns."""
        return work()

    def texts(self, point: Point, text: str) -> list[str]:  # noqa: ARG002
        """Return the text."""
        return [text]

    def number_training(self) -> None:
        """Do nothing: no other process could mistake one training for another."""


ALONE = Alone()
"""A training without other ranks."""


class RankGroup:
    """The ranks of a process group of torch.

    Every exchange is preceded by a meeting: a message of one size from every rank, which says where
    that rank is and whether it has failed. So a rank that has raised, that was left out of a call
    or has called something twice is noticed by all ranks, and before a sum or a key is sent.

    Parameters
    ----------
    group : ProcessGroup
        Of which this process is a member.

    Attributes
    ----------
    number, size : int
        Which of the ranks this one is, and how many they are.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        # Only torch keeps a group alive. Its threads end when `destroy_process_group` lets it go;
        # those of a group that lives on until Python ends can make the process abort then.
        self._living = weakref.ref(group)
        self.number, self.size = dist.get_rank(group), dist.get_world_size(group)
        if self.size > _MOST_RANKS:
            raise InvalidParameterError(
                f"ranks has {self.size} processes, more than the {_MOST_RANKS} whose sums fit into "
                "64 bits: use a smaller group"
            )
        self._training = 0
        # Where NCCL exchanges; gloo does so on the processor.
        self._device = torch.device("cuda" if dist.get_backend(group) == "nccl" else "cpu")

    def together(self, point: Point, work: Callable[[], _Result]) -> _Result:
        """Return what some work returns here, once it has ended well on every rank.

        Raises
        ------
        RankError
            If it has raised on another rank, or if another rank is at another point.
        """
        try:
            result = work()
        except Exception as error:
            with suppress(RankError):
                self._meet(point, _told(error), failed=True)
            raise
        self._meet(point, "", failed=False)
        return result

    def texts(self, point: Point, text: str) -> list[str]:
        """Return the text of every rank."""
        return self._meet(point, text, failed=False)

    def number_training(self) -> None:
        """Give this training a number of its own, which every later meeting compares.

        A program may have several trainings, and take their steps in another order on another rank.
        Sums of a larger clip norm would then get the noise of a smaller one.
        """
        self._training = int(self.texts(Point("agree", 0), str(1 + secrets.randbelow(2**62)))[0])

    def sum_of_shard(self, row: Tensor, sizes: Sequence[int]) -> Tensor:
        """Return the sum over ranks of this rank's shard of a row.

        Parameters
        ----------
        row : Tensor
            One axis; numbers that add up without rounding.
        sizes : sequence of int
            How long the shard of each rank is; together they are the row.
        """
        mine = [sizes[self.number]] * self.size
        found = torch.empty(sum(mine), dtype=row.dtype, device=self._device)
        # An exchange and a sum instead of a reduce-scatter, which takes four times as long in gloo.
        sent = row.to(self._device)
        dist.all_to_all_single(found, sent, mine, list(sizes), group=self._group())
        total, *others = found.view(self.size, -1)
        for other in others:
            total += other
        return total.to(row.device)

    def join(self, row: Tensor, sizes: Sequence[int]) -> None:
        """Fill a row, of which this rank has its shard, with the shards of all others."""
        there = row.to(self._device)
        # As bytes, since not every backend takes every type.
        shards = there.view(torch.uint8).split([size * row.element_size() for size in sizes])
        for rank, shard in enumerate(shards):
            if len(shard):
                dist.broadcast(shard, group_src=rank, group=self._group())
        if there is not row:
            row.copy_(there)

    def secret(self) -> bytes:
        """Return fresh secret bytes of the operating system of the first rank."""
        sent = torch.frombuffer(bytearray(os.urandom(KEY_BYTES)), dtype=torch.uint8)
        received = sent.to(self._device)
        dist.broadcast(received, group_src=0, group=self._group())
        found = received.cpu().numpy().tobytes()
        sent.zero_()
        received.zero_()
        return found

    def _group(self) -> dist.ProcessGroup:
        group = self._living()
        if group is None:
            raise RankError(
                "the process group was destroyed: train before torch.distributed."
                "destroy_process_group() is called"
            )
        return group

    def _meet(self, point: Point, text: str, *, failed: bool) -> list[str]:
        """Tell the others where this rank is; return their texts."""
        encoded = text.encode()
        where = [self._training, _POINTS.index(point.name), point.step]
        heads = self._gathered(torch.tensor([*where, int(failed), len(encoded)])).tolist()
        elsewhere = [rank for rank, one in enumerate(heads) if one[:3] != where]
        if elsewhere:
            rank = elsewhere[0]
            training, name, step, *_ = heads[rank]
            of = "" if training == self._training else " of another training"
            raise RankError(
                f"rank {rank} is at {_POINTS[name]!r} after {step} steps{of}, and rank "
                f"{self.number} at {point.name!r} after {point.step}: make, begin and step "
                "trainings on all ranks, the same number of times and in the same order, and "
                "resume all of them from one checkpoint"
            )
        longest = max(length for *_, length in heads)
        if longest == 0:
            return [text] * self.size
        padded = torch.zeros(longest, dtype=torch.uint8)
        padded[: len(encoded)] = torch.tensor(list(encoded), dtype=torch.uint8)
        rows = self._gathered(padded).numpy()
        texts = [
            row[:length].tobytes().decode() for row, (*_, length) in zip(rows, heads, strict=True)
        ]
        stopped = [rank for rank, (*_, ended, _) in enumerate(heads) if ended]
        if stopped and not failed:
            raise RankError(f"rank {stopped[0]} has stopped: {texts[stopped[0]]}")
        return texts

    def _gathered(self, tensor: Tensor) -> Tensor:
        """Return the tensors of all ranks, as rows."""
        rows = torch.empty(self.size, len(tensor), dtype=tensor.dtype, device=self._device)
        # The same for all of them: in gloo a gathering takes half as long again.
        sent = tensor.to(self._device).repeat(self.size)
        dist.all_to_all_single(rows.view(-1), sent, group=self._group())
        return rows.cpu()


Ranks: TypeAlias = Alone | RankGroup
"""The processes of a training, seen by one of them."""


def _told(error: Exception) -> str:
    """Return what other ranks may know of an error: the messages of others may quote records."""
    kind = type(error).__name__
    return f"{kind}: {error}" if isinstance(error, MatrixDPError) else kind


def agree(ranks: Ranks, step: int, facts: Mapping[str, object]) -> None:
    """Raise unless all ranks state the same facts.

    Raises
    ------
    InvalidParameterError
        On every rank; the message names what differs.
    """
    encoded = msgspec.json.encode({name: str(fact) for name, fact in facts.items()}).decode()
    texts = ranks.texts(Point("agree", step), encoded)
    stated = [msgspec.json.decode(text, type=dict[str, str]) for text in texts]
    for rank, others in enumerate(stated):
        for name in stated[0] | others:
            if stated[0].get(name) != others.get(name):
                raise InvalidParameterError(
                    f"rank {rank} has another {name} than rank 0, {others.get(name)} and not "
                    f"{stated[0].get(name)}: run the same program on all ranks, with the same "
                    "data, and load one checkpoint on all of them. Nothing more was spent"
                )
