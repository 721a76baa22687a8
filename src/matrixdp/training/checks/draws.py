"""Random draws fixed by record and position, so that runs on other batches can be compared.

With a seed alone a record's draws depend on its index in the batch and on the size of the batch.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["FixedDraws"]

Shapes = Sequence[tuple[int, ...]]

_MULTIPLIER = 6364136223846793005


class FixedDraws(TorchDispatchMode):
    """Makes every random number of torch a function of its operation, record and position.

    Parameters
    ----------
    records : sequence of int
        The records of the batch, in their order.
    turn : int
        Moves all numbers by a third of their range: in one of three turns a coin is below a third,
        and in one above two thirds.
    like : pair of shapes, optional
        Of two runs of the same program on different numbers of records: by the two shapes of an
        operation it is known which axis has the records. Otherwise that is the first one.

    Attributes
    ----------
    shapes : list of tuple of int
        What each operation filled.
    """

    def __init__(
        self, records: Sequence[int], turn: int, like: tuple[Shapes, Shapes] | None = None
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._records = records
        self._turn = turn
        self._like = like
        self.shapes: list[tuple[int, ...]] = []

    def __torch_dispatch__(
        self, function: Any, _types: Any, arguments: Any = (), named: Any = None
    ) -> Any:
        """Run an operation of torch, or what stands for a random one."""
        named = dict(named or {})
        if torch.Tag.nondeterministic_seeded not in function.tags:
            return function(*arguments, **named)
        number = len(self.shapes)
        # A generator of the user's own would be left somewhere else.
        if named.get("generator") is not None:
            named["generator"] = None
        torch.manual_seed(number)
        made = function(*arguments, **named)
        filled = made[0] if isinstance(made, tuple) else made
        self.shapes.append(tuple(filled.shape) if isinstance(filled, Tensor) else ())
        if not isinstance(filled, Tensor) or filled.is_complex():
            return made
        return _filled(function._schema, made, self._uniform(filled, number), arguments, named)  # noqa: SLF001

    def _uniform(self, filled: Tensor, number: int) -> Tensor:
        """Return numbers between 0 and 1 by a hash of the operation, the record and the position.

        Axes of length 1 do not count, so that a record alone has the positions that it has among
        others.
        """
        shape, device = filled.shape, filled.device
        records_axis = self._axis(number)
        mixed = torch.full(shape, number + 1, dtype=torch.int64, device=device)
        coordinates: list[tuple[int, Tensor]] = []
        count = len(self._records)
        for axis, length in enumerate(shape):
            index = torch.arange(length, device=device)
            if axis == records_axis and length % count == 0:
                each = length // count
                names = torch.tensor([*self._records], device=device)
                coordinates.insert(0, (axis, names.repeat_interleave(each)))
                if each > 1:
                    coordinates.append((axis, index % each))
            elif length > 1:
                coordinates.append((axis, index))
        for axis, index in coordinates:
            by_axis = index.reshape([-1 if one == axis else 1 for one in range(len(shape))])
            mixed = (mixed ^ (by_axis + 1)) * _MULTIPLIER
            mixed = mixed ^ ((mixed >> 29) & (2**35 - 1))
        mixed = mixed * _MULTIPLIER
        bits = ((mixed >> 20) + self._turn * 2**24 // 3) & (2**24 - 1)
        return (bits.to(torch.float32) + 0.5) * 2.0**-24

    def _axis(self, number: int) -> int | None:
        if self._like is None or any(number >= len(shapes) for shapes in self._like):
            return 0
        first, second = (shapes[number] for shapes in self._like)
        pairs = enumerate(zip(first, second, strict=False))
        return next((axis for axis, (one, other) in pairs if one != other), None)


def _filled(
    schema: Any, made: Any, uniform: Tensor, arguments: Sequence[Any], named: dict[str, Any]
) -> Any:
    """Return what a random operation makes of numbers between 0 and 1, or what it has made."""
    match schema.name.removeprefix("aten::").rstrip("_"):
        case "native_dropout":
            source, share = arguments[0], arguments[1]
            kept = uniform >= share
            return source * kept / (1.0 - share), kept
        case "bernoulli":
            # Without a probability of its own, it has one for each number; in place it is a half.
            default = 0.5 if schema.is_mutable else arguments[0]
            chance = arguments[1] if len(arguments) > 1 else named.get("p", default)
            made.copy_(uniform < chance)
        case "rand" | "rand_like":
            made.copy_(uniform)
        case "uniform":
            low, high = _numbers(arguments[1:], named, ("from", 0.0), ("to", 1.0))
            made.copy_(low + (high - low) * uniform)
        case "randn" | "randn_like":
            made.copy_(_normal(uniform))
        case "normal":
            options = arguments[1:] if schema.is_mutable else arguments[:2]
            mean, deviation = _numbers(options, named, ("mean", 0.0), ("std", 1.0))
            made.copy_(mean + deviation * _normal(uniform))
        case "exponential":
            (rate,) = _numbers(arguments[1:], named, ("lambd", 1.0))
            made.copy_(-uniform.log() / rate)
        case "randint" | "randint_like":
            # One number is the upper end; the shape comes after, as a list.
            ends = [part for part in arguments if isinstance(part, int)]
            low, high = ends if len(ends) == 2 else (0, *ends)
            made.copy_(low + ((high - low) * uniform).floor())
    return made


def _normal(uniform: Tensor) -> Tensor:
    return math.sqrt(2.0) * torch.erfinv(2.0 * uniform - 1.0)


def _numbers(
    positional: Sequence[float], named: dict[str, Any], *options: tuple[str, float]
) -> list[float]:
    """Return numbers that an operation may get by position or by name."""
    defaults = [named.get(name, default) for name, default in options]
    return [*positional, *defaults[len(positional) :]]
