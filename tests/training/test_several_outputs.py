"""Layers of one's own that return several tensors, in any containers, against brute force."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils._pytree import tree_leaves

from matrixdp.errors import InvalidParameterError
from matrixdp.training.layers.tracing import Tracer
from training.brute_force import (
    brute_force,
    check_against_brute_force,
    check_every_gradient,
    clipped,
)
from training.chosen_way import BY_LAYER, check_training

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
WIDTH = 3

Make = Callable[[Tensor, Tensor], Any]
"""What a layer returns, given its input and its weight."""


class Pair(NamedTuple):
    """Two things with names."""

    first: Any
    second: Any


@dataclass
class Unknown:
    """Something that torch cannot look into."""

    inside: Any


class Returns(nn.Module):
    """A layer that returns what a test wants."""

    def __init__(self, make: Make) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH))
        self.make = make

    def forward(self, inputs: Tensor) -> Any:
        return self.make(inputs, self.weight)


class Uses(nn.Module):
    """A layer between others, whose outputs have gradients from all sides."""

    def __init__(
        self,
        make: Make,
        number: int = 2,
        *,
        first: bool = True,
        calls: int = 1,
        coarse: bool = False,
    ) -> None:
        super().__init__()
        # Without a layer before it, its inputs need no gradient.
        self.first = nn.Linear(WIDTH, WIDTH) if first else nn.Identity()
        self.layer = Returns(make)
        self.last = nn.Linear(calls * number + 1, 2)
        self.number, self.calls, self.coarse = number, calls, coarse
        self.change: Callable[[list[Tensor]], None] | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        with torch.autocast(inputs.device.type, torch.bfloat16, enabled=self.coarse):
            hidden = self.first(inputs)
            found = [hidden.square().sum(1)]
            for call in range(self.calls):
                outputs = smooth_parts(self.layer(torch.sin(hidden + call)))
                if self.change is not None:
                    self.change(outputs)
                for index, part in enumerate(outputs[: self.number]):
                    found.append((index + 1.0) * part.reshape(len(part), -1).sin().sum(1))
            made: Tensor = self.last(torch.stack(found, 1))
        return made.float()


def smooth_parts(tree: Any) -> list[Tensor]:
    return [
        part for part in tree_leaves(tree) if isinstance(part, Tensor) and part.is_floating_point()
    ]


def hidden(inputs: Tensor, weight: Tensor) -> Tensor:
    return torch.tanh(inputs @ weight)


def an_output_of_another(inputs: Tensor, weight: Tensor) -> Any:
    made = hidden(inputs, weight)
    return made, made * torch.tanh(made)


def a_view_of_another(inputs: Tensor, weight: Tensor) -> Any:
    made = hidden(inputs, weight)
    return [made, made[:, -1]]


def the_same_twice(inputs: Tensor, weight: Tensor) -> Any:
    made = hidden(inputs, weight)
    return {"one": made, "other": made}


def with_the_input(inputs: Tensor, weight: Tensor) -> Any:
    return Pair(inputs, hidden(inputs, weight))


def with_other_things(inputs: Tensor, weight: Tensor) -> Any:
    made = hidden(inputs, weight)
    return OrderedDict(
        name="a",
        none=None,
        best=made.argmax(1),
        all=[made],
        last=(made.exp(),),
    )


def with_a_parameter(inputs: Tensor, weight: Tensor) -> Any:
    return weight[0].expand(len(inputs), -1), inputs @ weight


def detached(inputs: Tensor, weight: Tensor) -> Any:
    made = hidden(inputs, weight)
    return made.detach(), made * made.detach()


def parts(inputs: Tensor, weight: Tensor) -> Any:
    return hidden(inputs, weight).split([1, 2], 1)


MAKES = [
    an_output_of_another,
    a_view_of_another,
    the_same_twice,
    with_the_input,
    with_other_things,
    with_a_parameter,
    detached,
    parts,
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("make", MAKES)
def test_outputs_that_depend_on_each_other(make: Make, device: str, *, first: bool) -> None:
    torch.manual_seed(1)
    for calls, examples in ((1, 6), (2, 3)):
        model = Uses(make, first=first, calls=calls).to(device)
        inputs = torch.randn(6, WIDTH, device=device)
        check_every_gradient(model, inputs, examples)
        check_against_brute_force(model, inputs, examples, bounds=(0.8,))


@dataclass(frozen=True)
class Program:
    """How outputs are made of the input, of the weight and of each other."""

    steps: tuple[tuple[str, int, int], ...]
    chosen: tuple[int, ...]
    container: str

    def __call__(self, inputs: Tensor, weight: Tensor) -> Any:
        pool = [inputs, hidden(inputs, weight)]
        for kind, one, other in self.steps:
            pool.append(STEPS[kind](pool[one % len(pool)], pool[other % len(pool)], weight))
        return _contained(self.container, [pool[index % len(pool)] for index in self.chosen])


STEPS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "tanh": lambda one, _, __: torch.tanh(one),
    "view": lambda one, _, __: one.unflatten(1, (1, WIDTH)).squeeze(1),
    "add": lambda one, other, _: one + torch.sin(other),
    "weight": lambda one, _, weight: one @ weight,
    "detach": lambda one, other, _: one.detach() * other,
    "parameter": lambda one, _, weight: weight[0].expand(len(one), -1),
}


def _contained(kind: str, outputs: Sequence[Tensor]) -> Any:
    match kind:
        case "list":
            return [None, *outputs]
        case "dict":
            return {str(index): part for index, part in reversed(list(enumerate(outputs)))}
        case "nested":
            ordered = OrderedDict(rest=(*outputs[1:],), best=outputs[0].argmax(1), text="text")
            return [(outputs[0],), {"inner": Pair(3, ordered)}]
        case "named":
            return Pair(outputs[0], list(outputs[1:]))
        case _:
            return tuple(outputs)


PROGRAMS = st.builds(
    Program,
    st.lists(
        st.tuples(st.sampled_from(list(STEPS)), st.integers(0, 5), st.integers(0, 5)), max_size=4
    ).map(tuple),
    st.lists(st.integers(0, 5), min_size=2, max_size=4).map(tuple),
    st.sampled_from(["tuple", "list", "dict", "nested", "named"]),
)


@st.composite
def models(draw: st.DrawFn) -> Uses:
    torch.manual_seed(draw(st.integers(0, 1000)))
    program = draw(PROGRAMS)
    # The losses may depend on fewer outputs than there are.
    number = draw(st.integers(1, len(program.chosen)))
    return Uses(program, number, first=draw(st.booleans()), calls=draw(st.integers(1, 2)))


@settings(max_examples=100)
@given(models(), st.sampled_from([2, 3, 6]))
def test_outputs_of_any_kind(model: Uses, examples: int) -> None:
    inputs = torch.randn(6, WIDTH)
    # A layer whose outputs have no gradient is not counted.
    used = smooth_parts(model.layer(model.first(inputs)))[: model.number]
    assume(any(part.requires_grad for part in used))
    check_every_gradient(model, inputs, examples)
    check_against_brute_force(model, inputs, examples, bounds=(0.8,))


def test_containers_and_other_things_stay() -> None:
    torch.manual_seed(3)
    layer = Returns(with_other_things)
    inputs = torch.randn(4, WIDTH)
    with Tracer(layer, [layer.weight]).on():
        made = layer(inputs)
    plain = layer(inputs)
    assert type(made) is OrderedDict
    assert list(made) == list(plain)
    assert made["name"] == "a"
    assert made["none"] is None
    assert torch.equal(made["best"], plain["best"])
    assert torch.equal(made["all"][0], plain["all"][0])
    assert type(made["last"]) is tuple


@pytest.mark.parametrize("trained", ["first", "layer", "last"])
def test_frozen_parameters(trained: str) -> None:
    torch.manual_seed(4)
    model = Uses(an_output_of_another, calls=2)
    for name, part in model.named_parameters():
        part.requires_grad_(name.startswith(trained))
    check_against_brute_force(model, torch.randn(6, WIDTH), 3, bounds=(0.5,))


@pytest.mark.parametrize("device", DEVICES)
def test_autocast(device: str) -> None:
    torch.manual_seed(5)
    model = Uses(an_output_of_another, calls=2, coarse=True).to(device)
    inputs = torch.randn(6, WIDTH, device=device)
    found = clipped(model, inputs, 3)
    _, norms = brute_force(model, inputs, 3)
    torch.testing.assert_close(found.norms, norms, rtol=4e-2, atol=0.0)


def test_outputs_that_no_loss_uses() -> None:
    torch.manual_seed(6)
    for number in (0, 1):
        model = Uses(an_output_of_another, number)
        if number == 0:
            model.layer.requires_grad_(False)
        check_against_brute_force(model, torch.randn(6, WIDTH), bounds=(0.5,))


def apart(inputs: Tensor, weight: Tensor) -> Any:
    return inputs @ weight, inputs @ weight.T


def double(outputs: list[Tensor]) -> None:
    outputs[0].mul_(2.0)


@pytest.mark.parametrize("first", [True, False])
def test_changes_in_place(*, first: bool) -> None:
    torch.manual_seed(7)
    model = Uses(apart, first=first)
    model.change = double
    check_every_gradient(model, torch.randn(6, WIDTH), 3)


@pytest.mark.parametrize("first", [True, False])
def test_changes_in_place_of_shared_memory(*, first: bool) -> None:
    def make(inputs: Tensor, weight: Tensor) -> Any:
        made = inputs @ weight
        return made, made[:, -1]

    # The other output changes as well, which is not seen from the layer alone.
    torch.manual_seed(7)
    model = Uses(make, first=first)
    model.change = double
    assert check_training(model, torch.randn(6, WIDTH)) != BY_LAYER


@pytest.mark.parametrize(
    "make", [a_view_of_another, the_same_twice, with_the_input, with_a_parameter]
)
def test_changes_in_place_that_torch_refuses(make: Make) -> None:
    model = Uses(make)
    model.change = double
    with pytest.raises((InvalidParameterError, RuntimeError), match=r"in-?place"):
        check_training(model, torch.randn(6, WIDTH))


@pytest.mark.parametrize("kind", [Unknown, lambda part: Unknown({"a": [part]})])
def test_objects_that_cannot_be_followed(kind: Callable[[Tensor], Any]) -> None:
    class Opens(nn.Module):
        """Uses what is inside of an object."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = Returns(
                lambda inputs, weight: (hidden(inputs, weight), kind(inputs @ weight))
            )

        def forward(self, inputs: Tensor) -> Tensor:
            first, other = self.layer(inputs)
            made: Tensor = first + smooth_parts(other.inside)[0].sin()
            return made

    torch.manual_seed(8)
    assert check_training(Opens(), torch.randn(6, WIDTH)) != BY_LAYER


def test_objects_without_tensors_stay() -> None:
    torch.manual_seed(8)
    model = Uses(lambda inputs, weight: (Unknown([range(10**9), "a"]), *apart(inputs, weight)))
    check_against_brute_force(model, torch.randn(6, WIDTH), bounds=(0.5,))


def test_packed_sequences() -> None:
    def make(inputs: Tensor, weight: Tensor) -> Any:
        lengths = torch.ones(len(inputs), dtype=torch.int64)
        return pack_padded_sequence((inputs @ weight)[:, None], lengths, batch_first=True)

    torch.manual_seed(9)
    check_training(Uses(make, 1), torch.randn(6, WIDTH))


class Adds(nn.Module):
    """Adds all of one output to the rows of another one."""

    def __init__(self, make: Make) -> None:
        super().__init__()
        self.layer = Returns(make)

    def forward(self, inputs: Tensor) -> Tensor:
        first, other = self.layer(inputs)
        made: Tensor = first + other.sum()
        return made


@pytest.mark.parametrize(
    "make",
    [
        lambda inputs, weight: (inputs @ weight, (inputs @ weight).T),
        lambda inputs, weight: (inputs @ weight, (inputs @ weight).sum()),
        lambda inputs, weight: (inputs @ weight, (inputs @ weight)[:1]),
    ],
)
def test_outputs_without_the_rows(make: Make) -> None:
    with pytest.raises(InvalidParameterError, match="depends on other records"):
        check_training(Adds(make), torch.randn(6, WIDTH))


def test_outputs_that_all_records_share() -> None:
    torch.manual_seed(10)
    model = Adds(lambda inputs, weight: (inputs @ weight, weight.square().T))
    assert check_training(model, torch.randn(6, WIDTH)) != BY_LAYER


def test_another_number_of_outputs_for_one_example() -> None:
    def make(inputs: Tensor, weight: Tensor) -> Any:
        return (inputs @ weight,) * (1 + len(inputs))

    torch.manual_seed(11)
    assert check_training(Uses(make, 1), torch.randn(6, WIDTH)) != BY_LAYER
