"""The mode exact: integers, one record at a time, and bounds that hold in exact arithmetic."""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="private training needs the extra `train`")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn.utils import parametrizations  # noqa: E402

from matrixdp.errors import InvalidParameterError  # noqa: E402
from matrixdp.training.lots.exact_sum import MOST_RECORDS, ExactSum, Quantiser  # noqa: E402
from matrixdp.training.model.trainable import Trainable  # noqa: E402
from training.small_training import (  # noqa: E402
    cross_entropy,
    private,
    sgd,
    small_data,
    small_model,
    small_plan,
    train,
    weights,
)

floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
bounds = st.floats(1e-6, 1e6)


def squared(numbers: list[Tensor], step: float) -> Fraction:
    total = sum(int(number) ** 2 for part in numbers for number in part.flatten())
    return Fraction(step) ** 2 * total


@given(st.lists(floats, min_size=1, max_size=30), bounds)
def test_no_record_counts_for_more_than_its_bound(values: list[float], bound: float) -> None:
    gradient = torch.tensor(values)
    quantiser = Quantiser(bound, len(values))
    numbers, sound = quantiser([gradient[:1], gradient[1:]] if len(values) > 1 else [gradient])
    assert bool(sound)
    assert squared(numbers, quantiser.step) <= Fraction(bound) ** 2
    found = torch.cat([part.to(torch.float64) for part in numbers]) * quantiser.step
    exact = gradient.to(torch.float64)
    clipped = exact * min(1.0, bound / max(float(exact.norm()), 1e-300))
    assert float((found - clipped).norm()) <= 1e-8 * bound * math.sqrt(len(values))


@given(st.integers(1, 12), st.integers(0, 2**32), bounds)
def test_norms_at_the_bound(size: int, seed: int, bound: float) -> None:
    # Where rounding up is the most likely to exceed it: norms a little above and below the bound.
    generator = torch.Generator().manual_seed(seed)
    direction = torch.randn(size, generator=generator, dtype=torch.float64)
    for share in (1.0, 1.0 - 2.0**-24, 1.0 + 2.0**-24, 1.0 + 2.0**-30):
        gradient = (direction / direction.norm() * bound * share).to(torch.float32)
        quantiser = Quantiser(bound, size)
        numbers, sound = quantiser([gradient])
        assert bool(sound)
        assert squared(numbers, quantiser.step) <= Fraction(bound) ** 2


def test_what_exceeds_the_bound_after_all_counts_as_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quantiser = Quantiser(1.0, 3)
    # As if a kernel had computed a norm that is too small by a share of 2**-20.
    monkeypatch.setattr(quantiser, "_length", quantiser._length * (1.0 + 2.0**-20))
    numbers, sound = quantiser([torch.tensor([3.0, 4.0, 5.0])])
    assert not bool(sound)
    assert not bool(torch.cat(numbers).any())


def test_squares_whose_sum_wraps_around(monkeypatch: pytest.MonkeyPatch) -> None:
    quantiser = Quantiser(1.0, 5)
    numbers = torch.tensor([*[2**31 - 1] * 4, 2**17], dtype=torch.int64)
    assert int(numbers.square().sum()) == 4  # in 64 bits
    # A norm that is far too small: nothing is scaled.
    monkeypatch.setattr(torch.linalg, "vector_norm", lambda part: part.new_zeros(()))
    found, sound = quantiser([numbers.double() * quantiser.step])
    assert not bool(sound)
    assert not found[0].any()


def test_many_coordinates_that_are_rounded_up() -> None:
    # All of them by the same share of a step, up to half of it: the norm grows by sqrt(size) / 2.
    for size in range(4000, 4040):
        numbers, sound = Quantiser(1.0, size)([torch.ones(size)])
        assert bool(sound)
        assert int(numbers[0].square().sum()) <= 2**60


@pytest.mark.parametrize("size", [1e10, 1e160, 1.7e308])
def test_gradients_of_any_finite_size_are_clipped(size: float) -> None:
    quantiser = Quantiser(1.0, 2)
    numbers, sound = quantiser([torch.tensor([0.6 * size, 0.8 * size], dtype=torch.float64)])
    assert bool(sound)
    found = numbers[0].double() * quantiser.step
    torch.testing.assert_close(found, torch.tensor([0.6, 0.8], dtype=torch.float64))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_counts_as_nothing(bad: float) -> None:
    numbers, sound = Quantiser(1.0, 3)([torch.tensor([1.0, bad, 0.5])])
    assert not bool(sound)
    assert not bool(torch.cat(numbers).any())


def lot_sum(model: nn.Module, records: Sequence[int], scale: float) -> dict[nn.Parameter, Tensor]:
    """Return the exact sum of some records, in the order given."""
    trainable = Trainable(model, (sgd(model),), small_plan(clip_norm={"0": 0.3, "": 0.7}), "exact")
    inputs, targets = small_data()
    total = ExactSum(model, partial(cross_entropy, model), trainable, views=1, debug=False)
    return total((scale * inputs[[record]], targets[[record]]) for record in records)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_neighbours_move_the_sum_by_at_most_the_bounds(scale: float) -> None:
    model = small_model()
    everyone = list(range(12))
    largest = Fraction(0)
    for missing in everyone:
        # The others in another order: an order must not matter to the last bit.
        others = [record for record in reversed(everyone) if record != missing]
        whole, without = (lot_sum(model, records, scale) for records in (everyone, others))
        for prefix, bound in (("0", 0.3), ("2", 0.7)):
            moved = Fraction(0)
            for name, parameter in model.named_parameters():
                if name.startswith(prefix):
                    pairs = zip(
                        whole[parameter].flatten().tolist(),
                        without[parameter].flatten().tolist(),
                        strict=True,
                    )
                    moved += sum((Fraction(a) - Fraction(b)) ** 2 for a, b in pairs)
            assert moved <= Fraction(bound) ** 2
            largest = max(largest, moved)
    assert largest > 0


def test_float_sums_move_by_more() -> None:
    # What the mode exact is for: the same terms added up in float32 exceed the bound.
    generator = torch.Generator().manual_seed(1)
    terms = torch.randn(1000, 4, generator=generator)
    terms = terms / terms.norm(dim=1, keepdim=True)
    whole, without = terms.sum(0), terms[1:].sum(0)
    moved = sum(
        (Fraction(a) - Fraction(b)) ** 2
        for a, b in zip(whole.tolist(), without.tolist(), strict=True)
    )
    own = sum(Fraction(a) ** 2 for a in terms[0].tolist())
    assert moved != own


def test_exact_and_fast_take_the_same_step() -> None:
    found = []
    for mode in ("fast", "exact"):
        model = small_model()
        training = private(model, seed=3, mode=mode)
        train(training)
        found.append(weights(model))
        assert training.guarantee.mode == mode
        assert f"Mode {mode}" in str(training.guarantee)
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-4)


def test_losses_see_one_record() -> None:
    model = small_model()
    sizes: list[int] = []

    def losses(inputs: Tensor, targets: Tensor) -> Tensor:
        sizes.append(len(inputs))
        return cross_entropy(model, inputs, targets)

    plan = small_plan(views=2, lot_size=40)
    train(private(model, plan, losses=losses, seed=3, mode="exact"), steps=1, size=16)
    assert sizes == [2] * 40


def test_losses_may_depend_on_the_batch() -> None:
    """No record sees another one, so nothing is checked, and nothing is refused."""
    models = [small_model() for _ in range(2)]

    def relative(inputs: Tensor, targets: Tensor) -> Tensor:
        found = cross_entropy(models[0], inputs, targets)
        return found * (inputs - inputs.mean(0) + 1.0).mean(1)  # of one record, 1

    train(private(models[0], losses=relative, seed=3, mode="exact"))
    train(private(models[1], seed=3, mode="exact"))
    torch.testing.assert_close(weights(models[0]), weights(models[1]))


def test_releases_are_exact_too() -> None:
    model = small_model()
    before = [part.detach().clone() for part in model.parameters()]
    training = private(model, small_plan(steps=1), mode="exact")
    train(training)
    assert training.guarantee.protects
    changed = zip(before, model.parameters(), strict=True)
    assert all(not torch.equal(old, new) for old, new in changed)


def test_debugging_names_what_is_not_finite() -> None:
    model = small_model()

    def broken(inputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(model, inputs, targets) * float("nan")

    training = private(model, losses=broken, seed=3, mode="exact", debug=True)
    before = weights(model)
    with pytest.raises(
        InvalidParameterError, match=r"losses and gradients of '0\.weight'.* not finite"
    ):
        train(training, steps=1)
    assert training.progress.steps_spent == 1
    assert torch.equal(weights(model), before)


@pytest.mark.parametrize("mode", ["fast", "exact"])
@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_debugging_names_losses_that_are_not_finite(mode: Any, bad: float) -> None:
    model = small_model()

    def shifted(inputs: Tensor, targets: Tensor) -> Tensor:
        # Their gradients are finite. No made-up record has this class.
        return cross_entropy(model, inputs, targets) + torch.where(targets == 2, bad, 0.0)

    training = private(model, losses=shifted, seed=3, mode=mode, debug=True)
    before = weights(model)
    with pytest.raises(InvalidParameterError, match="debug=True stopped the step: losses are not"):
        train(training, steps=1)
    assert training.progress.steps_spent == 1
    assert torch.equal(weights(model), before)


@pytest.mark.parametrize("layer", [nn.Embedding, nn.EmbeddingBag])
def test_sparse_gradients(layer: Callable[..., nn.Module]) -> None:
    model = nn.Sequential(layer(9, 4, sparse=True), nn.Flatten(), nn.LazyLinear(3))
    model(torch.zeros(1, 3, dtype=torch.int64))
    with pytest.raises(InvalidParameterError, match=r"'0' has sparse gradients.*sparse=False"):
        private(model, mode="exact")
    model[0].requires_grad_(False)
    private(model, mode="exact")


@pytest.mark.parametrize(
    ("mode", "changes", "message"),
    [
        ("quick", {}, "mode='quick' is not known"),
        ("exact", {"records": MOST_RECORDS + 1}, "holds exactly"),
    ],
)
def test_bad_modes(mode: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        private(small_model(), small_plan(**changes), seed=1, mode=mode)


def test_a_parameter_without_elements() -> None:
    model = small_model()
    model.register_parameter("empty", nn.Parameter(torch.empty(0)))
    training = private(model, mode="exact", seed=1)
    train(training)
    assert training.progress.steps_left == 0


class LastState(nn.Module):
    """A recurrent layer, and a linear one after its last state."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.head = nn.Linear(5, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        made: Tensor = self.head(self.layer(inputs.reshape(-1, 2, 3))[0][:, -1])
        return made


@pytest.mark.parametrize(
    "make",
    [
        lambda: LastState(nn.GRU(3, 5, batch_first=True)),
        lambda: LastState(nn.RNN(3, 5, batch_first=True)),
        lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(6, 5)), nn.Linear(5, 3)),
    ],
)
def test_layers_without_a_rule(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(2)
    model = make()
    plan = small_plan(clip_norm=0.3, lot_size=40, steps=1, noise_multiplier=0.001)
    optimizer = torch.optim.SGD(model.parameters(), lr=float(plan.population))
    training = private(model, plan, make=lambda _: optimizer, seed=1, mode="exact")
    parameters = list(model.parameters())
    expected = [part.detach().clone() for part in parameters]
    inputs, targets = small_data()
    for record in range(plan.population):
        loss = cross_entropy(model, inputs[[record]], targets[[record]]).sum()
        gradients = torch.autograd.grad(loss, parameters)
        norm = float(torch.stack([part.norm() for part in gradients]).norm())
        for total, part in zip(expected, gradients, strict=True):
            total.sub_(part * min(1.0, 0.3 / norm))
    train(training)
    for part, total in zip(parameters, expected, strict=True):
        torch.testing.assert_close(part.detach(), total, rtol=0.0, atol=3e-3)  # noise: 3e-4


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (nn.BatchNorm1d(6), "BatchNorm1d"),
        (nn.InstanceNorm1d(6, track_running_stats=True), "running statistics"),
        (nn.Embedding(6, 3, max_norm=1.0), "max_norm"),
    ],
)
def test_layers_that_remember_records(layer: nn.Module, message: str) -> None:
    model = nn.Sequential(layer, nn.Linear(6, 3))
    with pytest.raises(InvalidParameterError, match=message):
        private(model, mode="exact")


def test_a_record_may_use_no_parameter() -> None:
    """Whether a loss is constant depends on the record, so nobody is told: it adds zero."""
    inputs, targets = small_data()
    used = targets != targets[-1]
    models = [small_model() for _ in range(2)]

    def constant(inputs: Tensor, targets: Tensor) -> Tensor:
        if bool(targets == small_data()[1][-1]):
            return inputs.sum(1)  # without a gradient
        return cross_entropy(models[0], inputs, targets)

    def zero(inputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(models[1], inputs, targets) * (targets != small_data()[1][-1])

    assert not bool(used.all())
    plan = small_plan(lot_size=40, steps=1)
    for model, losses in zip(models, (constant, zero), strict=True):
        train(private(model, plan, losses=losses, seed=3, mode="exact"), data=(inputs, targets))
    assert torch.equal(weights(models[0]), weights(models[1]))
